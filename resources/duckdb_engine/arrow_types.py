"""Map column types to Arrow types: those that readers return (wire types), and those of staged files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from kpipe.schema.columns import BLOB, BOOLEAN, DOUBLE, JSON, VARCHAR, WIDEST_STRUCT, Columns, ListOf, MapOf, Scalar, Struct, Type
from kpipe.schema.nesting import ends

__all__ = [
    "LARGEST_FLOAT", "beyond", "carried", "cast_type", "entries", "from_arrow", "is_direct", "names", "needs_cast", "schema",
    "staged_type", "wire_type", "with_bytes",
]  # fmt: skip

#: The largest DOUBLE that is rounded to a finite FLOAT (IEEE 754 binary32), so also the largest FLOAT as it is printed,
#: 3.4028235e38. Infinities and NaN stay unchanged.
LARGEST_FLOAT = 3.4028235677973362e38

_DIRECT = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64(),
    "DOUBLE": pa.float64(), "VARCHAR": pa.string(),
}  # fmt: skip
_STAGED = {
    "FLOAT": pa.float32(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"), "BLOB": pa.binary(),
}  # fmt: skip
# JSON has these types as strings only, so that a strict reader can return them as text. The other types that are not direct
# (DECIMAL, HUGEINT, JSON) may also be numbers or objects.
_TEXT = {"DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "BLOB"}


def wire_type(kind: Type) -> pa.DataType:
    """Return the Arrow type that the JSON reader returns for a column; text for types that JSON does not have."""
    return _arrow_type(kind, _wire_scalar)


def with_bytes(kind: Type) -> pa.DataType:
    """Return the wire type of a nested column with its BLOBs as bytes; their text is UTF-8, and no notation of bytes."""
    return _arrow_type(kind, lambda scalar: pa.binary() if scalar == BLOB else _wire_scalar(scalar))


def carried(kind: Type) -> pa.DataType:
    """Return the Arrow type that a reader with a typed schema returns: as staged, but JSON as bytes."""
    return _arrow_type(kind, lambda scalar: pa.binary() if scalar == JSON else _staged_scalar(scalar))


def staged_type(kind: Type) -> pa.DataType:
    """Return the Arrow type of a column in a staged file. JSON, UUID and HUGEINT are validated text."""
    return _arrow_type(kind, _staged_scalar)


def _arrow_type(kind: Type, of_scalar: Callable[[Scalar], pa.DataType]) -> pa.DataType:
    """Return the Arrow type of a column whose scalars, at any depth, have the Arrow types that `of_scalar` returns."""
    if isinstance(kind, Struct):
        return pa.struct([(name, _arrow_type(item, of_scalar)) for name, item in kind.fields])
    if isinstance(kind, ListOf):
        return pa.list_(_arrow_type(kind.item, of_scalar))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), _arrow_type(kind.item, of_scalar))
    return of_scalar(kind)


def _wire_scalar(kind: Scalar) -> pa.DataType:
    if kind.name == "FLOAT":  # read as DOUBLE, so that the cast detects values out of range
        return pa.float64()
    return _DIRECT.get(kind.name, pa.string())


def _staged_scalar(kind: Scalar) -> pa.DataType:
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind.name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _DIRECT.get(kind.name) or _STAGED.get(kind.name, pa.string())


def is_direct(kind: Type) -> bool:
    """Return whether a strict JSON reader with the wire type accepts exactly the valid values of the column."""
    return _proven(kind) or (isinstance(kind, Scalar) and kind.name in _TEXT)


def _proven(kind: Type) -> bool:
    """Return whether no text needs validation. Inside structs and lists, text could not be validated before the cast."""
    if isinstance(kind, Struct):
        return all(_proven(item) for _, item in kind.fields)
    if isinstance(kind, ListOf):
        return _proven(kind.item)
    if isinstance(kind, MapOf):
        return False
    return kind.name in _DIRECT or kind.name == "FLOAT"


def needs_cast(kind: Type) -> bool:
    """Return whether values must be cast from the wire type to the staged type, or their text validated."""
    if isinstance(kind, Struct):
        return any(needs_cast(item) for _, item in kind.fields)
    if isinstance(kind, (ListOf, MapOf)):
        return needs_cast(kind.item)
    return kind.name not in _DIRECT and kind != JSON


def cast_type(kind: Type) -> Type:
    """Return the type to cast to in SQL. JSON stays text, because the reader has validated it."""
    if isinstance(kind, Struct):
        return Struct(tuple((name, cast_type(item)) for name, item in kind.fields))
    if isinstance(kind, ListOf):
        return ListOf(cast_type(kind.item))
    if isinstance(kind, MapOf):
        return MapOf(cast_type(kind.item))
    return VARCHAR if kind == JSON else kind


def names(kind: pa.DataType) -> Iterator[str]:
    """Yield the names of all members, at any depth."""
    if pa.types.is_list(kind):
        yield from names(kind.value_type)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield kind.field(index).name
            yield from names(kind.field(index).type)


def from_arrow(kind: pa.DataType, levels: int = 0, lists: int = 0) -> Type | None:
    """Return the column type for a type that a JSON reader inferred; None for only nulls or empty values.

    Args:
        kind: the inferred type.
        levels: number of lists and STRUCTs of the column around it.
        lists: number of lists among them.
    """
    if pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_integer(kind):
        return Scalar("BIGINT")
    if pa.types.is_floating(kind):
        return DOUBLE
    if pa.types.is_nested(kind) and ends(levels, lists, pa.types.is_list(kind)):
        return JSON
    if pa.types.is_list(kind):
        item = from_arrow(kind.value_type, levels + 1, lists + 1)
        return None if item is None else ListOf(item)
    if pa.types.is_struct(kind):
        members = [(kind.field(i).name, from_arrow(kind.field(i).type, levels + 1, lists)) for i in range(kind.num_fields)]
        fields = tuple((name, item) for name, item in members if item is not None)
        if len(fields) > WIDEST_STRUCT or len({name.lower() for name, _ in fields}) < len(fields):
            return JSON
        return Struct(fields) if fields else None
    return BLOB if pa.types.is_binary(kind) else VARCHAR  # text, including what the reader inferred as a timestamp


def beyond(found: pa.DataType, known: Type, levels: int = 0, lists: int = 0) -> Type | None:
    """Return the members that a column's type lacks, as a type of only these (JSON if they are too many), or None."""
    if isinstance(known, ListOf) and pa.types.is_list(found):
        item = beyond(found.value_type, known.item, levels + 1, lists + 1)
        return None if item is None else ListOf(item)
    if not isinstance(known, Struct) or not pa.types.is_struct(found):
        return None
    members = dict(known.fields)
    extra: list[tuple[str, Type]] = []
    for index in range(found.num_fields):
        field = found.field(index)
        if field.name in members:
            inner = beyond(field.type, members[field.name], levels + 1, lists)
        else:
            inner = from_arrow(field.type, levels + 1, lists)
        if inner is not None:
            extra.append((field.name, inner))
    if len(extra) > WIDEST_STRUCT:
        return JSON
    return Struct(tuple(extra)) if extra else None


def entries(array: pa.Array) -> pa.Array:
    """Return a column of maps as lists of entries, laid out as `MapOf.entries`."""
    kind = array.type
    return array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the columns in a staged file."""
    return pa.schema([(name, staged_type(kind)) for name, kind in columns])
