"""Arrow's types, as they stand in staged files, as column types; and files whose columns must become others'."""

from __future__ import annotations

import pyarrow as pa

from kpipe.errors import SchemaConflict
from kpipe.schema import Columns, ListOf, Scalar, Struct, Type

__all__ = ["of_schema", "of_type", "same"]

_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR", pa.large_string(): "VARCHAR", pa.binary(): "BLOB", pa.large_binary(): "BLOB",
    pa.date32(): "DATE", pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip


def of_type(kind: pa.DataType) -> Type | None:
    """The column type; None where there is none that holds exactly these values."""
    if pa.types.is_dictionary(kind):
        return of_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = of_type(kind.value_type)
        return None if item is None else ListOf(item)
    if pa.types.is_struct(kind):
        fields = [(kind.field(at).name, of_type(kind.field(at).type)) for at in range(kind.num_fields)]
        known = tuple((name, item) for name, item in fields if item is not None)
        return Struct(known) if len(known) == len(fields) else None
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return Scalar(f"DECIMAL({kind.precision},{kind.scale})")
    name = _NAMES.get(kind)
    return None if name is None else Scalar(name)


def of_schema(schema: pa.Schema, where: str) -> Columns:
    """Columns of a file.

    Raises:
        SchemaConflict: a column's type is none that kpipe can write.
    """
    found: list[tuple[str, Type]] = []
    for field in schema:
        kind = of_type(field.type)
        if kind is None:
            raise SchemaConflict(f"{where}: column {field.name!r} has type {field.type}, which kpipe cannot write")
        found.append((field.name, kind))
    return Columns(tuple(found))


def same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether readers that expect `wanted` can take what a file holds as it is; fields that it lacks are null to them."""
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        known = {wanted.field(at).name: wanted.field(at).type for at in range(wanted.num_fields)}
        fields = [stored.field(at) for at in range(stored.num_fields)]
        return all(field.name in known and same(field.type, known[field.name]) for field in fields)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return same(stored.value_type, wanted.value_type)
    if pa.types.is_dictionary(stored):
        return same(stored.value_type, wanted)
    return bool(stored == wanted)
