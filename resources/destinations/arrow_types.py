"""Convert between Arrow types of staged files and column types, and cast columns to a table's types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import VARCHAR, Columns, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["cast", "of_schema", "of_type", "owners", "same", "textual"]

_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR", pa.large_string(): "VARCHAR", pa.binary(): "BLOB", pa.large_binary(): "BLOB",
    pa.date32(): "DATE", pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
_MIDNIGHT = 86_400_000_000  # µs: the end of a day, which Arrow prints as "<value out of range: 86400000000>"


def of_type(kind: pa.DataType) -> Type | None:
    """Return the column type for exactly these values; None: kpipe has no such type."""
    if pa.types.is_dictionary(kind):
        return of_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = of_type(kind.value_type)
        return None if item is None else ListOf(item)
    if pa.types.is_map(kind):
        item = of_type(kind.item_type)
        return None if item is None or of_type(kind.key_type) != VARCHAR else MapOf(item)
    if pa.types.is_struct(kind):
        fields = [(kind.field(at).name, of_type(kind.field(at).type)) for at in range(kind.num_fields)]
        known = tuple((name, item) for name, item in fields if item is not None)
        return Struct(known) if len(known) == len(fields) else None
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return Scalar(f"DECIMAL({kind.precision},{kind.scale})")
    name = _NAMES.get(kind)
    return None if name is None else Scalar(name)


def of_schema(schema: pa.Schema, where: str) -> Columns:
    """Return the columns of a file.

    Raises:
        SchemaConflict: kpipe cannot write a column's type.
    """
    found: list[tuple[str, Type]] = []
    for field in schema:
        kind = of_type(field.type)
        if kind is None:
            raise SchemaConflict(f"{where}: column {field.name!r} has type {field.type}, which kpipe cannot write")
        found.append((field.name, kind))
    return Columns(tuple(found))


def owners(schema: pa.Schema) -> list[int]:
    """Return the index of the field of each column chunk of a Parquet file.

    Paths of chunks do not show it: column `a.b` and field `b` of a STRUCT `a` have the same one.
    """
    return [at for at, field in enumerate(schema) for _ in range(_chunks(field.type))]


def _chunks(kind: pa.DataType) -> int:
    """Return the number of column chunks of a type: one for each scalar in it."""
    return sum(_chunks(kind.field(at).type) for at in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether readers that expect `wanted` can read `stored` unchanged; missing fields are NULL to them."""
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        known = {wanted.field(at).name: wanted.field(at).type for at in range(wanted.num_fields)}
        fields = [stored.field(at) for at in range(stored.num_fields)]
        return all(field.name in known and same(field.type, known[field.name]) for field in fields)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return same(stored.value_type, wanted.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return same(stored.key_type, wanted.key_type) and same(stored.item_type, wanted.item_type)
    if pa.types.is_dictionary(stored):
        return same(stored.value_type, wanted)
    return bool(stored == wanted)


def cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast a column as Arrow does, but a TIME to text as hh:mm:ss.ffffff up to 24:00:00.000000, at any depth.

    Raises:
        pa.ArrowInvalid: a value does not fit, or a field's name differs by case only, for which Arrow would write NULL.
        pa.ArrowNotImplementedError: Arrow has no such cast.
    """
    _check_fields(column.type, wanted)
    if _has_time(column.type):
        column = pa.chunked_array([_timed(chunk, wanted).cast(wanted) for chunk in column.chunks], wanted)
    return column.cast(wanted)


def _check_fields(stored: pa.DataType, wanted: pa.DataType) -> None:
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        known = {item.name: item.type for item in wanted}
        folded = {name.lower(): name for name in known}
        for item in stored:
            if item.name in known:
                _check_fields(item.type, known[item.name])
            elif (other := folded.get(item.name.lower())) is not None:
                raise pa.ArrowInvalid(f"field {item.name} differs from the table's field {other} by case only")
    elif pa.types.is_map(stored) and pa.types.is_map(wanted):
        _check_fields(stored.item_type, wanted.item_type)
    elif pa.types.is_list(stored) and pa.types.is_list(wanted):
        _check_fields(stored.value_type, wanted.value_type)


def textual(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return `wanted` with text in place of each TIME that is stored as text: Arrow casts no text to a TIME, DuckDB does."""
    if pa.types.is_time(wanted) and (pa.types.is_string(stored) or pa.types.is_large_string(stored)):
        return stored
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        known = {item.name: item.type for item in stored}
        return pa.struct([item.with_type(textual(known.get(item.name, item.type), item.type)) for item in wanted])
    if pa.types.is_map(wanted) and pa.types.is_map(stored):
        return pa.map_(wanted.key_type, textual(stored.item_type, wanted.item_type))
    if pa.types.is_list(wanted) and pa.types.is_list(stored):
        return pa.list_(textual(stored.value_type, wanted.value_type))
    return wanted


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return bool(pa.types.is_time(kind.value_type if pa.types.is_dictionary(kind) else kind))
    return any(_has_time(kind.field(at).type) for at in range(kind.num_fields))


def _timed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the array with each TIME that is wanted as text converted; other values are unchanged."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _timed(array.dictionary_decode(), wanted)
    if not _has_time(kind):
        return array
    if pa.types.is_time(kind):
        late = pc.equal(array.cast(pa.int64()), _MIDNIGHT)
        return pc.if_else(late, "24:00:00.000000", array.cast(wanted)) if pa.types.is_string(wanted) else array
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        known = {item.name: item.type for item in wanted}
        members = [_timed(pc.struct_field(array, [at]), known.get(item.name, item.type)) for at, item in enumerate(kind)]
        return pa.StructArray.from_arrays(members, [item.name for item in kind], mask=array.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        pairs = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        inner = pc.list_flatten(pairs)
        keys, items = (pc.struct_field(inner, [at]) for at in (0, 1))
        return pa.MapArray.from_arrays(_bounds(pairs), keys, _timed(items, wanted.item_type), mask=array.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        items = _timed(pc.list_flatten(array), wanted.value_type)
        return pa.ListArray.from_arrays(_bounds(array), items, mask=array.is_null())
    return array


def _bounds(lists: pa.Array) -> pa.Array:
    """Return the start of each list in its flattened items, and the end of the last."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), pa.int32())
