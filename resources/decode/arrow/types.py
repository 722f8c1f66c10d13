"""Map a program's Arrow types to column types, and convert its arrays to the types of staged files without loss."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import BLOB, JSON, NOTHING, VARCHAR, ListOf, Scalar, Struct, Type
from kpipe.schema.inference import nameable
from resources.decode.json.rows import Reject, load
from resources.duckdb_engine.arrow_types import staged_type

__all__ = ["Untyped", "column_type", "plain", "plain_bytes"]

_NAMES = {
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float16(): "FLOAT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE", pa.date64(): "DATE",
}  # fmt: skip
_MOST_DIGITS = 38
# DuckDB 2.0's first DATE (5877642-06-25 BC) and TIMESTAMP (290309-12-22 BC), in days and µs. A cast of an earlier TIMESTAMP to
# text stops its whole database. Its infinite times are Arrow's largest integers, and those with the other sign.
_FIRST_DAY, _FIRST_INSTANT = -(2**31) + 2, -9_223_372_022_400_000_000
Rows = np.ndarray[Any, Any]


class Untyped(Exception):
    """An Arrow type without a column type; the text names the type."""


def column_type(kind: pa.DataType) -> Type:
    """Return the column type that stores all values of an Arrow type; `NOTHING` for the type of nulls.

    Raises:
        Untyped: there is none.
    """
    if pa.types.is_null(kind):
        return NOTHING
    if isinstance(kind, pa.BaseExtensionType):
        found = {"arrow.uuid": Scalar("UUID"), "arrow.json": JSON}.get(kind.extension_name)
        if found is None:
            raise Untyped(str(kind))
        return found
    if pa.types.is_dictionary(kind):
        if pa.types.is_nested(kind.value_type) or pa.types.is_dictionary(kind.value_type):
            raise Untyped(str(kind))
        return column_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return ListOf(column_type(kind.value_type))
    if pa.types.is_struct(kind):
        return _struct(kind)
    return _scalar(kind)


def _struct(kind: pa.StructType) -> Type:
    found = tuple((member.name, column_type(member.type)) for member in kind)
    if not found:
        raise Untyped(f"{kind}, which has no members")
    if not all(nameable(name) for name, _ in found):
        raise Untyped("a struct with a member name that is empty, beyond 255 characters, or has NUL")
    if len({name.lower() for name, _ in found}) < len(found):
        raise Untyped(f"{kind}, with a duplicate name (upper and lower case are the same)")
    return Struct(found)


def _scalar(kind: pa.DataType) -> Scalar:
    if kind in _NAMES:
        return Scalar(_NAMES[kind])
    if _is_text(kind):
        return VARCHAR
    if _is_bytes(kind):
        return BLOB
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MOST_DIGITS:
        return Scalar(f"DECIMAL({kind.precision},{kind.scale})")
    if pa.types.is_time(kind):
        return Scalar("TIME")
    if pa.types.is_timestamp(kind):
        return Scalar("TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE")
    raise Untyped(str(kind))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    of_any_length = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return of_any_length or pa.types.is_fixed_size_binary(kind)


def plain_bytes(array: pa.Array) -> int:
    """Return about how many bytes a valid array has after `plain`: a dictionary or a view can name one value many times."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return 3 * plain_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        if not _sized(kind.value_type):
            return len(array) * _width(kind.value_type)
        lengths = _lengths(array.dictionary)
        used = array.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(lengths[used].sum()) + 4 * len(array)
    if _sized(kind):
        return int(_lengths(array).sum()) + 4 * len(array)
    if pa.types.is_struct(kind):
        return len(array) + sum(map(plain_bytes, array.flatten()))
    if pa.types.is_nested(kind):
        return 4 * len(array) + plain_bytes(pc.list_flatten(array))
    return len(array) * _width(kind)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of one value of fixed width; a null becomes an empty text."""
    return 4 if pa.types.is_null(kind) else max(1, kind.bit_width // 8)


def _sized(kind: pa.DataType) -> bool:
    return (_is_text(kind) or _is_bytes(kind)) and not pa.types.is_fixed_size_binary(kind)


def _lengths(array: pa.Array) -> Rows:
    """Return the lengths of texts or bytes; 0 for null."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):  # Arrow has no function for these
        end = 4 * (array.offset + len(array))  # a view is 16 bytes, the first four of which are its length
        views = np.frombuffer(array.buffers()[1] or b"", np.int32, end if len(array) else 0)[4 * array.offset :: 4]
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), views, 0).astype(np.int64)
    return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def plain(array: pa.Array, kind: Type, rows: Rows, path: str, reasons: dict[int, str]) -> pa.Array:
    """Convert a valid array to the staged type of its column type; values that it cannot have become NULL, with a reason.

    Args:
        array: the array.
        kind: `column_type` of it.
        rows: the row of each value.
        path: of the column or member, for reasons.
        reasons: receives reasons by row.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        return _extension(array, kind, rows, path, reasons)
    if pa.types.is_dictionary(array.type):
        array = _decoded(array)
    if isinstance(kind, Struct):
        members = {array.type.field(at).name: member for at, member in enumerate(array.flatten())}
        parts = [plain(members[name], item, rows, f"{path}.{name}", reasons) for name, item in kind.fields]
        return pa.StructArray.from_arrays(parts, fields=list(staged_type(kind)), mask=array.is_null())
    if isinstance(kind, ListOf):
        lengths = np.where(array.is_valid(), pc.fill_null(pc.list_value_length(array), 0), 0).astype(np.int64)
        items = plain(pc.list_flatten(array), kind.item, np.repeat(rows, lengths), f"{path}[]", reasons)
        offsets = pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, type=staged_type(kind), mask=array.is_null())
    target = staged_type(kind)
    if pa.types.is_temporal(target):
        return _time(array, kind, rows, path, reasons)
    return array if array.type == target else array.cast(target)


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Decode a dictionary, also one of views, which Arrow cannot look up."""
    values = array.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        plain_type = pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary()
        return pa.DictionaryArray.from_arrays(array.indices, values.cast(plain_type)).dictionary_decode()
    return array.dictionary_decode()


def _time(array: pa.Array, kind: Type, rows: Rows, path: str, reasons: dict[int, str]) -> pa.Array:
    """Convert dates and times; values that change, or that DuckDB does not have, become NULL, with a reason."""
    target = staged_type(kind)
    units = pa.int32() if array.type.bit_width == 32 else pa.int64()
    numbers, converted = array.view(units), array
    lost = pa.repeat(False, len(array))
    if array.type != target:
        converted = array.cast(target, safe=False)
        lost = pc.fill_null(pc.not_equal(converted.cast(array.type, safe=False).view(units), numbers), False)
    lost = pc.or_(lost, _before_first(converted, target))
    places = np.flatnonzero(lost)
    if not len(places):
        return converted
    unit, start = getattr(array.type, "unit", ""), "00:00" if kind == Scalar("TIME") else "1970"
    unit = unit or ("days" if units == pa.int32() else "ms")
    expected = f"{kind} in days of 32 bits" if kind == Scalar("DATE") else f"{kind} in whole microseconds of 64 bits"
    for at in places.tolist():
        reasons.setdefault(int(rows[at]), f"{path}: expected {expected}, found {numbers[at].as_py()} {unit} since {start}")
    return pc.if_else(lost, pa.scalar(None, target), converted)


def _before_first(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return by value whether it is earlier than the first one of DuckDB, and not its infinite one."""
    if pa.types.is_time(target):
        return pa.repeat(False, len(array))
    units, first = (pa.int32(), _FIRST_DAY) if pa.types.is_date(target) else (pa.int64(), _FIRST_INSTANT)
    numbers, infinite = array.view(units), -(2 ** (units.bit_width - 1)) + 1
    return pc.fill_null(pc.and_(pc.less(numbers, first), pc.not_equal(numbers, infinite)), False)


def _extension(array: pa.Array, kind: Type, rows: Rows, path: str, reasons: dict[int, str]) -> pa.Array:
    """Convert UUIDs to text, and check JSON."""
    if kind != JSON:
        values = array.storage.to_pylist()
        return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in values], pa.string())
    texts = array.storage.cast(pa.string())
    for at, text in enumerate(texts.to_pylist()):
        try:
            if text is not None and set(load(f'{{"":{text}}}'.encode())) != {""}:
                raise Reject("not one JSON value")
        except Reject as error:
            reasons.setdefault(int(rows[at]), f"{path}: expected JSON: {error}")
    return pc.if_else(pc.equal(pc.utf8_trim_whitespace(texts), "null"), None, texts)
