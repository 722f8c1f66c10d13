"""Convert CREATE TABLE of SingleStore and MySQL to DuckDB's SQL, with notes about what has no effect.

Text that DuckDB reads in the same way stays unchanged. Quoted texts have MySQL's escapes. Source of the rules: SingleStore's page
"CREATE TABLE".
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
from kpipe.sql.column_defaults import default, duckdb_text
from kpipe.sql.column_types import KNOWN, taken
from kpipe.sql.table_head import LONGEST, kinds_of, opening_of

__all__ = ["Made", "made"]

_ATTRIBUTES = (
    "NOT", "NULL", "DEFAULT", "ON", "AUTO_INCREMENT", "PRIMARY", "UNIQUE", "KEY", "COMMENT", "COLLATE", "CHARACTER", "CHARSET",
    "CHECK", "REFERENCES", "GENERATED", "SERIES", "SPARSE", "CONSTRAINT",
)  # fmt: skip
_OPTION = re.compile(
    r"\s*,?\s*(?:DEFAULT\s+)?(?:(?:ENGINE|CHARSET|CHARACTER\s+SET|COLLATE|COMMENT|AUTO_INCREMENT|AUTOSTATS_\w+|SQL_MODE|COMPRESSION"
    r"|ROW_FORMAT)\s*=?\s*(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|\w+)|USING\s+(?:ROWSTORE|COLUMNSTORE))",
    re.IGNORECASE | re.DOTALL,
)
# Types with the same name and meaning in DuckDB.
_SAME = (
    "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "TIME", "DATETIME", "TIMESTAMP", "BINARY", "VARBINARY",
)  # fmt: skip
_TEXTS = re.compile(r"(?:utf8(?:mb4)?_bin|binary|utf8(?:mb4)?)", re.IGNORECASE)
_COLLATION = re.compile(r"(?:utf8|latin|ascii|ucs|utf16)\w*", re.IGNORECASE)


@dataclass
class Made:
    """The statements that create a table.

    Attributes:
        statements: in DuckDB's SQL, in order.
        notes: a sentence for each part that has no effect, or another meaning.
    """

    statements: list[str]
    notes: list[str] = field(default_factory=list)


def made(text: str) -> Made:
    """Convert a CREATE statement; other statements than CREATE TABLE stay unchanged.

    Args:
        text: one statement, which begins with CREATE.

    Raises:
        InvalidStatement: DuckDB cannot create such a table.
    """
    tokens = list(words(text, escapes=True))
    head = _upper(tokens[:LONGEST])
    kinds, index = kinds_of(tokens)
    if index is None:
        return Made([text])
    temporary = [kind for kind in kinds if kind.startswith("TEMP")]
    if temporary:
        raise InvalidStatement(f"CREATE {temporary[0]} TABLE: the table would not outlive its statement", "write CREATE TABLE")
    opening = opening_of(tokens, index)
    if opening is None:
        return Made([text])
    closing = _closing(tokens, opening)
    rest = text[tokens[closing].end :]
    if re.match(r"\s*(?:AS|SELECT|WITH|FROM)\b", rest, re.IGNORECASE):
        return Made([text])
    table = _Table(text, [_plain(word) for word in tokens[index:opening] if word.text != "."])
    table.left += kinds
    table.changed = bool(kinds)
    for item in _items(tokens[opening + 1 : closing]):
        table.take(item)
    ending = table.options(rest)
    if not table.changed:
        return Made([text])
    before = "CREATE OR REPLACE TABLE" if head[1:3] == ["OR", "REPLACE"] else "CREATE TABLE"
    before += " IF NOT EXISTS" if "EXISTS" in head[:index] else ""
    return Made([*table.sequences, f"{before} {_name(table.name)} ({', '.join(table.body())}){ending}"], table.noted())


def _upper(found: Sequence[Word]) -> list[str]:
    return [word.text.upper() for word in found]


def _plain(word: Word) -> str:
    """Return a name without its quotes."""
    if word.kind == "backticked":
        return word.text[1:-1].replace("``", "`")
    return word.text[1:-1].replace('""', '"') if word.kind == "quoted" else word.text


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _closing(tokens: Sequence[Word], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if not depth:
            return index
    open_quote = tokens[-1].kind == "open"
    hint = "close the quote; \\ escapes the next character: write \\\\ for a backslash" if open_quote else "add )"
    raise InvalidStatement("CREATE TABLE: the list of columns is not closed", hint)


def _items(tokens: Sequence[Word]) -> Iterator[Sequence[Word]]:
    depth, start = 0, 0
    for index, word in enumerate(tokens):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
        if word.text == "," and not depth:
            yield tokens[start:index]
            start = index + 1
    if tokens[start:]:
        yield tokens[start:]


class _Table:
    """Collects the columns and keys of a table."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        if len(names) > 1 and names[0].lower() != "main":
            raise InvalidStatement(
                f"CREATE TABLE: expected a table name without a database, found {names[0]}.{names[-1]}",
                f"remove {names[0]}: a home has one database",
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
        """Add a column or a key."""
        if not item:
            raise InvalidStatement("CREATE TABLE: a column is missing between two commas", "remove a comma")
        keywords = _upper(item) if item[0].kind == "name" else [""]
        if keywords[0] == "CONSTRAINT" and len(keywords) > 1:
            rest = 1 if keywords[1] in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN") else 2
            if keywords[rest : rest + 1] and keywords[rest] in ("PRIMARY", "UNIQUE"):
                item, keywords, self.changed = item[rest:], keywords[rest:], self.changed or rest == 1
        if keywords[0] == "PRIMARY" or (keywords[0] == "UNIQUE" and keywords[1:2]):
            self._key("PRIMARY KEY" if keywords[0] == "PRIMARY" else "UNIQUE", item, keywords)
        elif _is_index(item, keywords):
            self.changed = True
            second = keywords[1:2] if keywords[0] not in ("KEY", "INDEX") and keywords[1:2] in (["KEY"], ["INDEX"]) else []
            self.left.append(" ".join([keywords[0], *second]))
        elif keywords[0] in ("CHECK", "FOREIGN", "CONSTRAINT"):
            self._columns.append(self._written(item))
        else:
            self._column(item)

    def _key(self, kind: str, item: Sequence[Word], keywords: list[str]) -> None:
        opening = next((index for index, word in enumerate(item) if word.text == "("), None)
        if opening is None:
            raise InvalidStatement(f"CREATE TABLE: {kind} without columns", f"write {kind} (column)")
        end = _closing(item, opening)
        columns = [_plain(part[0]) for part in _items(item[opening + 1 : end])]
        plain = opening == (2 if kind == "PRIMARY KEY" else 1) and end == len(item) - 1 and end - opening == 2 * len(columns)
        self.changed = self.changed or not plain
        if "UNENFORCED" in keywords[end:]:
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
        used = kind.used or _attribute(rest, 0)
        written = self._written(rest[:used])
        self.changed = self.changed or (bool(kind.used) and written.upper() not in _SAME)
        if kind.note:
            self._notes.append(f"{name} has type {kind.text} instead of {written}: {kind.note}")
        with suppress(InvalidPipeline):  # computed columns cannot use columns of types that only DuckDB has
            self._types.append((name, parse_type(kind.text or written)))
        parts = [_name(name), kind.text or written, *self._attributes(name, kind.text or written, rest[used:])]
        self._columns.append(" ".join(part for part in parts if part))

    def _computed(self, name: str, item: Sequence[Word]) -> None:
        """Add `name AS expression PERSISTED type`, which DuckDB computes when it is read."""
        end = next((index for index, word in enumerate(item) if word.text.upper() == "PERSISTED"), len(item))
        written = self._text[item[0].start : item[end - 1].end] if end else ""  # unchanged, with names in backticks
        try:
            value = computed(written, Columns(tuple(self._types)))
        except Untranslated as error:
            raise InvalidStatement(
                f"CREATE TABLE: column {name}: {error.what}", error.hint or f"remove it, and SET {name} = ... in the pipeline"
            ) from None
        kind = item[end + 1 :]
        used = taken(kind)
        text = used.text if used.used else self._written(kind)
        text = "" if text.upper() == "AUTO" else text
        self.changed = True
        value = f"CAST({value} AS {text})" if text else value
        self._columns.append(f"{_name(name)} {text} GENERATED ALWAYS AS ({value}) VIRTUAL")

    def _attributes(self, name: str, column_type: str, rest: Sequence[Word]) -> Iterator[str]:
        index = 0
        while index < len(rest):
            keywords = _upper(rest[index : index + 3])
            word, used = keywords[0] if rest[index].kind == "name" else "", 1
            if word == "DEFAULT":
                end = _attribute(rest, index + 1)
                value = default(rest[index + 1 : end], column_type)
                self.changed = self.changed or value is not None
                yield f"DEFAULT {value or self._written(rest[index + 1 : end])}"
                used = end - index
            elif keywords[:2] == ["NOT", "NULL"]:
                yield "NOT NULL"
                used = 2
            elif keywords[:2] == ["PRIMARY", "KEY"] or word == "KEY":
                self.changed = self.changed or word == "KEY"
                self._keys.append(("PRIMARY KEY", [name]))
                used = 2 if word == "PRIMARY" else 1
            elif word == "UNIQUE":
                self.changed = self.changed or keywords[1:2] == ["KEY"]
                self._keys.append(("UNIQUE", [name]))
                used = 2 if keywords[1:2] == ["KEY"] else 1
            elif word == "AUTO_INCREMENT":
                sequence = _name(f"{self.name}_{name}_numbers")
                self.sequences.append(f"CREATE SEQUENCE IF NOT EXISTS {sequence}")
                yield "DEFAULT nextval('" + sequence.replace("'", "''") + "')"
                self._counted.add(name.lower())
                self.changed = True
            elif keywords[:2] == ["ON", "UPDATE"]:
                used = _attribute(rest, index + 2) - index
                self._notes.append(f"ON UPDATE of {name} is ignored: assign NOW() to it in the pipeline")
                self.changed = True
            elif word in ("COMMENT", "CHARSET", "COLLATE") or keywords[:2] == ["CHARACTER", "SET"]:
                used = 3 if word == "CHARACTER" else 2
                value = rest[index + used - 1].text if index + used <= len(rest) else ""
                if word == "COLLATE" and not (_TEXTS.fullmatch(value) or _COLLATION.fullmatch(value)):
                    yield f"COLLATE {value}"  # a collation of DuckDB's
                else:
                    self.changed = True
                    self._note_ignored(word, value)
            elif word in ("SERIES", "SPARSE"):
                used = 2 if word == "SERIES" else 1
                self.left.append(" ".join(keywords[:used]))
                self.changed = True
            elif word == "NULL":
                pass
            else:  # DuckDB accepts or rejects CHECK, REFERENCES, GENERATED and anything unknown
                yield self._written(rest[index:])
                return
            index += used

    def _note_ignored(self, word: str, value: str) -> None:
        if word == "COMMENT":
            self.left.append("COMMENT")
        elif word == "COLLATE" and not _TEXTS.fullmatch(value):
            note = f"COLLATE {value} is ignored: texts are compared by their bytes, 'A' is not 'a'"
            self._notes += [note] if note not in self._notes else []
        elif not _TEXTS.fullmatch(value) and word != "COLLATE":
            self.left.append(f"CHARACTER SET {value}")

    def _written(self, item: Sequence[Word]) -> str:
        """Return the tokens unchanged, but with names and texts in DuckDB's quotes."""
        out, copied = [], item[0].start if item else 0
        for word in item:
            text = _name(_plain(word)) if word.kind == "backticked" else duckdb_text(word)
            out += [self._text[copied : word.start], text]
            copied = word.end
            self.changed = self.changed or text != word.text
        return "".join(out).strip()

    def options(self, rest: str) -> str:
        """Return the text after the columns without the known table options."""
        position = 0
        while match := _OPTION.match(rest, position):
            self.left.append(" ".join(match[0].strip(" ,\n\t").split()))
            position = match.end()
        self.changed = self.changed or position > 0
        return rest[position:].rstrip() if rest[position:].strip() else ""

    def body(self) -> list[str]:
        """Return columns, then keys, except keys of AUTO_INCREMENT columns, to which a pipeline writes no value."""
        kept = []
        for kind, columns in self._keys:
            if self._counted & {column.lower() for column in columns}:
                self._notes.append(
                    f"{kind} ({', '.join(columns)}) is ignored: the table generates its values, not the records;"
                    " _kafka_partition and _kafka_offset identify rows"
                )
            else:
                kept.append(f"{kind} ({', '.join(map(_name, columns))})")
        return [*self._columns, *kept]

    def noted(self) -> list[str]:
        """Return the notes, with one for all parts that have no effect."""
        left = list(dict.fromkeys(self.left))
        ignored = f"ignored, because it has no effect: {', '.join(left)}"
        return [*([ignored] if left else []), *self._notes]


def _attribute(rest: Sequence[Word], first: int) -> int:
    """Return the index of the next attribute of a column behind the first token, outside of parentheses."""
    depth = 0
    for index in range(first, len(rest)):
        if index > first and not depth and rest[index].kind == "name" and rest[index].text.upper() in _ATTRIBUTES:
            return index
        depth += {"(": 1, ")": -1}.get(rest[index].text, 0)
    return len(rest)


def _is_index(item: Sequence[Word], keywords: list[str]) -> bool:
    """Return whether it is an index, or a key that only distributes or sorts rows."""
    second, third = (*keywords[1:3], "", "")[:2]
    if keywords[0] in ("SHARD", "SORT", "FULLTEXT", "SPATIAL", "MULTIVALUE", "VECTOR"):
        return second in ("KEY", "INDEX", "(", "USING") or (keywords[0] == "FULLTEXT" and third == "(")
    if keywords[0] in ("KEY", "INDEX"):
        return second in ("(", "USING") or (second not in KNOWN and third in ("(", "USING"))
    return False
