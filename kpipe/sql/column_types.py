"""Column types of MySQL and SingleStore as DuckDB has them.

Source of the rules: SingleStore's pages "Data Types" and "CREATE TABLE". Types that DuckDB has under the same name, with the
same values, are not in the table: they stay as they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.expressions.tokens import Word

__all__ = ["KNOWN", "Taken", "taken"]

#: To what, whether the numbers in parentheses are dropped, and a note.
_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "NCHAR", "NVARCHAR"), ("VARCHAR", "")),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), ("BLOB", "")),
    **dict.fromkeys(("TINYINT", "SMALLINT", "BIGINT", "TIME"), ("", "")),
    "INT": ("INTEGER", ""), "INTEGER": ("INTEGER", ""), "MEDIUMINT": ("INTEGER", ""), "INT1": ("TINYINT", ""),
    "INT2": ("SMALLINT", ""), "INT3": ("INTEGER", ""), "INT4": ("INTEGER", ""), "INT8": ("BIGINT", ""),
    "DATETIME": ("TIMESTAMP", ""), "TIMESTAMP": ("TIMESTAMP", ""), "YEAR": ("SMALLINT", ""),
    "FLOAT": ("FLOAT", ""), "DOUBLE": ("DOUBLE", ""), "REAL": ("DOUBLE", ""),
    "ENUM": ("VARCHAR", "its values are not checked"), "SET": ("VARCHAR", "its values are not checked"),
    **dict.fromkeys(("GEOGRAPHY", "GEOGRAPHYPOINT"), ("VARCHAR", "it holds the text of the place")),
    "BSON": ("JSON", "it holds JSON"),
}  # fmt: skip
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_UNSIGNED = {"TINYINT": "UTINYINT", "SMALLINT": "USMALLINT", "INTEGER": "UINTEGER", "BIGINT": "UBIGINT"}
_SIGNS = ("UNSIGNED", "SIGNED", "ZEROFILL")
#: What tells a column `key VARCHAR(9)` from an index `KEY name (column)`.
KNOWN = frozenset((*_TYPES, *_DECIMALS, "VARCHAR", "CHAR", "TEXT", "BLOB", "JSON", "DATE", "BOOL", "BOOLEAN", "UUID", "BIT"))


@dataclass(frozen=True)
class Taken:
    """A type as DuckDB has it.

    Attributes:
        text: the type; empty: as it was written.
        used: how many words it was.
        note: what it no longer says; empty: nothing.
    """

    text: str
    used: int
    note: str = ""


def taken(words: Sequence[Word]) -> Taken:
    """The type that these words begin with."""
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
    if words[used : used + 1] and words[used].text == "[":  # DuckDB's list
        return Taken("", 0)
    if name == "TIMESTAMP" and words[used : used + 1] and words[used].text.upper() in ("WITH", "WITHOUT"):
        return Taken("", 0)
    return Taken(_UNSIGNED.get(text, text) if unsigned else text, used, note)


def _parenthesis(words: Sequence[Word], at: int) -> tuple[list[str], int]:
    """Numbers or texts in parentheses, and the place behind them."""
    if words[at : at + 1] and words[at].text == "(":
        end = next((place for place in range(at, len(words)) if words[place].text == ")"), len(words) - 1)
        return [word.text for word in words[at + 1 : end] if word.text != ","], end + 1
    return [], at
