"""Convert column types of MySQL and SingleStore to DuckDB's.

Source of the rules: SingleStore's pages "Data Types" and "CREATE TABLE". Types that DuckDB has with the same
name and the same values are not in the table, and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.expressions.tokens import Word

__all__ = ["KNOWN", "Taken", "taken"]

#: DuckDB's type, whether the numbers in parentheses are dropped, and a note.
_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "NCHAR", "NVARCHAR"), ("VARCHAR", "")),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), ("BLOB", "")),
    **dict.fromkeys(("TINYINT", "SMALLINT", "BIGINT", "TIME"), ("", "")),
    "INT": ("INTEGER", ""), "INTEGER": ("INTEGER", ""), "MEDIUMINT": ("INTEGER", ""), "INT1": ("TINYINT", ""),
    "INT2": ("SMALLINT", ""), "INT3": ("INTEGER", ""), "INT4": ("INTEGER", ""), "INT8": ("BIGINT", ""),
    "DATETIME": ("TIMESTAMP", ""), "TIMESTAMP": ("TIMESTAMP", ""), "YEAR": ("SMALLINT", ""),
    "FLOAT": ("FLOAT", ""), "DOUBLE": ("DOUBLE", ""), "REAL": ("DOUBLE", ""),
    "ENUM": ("VARCHAR", "its values are not checked"), "SET": ("VARCHAR", "its values are not checked"),
    **dict.fromkeys(("GEOGRAPHY", "GEOGRAPHYPOINT"), ("VARCHAR", "it contains the text of the location")),
    "BSON": ("JSON", "it contains JSON"),
}  # fmt: skip
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_UNSIGNED = {"TINYINT": "UTINYINT", "SMALLINT": "USMALLINT", "INTEGER": "UINTEGER", "BIGINT": "UBIGINT"}
_LARGEST_FLOAT = 24  # bits of a 4-byte FLOAT(p)
_SIGNS = ("UNSIGNED", "SIGNED", "ZEROFILL")
#: Type names, which distinguish a column `key VARCHAR(9)` from an index `KEY name (column)`.
KNOWN = frozenset((*_TYPES, *_DECIMALS, "VARCHAR", "CHAR", "TEXT", "BLOB", "JSON", "DATE", "BOOL", "BOOLEAN", "UUID", "BIT"))


@dataclass(frozen=True)
class Taken:
    """A type of DuckDB's that replaces a column's type.

    Attributes:
        text: the type; empty: unchanged.
        used: number of tokens of the original type.
        note: what the new type does not check or store; empty: nothing is lost.
    """

    text: str
    used: int
    note: str = ""


def taken(words: Sequence[Word]) -> Taken:
    """Convert the type at the start of these tokens."""
    name = words[0].text.upper() if words and words[0].kind == "name" else ""
    if name not in KNOWN:
        return Taken("", 0)
    used = 1
    if name == "DOUBLE" and words[1:2] and words[1].text.upper() == "PRECISION":
        used = 2
    numbers, used = _parenthesis(words, used)
    unsigned = False
    while used < len(words) and words[used].text.upper() in _SIGNS:
        unsigned = unsigned or words[used].text.upper() != "SIGNED"
        used += 1
    if name in _DECIMALS:
        whole = ",".join(numbers) or "10,0"
        said = "" if numbers else "it has 10 digits and no fraction, as in SingleStore"
        return Taken(f"DECIMAL({whole})", used, said)
    if name not in _TYPES:
        return Taken("", 0)
    text, note = _TYPES[name]
    text = text or name
    if name == "FLOAT" and len(numbers) == 1 and numbers[0].isdigit() and int(numbers[0]) > _LARGEST_FLOAT:
        text = "DOUBLE"
    if words[used : used + 1] and words[used].text == "[":  # DuckDB's list
        return Taken("", 0)
    if name == "TIMESTAMP" and words[used : used + 1] and words[used].text.upper() in ("WITH", "WITHOUT"):
        return Taken("", 0)
    return Taken(_UNSIGNED.get(text, text) if unsigned else text, used, note)


def _parenthesis(words: Sequence[Word], at: int) -> tuple[list[str], int]:
    """Return the arguments in parentheses, and the index after them."""
    if words[at : at + 1] and words[at].text == "(":
        end = next((place for place in range(at, len(words)) if words[place].text == ")"), len(words) - 1)
        return [word.text for word in words[at + 1 : end] if word.text != ","], end + 1
    return [], at
