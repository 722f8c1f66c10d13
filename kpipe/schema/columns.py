"""Columns and their types, written as DuckDB writes them, independent of any engine.

A type is a scalar (`BIGINT`, `DECIMAL(18,3)`), a `STRUCT(name TYPE, ...)`, a list (`TYPE[]`) or a `MAP(VARCHAR, TYPE)`. Types
are inferred (inference.py) only as far as no value loses information. Integers become BIGINT, numbers with a fraction or
beyond 64 bits DOUBLE, and text VARCHAR (dates must be declared). Values of different types become JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kpipe.errors import InvalidPipeline

__all__ = [
    "JSON", "NOTHING", "WIDEST_STRUCT", "Columns", "ListOf", "MapOf", "Scalar", "Struct", "Type", "merge", "parse_type",
    "settled",
]  # fmt: skip

_ALIASES = {
    "BOOL": "BOOLEAN", "LOGICAL": "BOOLEAN",
    "INT8": "BIGINT", "LONG": "BIGINT", "INT": "INTEGER", "INT4": "INTEGER", "SIGNED": "INTEGER",
    "INT2": "SMALLINT", "SHORT": "SMALLINT", "INT1": "TINYINT",
    "FLOAT8": "DOUBLE", "FLOAT4": "FLOAT", "REAL": "FLOAT",
    "TEXT": "VARCHAR", "STRING": "VARCHAR", "CHAR": "VARCHAR", "BPCHAR": "VARCHAR",
    "BYTEA": "BLOB", "BINARY": "BLOB", "VARBINARY": "BLOB", "BYTES": "BLOB",
    "DATETIME": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "NUMERIC": "DECIMAL",
}  # fmt: skip
_SCALARS = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "JSON",
}  # fmt: skip
# A JSON object with more keys probably has ids as keys. As a STRUCT, each new key would change the schema.
# DuckDB's own JSON reader (2.0) infers a MAP from 200 keys on.
WIDEST_STRUCT = 200


@dataclass(frozen=True)
class Scalar:
    """A type without parts."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ListOf:
    """A list; every item has the same type."""

    item: Type

    def __str__(self) -> str:
        return f"{self.item}[]"


@dataclass(frozen=True)
class Struct:
    """Named fields in order."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return "STRUCT(" + ", ".join(f"{quote(name)} {kind}" for name, kind in self.fields) + ")"


@dataclass(frozen=True)
class MapOf:
    """Values by key; keys are text, as in JSON, and all values have the same type."""

    item: Type

    def __str__(self) -> str:
        return f"MAP(VARCHAR, {self.item})"

    @property
    def entries(self) -> ListOf:
        """The type as a list of its entries, as in Arrow's layout."""
        return ListOf(Struct((("key", VARCHAR), ("value", self.item))))


Type = Scalar | ListOf | MapOf | Struct

BOOLEAN, BIGINT, DOUBLE = Scalar("BOOLEAN"), Scalar("BIGINT"), Scalar("DOUBLE")
VARCHAR, BLOB, JSON = Scalar("VARCHAR"), Scalar("BLOB"), Scalar("JSON")
INSTANT, TIMESTAMP, FLOAT = Scalar("TIMESTAMP WITH TIME ZONE"), Scalar("TIMESTAMP"), Scalar("FLOAT")
_AS_TEXT = (VARCHAR, INSTANT, TIMESTAMP)  # together they are text
#: Numeric types of formats with types; a later type can store the values of an earlier one (BIGINT in DOUBLE: to 53 bits).
_LADDER = (Scalar("INTEGER"), BIGINT, FLOAT, DOUBLE)
#: The type of a null, and of the items of an empty list: used in inference only, never a column's type.
NOTHING = Scalar('"NULL"')

# SQL keywords: DuckDB 2.0's keywords of the kinds `reserved` and `type_function` (duckdb_keywords()), which cannot be
# names of columns, or of members of a STRUCT; and names of nested types.
_KEYWORDS = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default"
    " deferrable desc describe distinct do else end except false fetch for foreign from group having in initially"
    " intersect into lambda lateral leading limit list map not null offset on only or order pivot pivot_longer"
    " pivot_wider placing primary qualify references returning select show some struct summarize symmetric table then to"
    " trailing true union unique unpivot using variadic when where window with"
    " anti asof at authorization binary by collation concurrently cross freeze full glob ilike inner is isnull join left like"
    " natural notnull outer overlaps positional right semi similar tablesample unpack verbose"
)
_RESERVED = frozenset(_KEYWORDS.split())


def quote(name: str) -> str:
    """Return a name as an SQL identifier, quoted if needed. Quotes inside are doubled."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Columns:
    """Columns of a table in order: name to type. Names are compared without regard to case, as in SQL."""

    items: tuple[tuple[str, Type], ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, Type]:
        """Types by lower-case name, computed once: N lookups in N columns take N steps."""
        found: dict[str, Type] = {}
        for name, kind in self.items:
            found.setdefault(name.lower(), kind)
        return found

    def __iter__(self) -> Iterator[tuple[str, Type]]:
        return iter(self.items)

    def __bool__(self) -> bool:
        return bool(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> Type | None:
        """Return the type of the column; None if the column does not exist."""
        return self._by_name.get(name.lower())

    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(name for name, _ in self.items)

    def merged(self, other: Columns) -> Columns:
        """Return these columns, widened by the other ones: new columns at the end, new fields inside structs.

        Raises:
            ValueError: a column has incompatible types; the message names it.
        """
        result = {name.lower(): (name, kind) for name, kind in self.items}
        for name, kind in other.items:
            if name.lower() not in result:
                result[name.lower()] = (name, kind)
                continue
            known, old = result[name.lower()]
            result[name.lower()] = (known, _widen(old, kind, known))
        return Columns(tuple(result.values()))

    def joined(self, other: Columns, apart: bool = False) -> Columns:
        """Join the columns of two sets of records, with the same result as `infer` over all of them."""
        if not other.items:
            return self
        result = {name.lower(): (name, kind) for name, kind in self.items}
        for name, kind in other.items:
            known, old = result.get(name.lower(), (name, kind))
            result[name.lower()] = (known, settled(merge(old, kind), apart) or JSON)
        return Columns(tuple(result.values()))

    def without(self, names: Iterable[str]) -> Columns:
        """Return these columns without some."""
        drop = {name.lower() for name in names}
        return Columns(tuple((name, kind) for name, kind in self.items if name.lower() not in drop))

    def to_dict(self) -> dict[str, str]:
        """Return name to type as text."""
        return {name: str(kind) for name, kind in self.items}

    @classmethod
    def of(cls, types: Mapping[str, str]) -> Columns:
        """Parse columns from name to type text.

        Raises:
            InvalidPipeline: a type does not exist.
        """
        return cls(tuple((name, parse_type(text)) for name, text in types.items()))


def _widen(old: Type, new: Type, where: str) -> Type:
    if old in (new, JSON):
        return old
    if isinstance(old, Struct) and isinstance(new, Struct):
        inner = Columns(old.fields).merged(Columns(new.fields))
        return Struct(inner.items)
    if isinstance(old, ListOf) and isinstance(new, ListOf):
        return ListOf(_widen(old.item, new.item, where))
    if isinstance(old, MapOf) and isinstance(new, MapOf):
        return MapOf(_widen(old.item, new.item, where))
    msg = f"column {where}: incompatible types: expected {old}, found {new} in the records"
    raise ValueError(msg)


def merge(a: Type, b: Type) -> Type:
    """Return the narrowest type that can store the values of both without loss; JSON if no other type can."""
    if a is b or a == b or b == NOTHING:
        return a
    if a == NOTHING:
        return b
    if a in _LADDER and b in _LADDER:
        # FLOAT has 24 bits of precision, fewer than INTEGER: together they are DOUBLE. JSON itself gives only BIGINT and DOUBLE.
        return max(a, b, key=_LADDER.index) if FLOAT not in (a, b) else DOUBLE
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return ListOf(merge(a.item, b.item))
    if isinstance(a, MapOf) and isinstance(b, MapOf):
        return MapOf(merge(a.item, b.item))
    if isinstance(a, Struct) and isinstance(b, Struct):
        fields = dict(a.fields)
        for name, kind in b.fields:
            fields[name] = merge(fields[name], kind) if name in fields else kind
        return Struct(tuple(fields.items())) if len(fields) <= WIDEST_STRUCT else JSON
    return VARCHAR if a in _AS_TEXT and b in _AS_TEXT else JSON


def settled(kind: Type, apart: bool = False) -> Type | None:
    """Return an inferred type as a column type, without its unknown parts; None if all of it is unknown.

    A list that was always empty, or an object without members, has no known type: its column appears with the first value.
    Members whose names differ by case only make an object JSON; `apart` keeps them, as they may be from several records.
    """
    if isinstance(kind, Scalar):
        return None if kind == NOTHING else kind
    if isinstance(kind, (ListOf, MapOf)):
        item = settled(kind.item, apart)
        return None if item is None else type(kind)(item)
    inner = [(name, settled(item, apart)) for name, item in kind.fields]
    known = tuple((name, item) for name, item in inner if item is not None)
    if not apart and len({name.lower() for name, _ in known}) < len(known):
        return JSON  # names that differ by case only cannot be fields of one STRUCT
    return Struct(known) if known else None


def parse_type(text: str) -> Type:
    """Parse a type such as `BIGINT`, `varchar[]` or `STRUCT(a INTEGER, "b c" DATE)[]`.

    Raises:
        InvalidPipeline: the type is invalid.
    """
    parser = _Parser(text)
    kind = parser.type()
    parser.end()
    return kind


@dataclass
class _Parser:
    text: str
    tokens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = re.findall(r'"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_]*|\d+|\S', self.text)

    def fail(self) -> InvalidPipeline:
        return InvalidPipeline(
            f"invalid column type: {self.text!r}",
            "use BIGINT, DOUBLE, BOOLEAN, VARCHAR, TIMESTAMP, DATE, DECIMAL(p,s), JSON, BLOB ..., TYPE[],"
            " MAP(VARCHAR, TYPE) or STRUCT(name TYPE, ...)",
        )

    def take(self, *wanted: str) -> str:
        if not self.tokens or (wanted and self.tokens[0].upper() not in wanted):
            raise self.fail()
        return self.tokens.pop(0)

    def peek(self, *wanted: str) -> bool:
        return bool(self.tokens) and self.tokens[0].upper() in wanted

    def end(self) -> None:
        if self.tokens:
            raise self.fail()

    def type(self) -> Type:
        kind = self.struct() if self.peek("STRUCT") else self.map() if self.peek("MAP") else self.scalar()
        while self.peek("["):
            self.take("[")
            self.take("]")
            kind = ListOf(kind)
        return kind

    def struct(self) -> Type:
        self.take("STRUCT")
        self.take("(")
        fields: list[tuple[str, Type]] = []
        while True:
            name = self.take()
            if name.startswith('"'):
                name = name[1:-1].replace('""', '"')
            elif not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise self.fail()
            fields.append((name, self.type()))
            if self.take(",", ")") == ")":
                return Struct(tuple(fields))

    def map(self) -> Type:
        self.take("MAP")
        self.take("(")
        if self.scalar() != VARCHAR:
            raise self.fail()
        self.take(",")
        kind = self.type()
        self.take(")")
        return MapOf(kind)

    def scalar(self) -> Type:
        name = self.take().upper()
        name = _ALIASES.get(name, name)
        if name == "TIMESTAMP" and self.peek("WITH"):
            for word in ("WITH", "TIME", "ZONE"):
                self.take(word)
            name = "TIMESTAMP WITH TIME ZONE"
        if name == "DECIMAL":
            return self.decimal()
        if name == "VARCHAR" and self.peek("("):
            self.take("(")
            self.take()
            self.take(")")
        if name not in _SCALARS:
            raise self.fail()
        return Scalar(name)

    def decimal(self) -> Type:
        precision, scale = 18, 3
        if self.peek("("):
            self.take("(")
            digits = self.take()
            rest = self.take() if self.take(",", ")") == "," else None
            if rest is not None:
                self.take(")")
            if not digits.isdecimal() or (rest is not None and not rest.isdecimal()):
                raise self.fail()
            precision, scale = int(digits), int(rest or 0)
        if not 0 < precision <= 38 or scale > precision:
            raise self.fail()
        return Scalar(f"DECIMAL({precision},{scale})")
