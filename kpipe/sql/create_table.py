"""CREATE TABLE as SingleStore and MySQL have it, to what DuckDB runs, with notes of what means nothing here.

What DuckDB would read in the same way is left as it is written. Source of the rules: SingleStore's page "CREATE TABLE".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kpipe.errors import InvalidPipeline, InvalidStatement
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.compiler import computed
from kpipe.expressions.tokens import Word, words
from kpipe.schema.columns import Columns, Type, parse_type, quote
from kpipe.sql.column_types import KNOWN, taken

__all__ = ["Made", "made"]

_KINDS = ("ROWSTORE", "COLUMNSTORE", "REFERENCE", "GLOBAL", "TEMPORARY", "TEMP")
_ATTRIBUTES = (
    "NOT", "NULL", "DEFAULT", "ON", "AUTO_INCREMENT", "PRIMARY", "UNIQUE", "KEY", "COMMENT", "COLLATE", "CHARACTER", "CHARSET",
    "CHECK", "REFERENCES", "GENERATED", "SERIES", "SPARSE", "CONSTRAINT",
)  # fmt: skip
_OPTION = re.compile(
    r"\s*,?\s*(?:DEFAULT\s+)?(?:(?:ENGINE|CHARSET|CHARACTER\s+SET|COLLATE|COMMENT|AUTO_INCREMENT|AUTOSTATS_\w+|SQL_MODE|COMPRESSION"
    r"|ROW_FORMAT)\s*=?\s*(?:'[^']*'|\"[^\"]*\"|\w+)|USING\s+(?:ROWSTORE|COLUMNSTORE))",
    re.IGNORECASE,
)
# Types that are the same to DuckDB.
_SAME = (
    "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "TIME", "DATETIME", "TIMESTAMP", "BINARY", "VARBINARY",
)  # fmt: skip
_TEXTS = re.compile(r"(?:utf8(?:mb4)?_bin|binary|utf8(?:mb4)?)", re.IGNORECASE)
_COLLATION = re.compile(r"(?:utf8|latin|ascii|ucs|utf16)\w*", re.IGNORECASE)


@dataclass
class Made:
    """A table's statements.

    Attributes:
        statements: in DuckDB's SQL, in order.
        notes: a sentence for each thing that means nothing here, or something else.
    """

    statements: list[str]
    notes: list[str] = field(default_factory=list)


def made(text: str) -> Made:
    """What makes the table.

    Args:
        text: one statement that begins with CREATE.

    Raises:
        InvalidStatement: the table cannot be what the statement says.
    """
    found = list(words(text))
    head = _upper(found[:12])
    at = 3 if head[1:3] == ["OR", "REPLACE"] else 1
    kinds = []
    while at < len(head) and head[at] in _KINDS:
        kinds.append(head[at])
        at += 1
    if at >= len(head) or head[at] != "TABLE":
        return Made([text])
    temporary = [kind for kind in kinds if kind.startswith("TEMP")]
    if temporary:
        raise InvalidStatement(f"CREATE {temporary[0]} TABLE: such a table ends with its statement", "write CREATE TABLE")
    at += 4 if head[at + 1 : at + 4] == ["IF", "NOT", "EXISTS"] else 1
    opening = next((place for place in range(at, len(found)) if found[place].text == "("), None)
    if opening is None or opening == at or any(word.text.upper() in ("AS", "LIKE") for word in found[at + 1 : opening]):
        return Made([text])
    closing = _closing(found, opening)
    rest = text[found[closing].end :]
    if re.match(r"\s*(?:AS|SELECT|WITH|FROM)\b", rest, re.IGNORECASE):
        return Made([text])
    table = _Table(text, [_plain(word) for word in found[at:opening] if word.text != "."])
    table.left += kinds
    table.changed = bool(kinds)
    for item in _items(found[opening + 1 : closing]):
        table.take(item)
    ending = table.options(rest)
    if not table.changed:
        return Made([text])
    before = "CREATE OR REPLACE TABLE" if head[1:3] == ["OR", "REPLACE"] else "CREATE TABLE"
    before += " IF NOT EXISTS" if "EXISTS" in head[:at] else ""
    return Made([*table.sequences, f"{before} {_name(table.name)} ({', '.join(table.body())}){ending}"], table.noted())


def _upper(found: Sequence[Word]) -> list[str]:
    return [word.text.upper() for word in found]


def _plain(word: Word) -> str:
    """A name without its quotes."""
    if word.kind == "backticked":
        return word.text[1:-1].replace("``", "`")
    return word.text[1:-1].replace('""', '"') if word.kind == "quoted" else word.text


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _closing(found: Sequence[Word], opening: int) -> int:
    depth = 0
    for at in range(opening, len(found)):
        depth += {"(": 1, ")": -1}.get(found[at].text, 0)
        if not depth:
            return at
    raise InvalidStatement("CREATE TABLE: the list of columns does not end", "add )")


def _items(found: Sequence[Word]) -> Iterator[Sequence[Word]]:
    depth, start = 0, 0
    for at, word in enumerate(found):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
        if word.text == "," and not depth:
            yield found[start:at]
            start = at + 1
    if found[start:]:
        yield found[start:]


class _Table:
    """Collects columns and keys."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        if len(names) > 1 and names[0].lower() != "main":
            raise InvalidStatement(
                f"CREATE TABLE takes the table's name alone: a home has one database, found {names[0]}.{names[-1]}",
                f"leave out {names[0]}",
            )
        self.name, self.changed = names[-1], False
        self.left: list[str] = []
        self.sequences: list[str] = []
        self._text, self._notes = text, list[str]()
        self._columns: list[str] = []
        self._keys: list[tuple[str, list[str]]] = []
        self._counted: set[str] = set()
        self._types: list[tuple[str, Type]] = []

    def take(self, item: Sequence[Word]) -> None:
        """A column, or a key."""
        if not item:
            raise InvalidStatement("CREATE TABLE: a column is missing between two commas", "remove a comma")
        said = _upper(item) if item[0].kind == "name" else [""]
        if said[0] == "CONSTRAINT" and len(said) > 1:
            rest = 1 if said[1] in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN") else 2
            if said[rest : rest + 1] and said[rest] in ("PRIMARY", "UNIQUE"):
                item, said, self.changed = item[rest:], said[rest:], self.changed or rest == 1
        if said[0] == "PRIMARY" or (said[0] == "UNIQUE" and said[1:2]):
            self._key("PRIMARY KEY" if said[0] == "PRIMARY" else "UNIQUE", item, said)
        elif _is_index(item, said):
            self.changed = True
            second = said[1:2] if said[0] not in ("KEY", "INDEX") and said[1:2] in (["KEY"], ["INDEX"]) else []
            self.left.append(" ".join([said[0], *second]))
        elif said[0] in ("CHECK", "FOREIGN", "CONSTRAINT"):
            self._columns.append(self._written(item))
        else:
            self._column(item)

    def _key(self, kind: str, item: Sequence[Word], said: list[str]) -> None:
        opening = next((at for at, word in enumerate(item) if word.text == "("), None)
        if opening is None:
            raise InvalidStatement(f"CREATE TABLE: {kind} names no column", f"write {kind} (column)")
        end = _closing(item, opening)
        columns = [_plain(part[0]) for part in _items(item[opening + 1 : end])]
        plain = opening == (2 if kind == "PRIMARY KEY" else 1) and end == len(item) - 1 and end - opening == 2 * len(columns)
        self.changed = self.changed or not plain
        if "UNENFORCED" in said[end:]:
            self.left.append(f"{kind} UNENFORCED")
            return
        self._keys.append((kind, columns))

    def _column(self, item: Sequence[Word]) -> None:
        name = _plain(item[0])
        self.changed = self.changed or item[0].kind == "backticked"
        self.changed = self.changed or (item[0].kind == "name" and quote(name.lower()).startswith('"'))
        rest = item[1:]
        if rest and rest[0].text.upper() == "AS":
            self._computed(name, rest[1:])
            return
        kind = taken(rest)
        used = kind.used or _attribute(rest, 1)
        written = self._written(rest[:used])
        self.changed = self.changed or (bool(kind.used) and written.upper() not in _SAME)
        if kind.note:
            self._notes.append(f"{name} is {kind.text} here, for {written}: {kind.note}")
        with suppress(InvalidPipeline):  # DuckDB has types that kpipe has not; a computed column cannot name those
            self._types.append((name, parse_type(kind.text or written)))
        parts = [_name(name), kind.text or written, *self._attributes(name, rest[used:])]
        self._columns.append(" ".join(part for part in parts if part))

    def _computed(self, name: str, item: Sequence[Word]) -> None:
        """`name AS expression PERSISTED type`: DuckDB computes it when it is asked for."""
        end = next((at for at, word in enumerate(item) if word.text.upper() == "PERSISTED"), len(item))
        written = self._text[item[0].start : item[end - 1].end] if end else ""  # as expressions have it: names in backticks
        try:
            value = computed(written, Columns(tuple(self._types)))
        except Untranslated as error:
            raise InvalidStatement(
                f"CREATE TABLE: column {name}: {error.what}", error.hint or f"leave it out, and SET {name} = ... in the pipeline"
            ) from None
        kind = item[end + 1 :]
        used = taken(kind)
        text = used.text if used.used else self._written(kind)
        text = "" if text.upper() == "AUTO" else text
        self.changed = True
        value = f"CAST({value} AS {text})" if text else value
        self._columns.append(f"{_name(name)} {text} GENERATED ALWAYS AS ({value}) VIRTUAL")

    def _attributes(self, name: str, rest: Sequence[Word]) -> Iterator[str]:
        at = 0
        while at < len(rest):
            said = _upper(rest[at : at + 3])
            word, used = said[0] if rest[at].kind == "name" else "", 1
            if word == "DEFAULT":
                end = _attribute(rest, at + 2)
                yield f"DEFAULT {self._default(rest[at + 1 : end])}"
                used = end - at
            elif said[:2] == ["NOT", "NULL"]:
                yield "NOT NULL"
                used = 2
            elif said[:2] == ["PRIMARY", "KEY"] or word == "KEY":
                self.changed = self.changed or word == "KEY"
                self._keys.append(("PRIMARY KEY", [name]))
                used = 2 if word == "PRIMARY" else 1
            elif word == "UNIQUE":
                self.changed = self.changed or said[1:2] == ["KEY"]
                self._keys.append(("UNIQUE", [name]))
                used = 2 if said[1:2] == ["KEY"] else 1
            elif word == "AUTO_INCREMENT":
                sequence = _name(f"{self.name}_{name}_numbers")
                self.sequences.append(f"CREATE SEQUENCE IF NOT EXISTS {sequence}")
                yield "DEFAULT nextval('" + sequence.replace("'", "''") + "')"
                self._counted.add(name.lower())
                self.changed = True
            elif said[:2] == ["ON", "UPDATE"]:
                used = _attribute(rest, at + 2) - at
                self._notes.append(f"ON UPDATE is left out of {name}: NOW() in the expressions of the pipeline does the same")
                self.changed = True
            elif word in ("COMMENT", "CHARSET", "COLLATE") or said[:2] == ["CHARACTER", "SET"]:
                used = 3 if word == "CHARACTER" else 2
                value = rest[at + used - 1].text if at + used <= len(rest) else ""
                if word == "COLLATE" and not (_TEXTS.fullmatch(value) or _COLLATION.fullmatch(value)):
                    yield f"COLLATE {value}"  # DuckDB's own
                else:
                    self.changed = True
                    self._say(word, value)
            elif word in ("SERIES", "SPARSE"):
                used = 2 if word == "SERIES" else 1
                self.left.append(" ".join(said[:used]))
                self.changed = True
            elif word == "NULL":
                pass
            else:  # CHECK, REFERENCES, GENERATED and what is unknown: DuckDB's to judge
                yield self._written(rest[at:])
                return
            at += used

    def _say(self, word: str, value: str) -> None:
        if word == "COMMENT":
            self.left.append("COMMENT")
        elif word == "COLLATE" and not _TEXTS.fullmatch(value):
            note = f"COLLATE {value} is left out: texts are compared by their bytes, 'A' is not 'a'"
            self._notes += [note] if note not in self._notes else []
        elif not _TEXTS.fullmatch(value) and word != "COLLATE":
            self.left.append(f"CHARACTER SET {value}")

    def _default(self, value: Sequence[Word]) -> str:
        if len(value) == 1 and value[0].kind == "quoted":  # a text: no default is a column
            self.changed = True
            return "'" + _plain(value[0]).replace("'", "''") + "'"
        said = _upper(value)
        if said[:1] in (["CURRENT_TIMESTAMP"], ["NOW"], ["LOCALTIMESTAMP"], ["UTC_TIMESTAMP"]) and len(said) > 1:
            self.changed = self.changed or said[0] != "NOW" or len(said) > 3
            return "now()"
        return self._written(value)

    def _written(self, item: Sequence[Word]) -> str:
        """The words as they are written, with names that DuckDB reads."""
        out, at = [], item[0].start if item else 0
        for word in item:
            out += [self._text[at : word.start], _name(_plain(word)) if word.kind == "backticked" else word.text]
            at = word.end
            self.changed = self.changed or word.kind == "backticked"
        return "".join(out).strip()

    def options(self, rest: str) -> str:
        """What follows the columns: nothing of it where it is known, else as it is written."""
        at = 0
        while match := _OPTION.match(rest, at):
            self.left.append(" ".join(match[0].strip(" ,\n\t").split()))
            at = match.end()
        self.changed = self.changed or at > 0
        return rest[at:].rstrip() if rest[at:].strip() else ""

    def body(self) -> list[str]:
        """Columns, then keys. A key of numbered columns is none: a pipeline gives them no value."""
        kept = []
        for kind, columns in self._keys:
            if self._counted & {column.lower() for column in columns}:
                self._notes.append(
                    f"{kind} ({', '.join(columns)}) is left out: its values are made by the table, not by records;"
                    " _kafka_partition and _kafka_offset tell rows apart"
                )
            else:
                kept.append(f"{kind} ({', '.join(map(_name, columns))})")
        return [*self._columns, *kept]

    def noted(self) -> list[str]:
        """Notes, with one for all that was left out."""
        left = list(dict.fromkeys(self.left))
        said = f"left out, as it means nothing here: {', '.join(left)}"
        return [*([said] if left else []), *self._notes]


def _attribute(rest: Sequence[Word], at: int) -> int:
    """Where the next attribute of a column begins, from a place on; outside of parentheses."""
    depth = 0
    while at < len(rest) and (depth or rest[at].kind != "name" or rest[at].text.upper() not in _ATTRIBUTES):
        depth += {"(": 1, ")": -1}.get(rest[at].text, 0)
        at += 1
    return at


def _is_index(item: Sequence[Word], said: list[str]) -> bool:
    """Whether it is a key that only speeds things up, or says where rows lie."""
    second, third = (*said[1:3], "", "")[:2]
    if said[0] in ("SHARD", "SORT", "FULLTEXT", "SPATIAL", "MULTIVALUE", "VECTOR"):
        return second in ("KEY", "INDEX", "(", "USING") or (said[0] == "FULLTEXT" and third == "(")
    if said[0] in ("KEY", "INDEX"):
        return second in ("(", "USING") or (second not in KNOWN and third in ("(", "USING"))
    return False
