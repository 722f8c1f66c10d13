"""Encode rows as Avro (1.12, "Binary Encoding"), with a schema that is derived from the columns.

Every field may be null and has null as its default. So a schema with more columns can be read with that of fewer, and the
reverse: a registry accepts both as compatible. `resources/decode/avro/` reads the values back.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type
from resources.destinations.kafka_sink.binary_encoding import decimal_bytes, plain, varint
from resources.destinations.kafka_sink.rejected_rows import Misfits

__all__ = ["AvroValues"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DAY_US = 86_400_000_000
_NULL, _SET, _END = b"\0", b"\2", b"\0"  # branches of the union of null and a type; the end of an array's or map's blocks
_Encode = Callable[[Any], bytes]


class _Misfit(Exception):
    """A value that Avro does not have; the text is the reason."""


class AvroValues:
    """Rows with these columns as Avro records.

    Args:
        columns: all columns of the topic's rows; rows may lack some of them.

    Attributes:
        schema: the schema as JSON.

    Raises:
        SchemaConflict: a name is not one of Avro's, or a type has no counterpart.
    """

    def __init__(self, columns: Columns) -> None:
        fields = tuple((name, *_of(kind, name, "Row")) for name, kind in columns)
        self._fields = [(name.lower(), encode) for name, _, encode in fields]
        self.schema = json.dumps(_record("Row", "", [(name, kind) for name, kind, _ in fields]))

    def rows(self, block: pa.Table) -> list[bytes]:
        """Return one record for each row.

        Raises:
            Misfits: rows with an infinite time, or the time 24:00:00.
        """
        at = {name.lower(): number for number, name in enumerate(block.column_names)}
        parts: list[list[bytes]] = []
        reasons: dict[int, str] = {}
        for name, encode in self._fields:
            if name not in at:
                parts.append([_NULL] * block.num_rows)
                continue
            column = block.column(at[name])
            values = column.cast(plain(column.type)).to_pylist()
            try:
                parts.append([_NULL if value is None else _SET + encode(value) for value in values])
            except _Misfit:
                parts.append([_or_reason(encode, value, row, name, reasons) for row, value in enumerate(values)])
        if reasons:
            raise Misfits(dict(sorted(reasons.items())))
        return [b"".join(row) for row in zip(*parts, strict=True)] if parts else [b""] * block.num_rows


def _or_reason(encode: _Encode, value: Any, row: int, name: str, reasons: dict[int, str]) -> bytes:
    try:
        return _NULL if value is None else _SET + encode(value)
    except _Misfit as error:
        reasons.setdefault(row, f"{name}: {error}")
        return b""


def _of(kind: Type, name: str, space: str) -> tuple[Any, _Encode]:
    """Return the schema of a type, and the function that encodes a value that is not null.

    Args:
        kind: the type.
        name: of the column or field; that of a record inside of it.
        space: names of the fields around it; with it, a record's name is unique.
    """
    if not _NAME.fullmatch(name):
        raise SchemaConflict(
            f"into.format avro: column {name!r}: expected a name of letters, digits and _, not first a digit",
            "rename it in select, or set into.format: json",
        )
    if isinstance(kind, ListOf):
        item, encode = _of(kind.item, name, space)
        return {"type": "array", "items": ["null", item]}, _array(encode)
    if isinstance(kind, MapOf):
        item, encode = _of(kind.item, name, space)
        return {"type": "map", "values": ["null", item]}, _map(encode)
    if isinstance(kind, Struct):
        fields = [(inner, *_of(item, inner, f"{space}.{name}")) for inner, item in kind.fields]
        schema = _record(name, space, [(inner, item) for inner, item, _ in fields])
        return schema, _members([(inner.lower(), encode) for inner, _, encode in fields])
    return _scalar(str(kind), name)


def _record(name: str, space: str, fields: list[tuple[str, Any]]) -> dict[str, Any]:
    listed = [{"name": inner, "type": ["null", kind], "default": None} for inner, kind in fields]
    return {"type": "record", "name": name, **({"namespace": space} if space else {}), "fields": listed}


def _scalar(kind: str, name: str) -> tuple[Any, _Encode]:
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    if decimal or kind in _WHOLE:
        precision, scale = (int(decimal[1]), int(decimal[2])) if decimal else (_WHOLE[kind], 0)
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}, _decimal(scale)
    if kind not in _SCALARS:
        raise SchemaConflict(
            f"into.format avro: column {name}: {kind} has no Avro type", "declare another type in columns, or leave it out"
        )
    return _SCALARS[kind]


def _long(value: Any) -> bytes:
    """Encode an integer of 64 bits: zigzag, then 7 bits a byte."""
    number = int(value)
    return varint((number << 1) ^ (number >> 63))


def _finite(infinite: int) -> _Encode:
    """Return the function that encodes a date or time. A reader would take DuckDB's infinite ones for far years."""

    def encode(value: Any) -> bytes:
        if abs(int(value)) >= infinite:
            raise _Misfit("an infinite time, which Avro does not have")
        return _long(value)

    return encode


def _time_of_day(value: Any) -> bytes:
    if int(value) >= _DAY_US:
        raise _Misfit("the time 24:00:00, which Avro does not have")
    return _long(value)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: Any) -> bytes:
    return _bytes(value if isinstance(value, bytes) else value.encode())


def _decimal(scale: int) -> _Encode:
    encode = decimal_bytes(scale)
    return lambda value: _bytes(encode(value))


def _array(encode: _Encode) -> _Encode:
    def items(values: list[Any]) -> bytes:
        found = b"".join(_NULL if value is None else _SET + encode(value) for value in values)
        return _long(len(values)) + found + _END if values else _END

    return items


def _map(encode: _Encode) -> _Encode:
    def entries(pairs: list[tuple[str, Any]]) -> bytes:
        found = b"".join(_text(key) + (_NULL if value is None else _SET + encode(value)) for key, value in pairs)
        return _long(len(pairs)) + found + _END if pairs else _END

    return entries


def _members(fields: list[tuple[str, _Encode]]) -> _Encode:
    def record(value: dict[str, Any]) -> bytes:
        held = {name.lower(): item for name, item in value.items()}
        found = ((held.get(name), encode) for name, encode in fields)
        return b"".join(_NULL if item is None else _SET + encode(item) for item, encode in found)

    return record


def _logical(kind: str, logical: str) -> dict[str, str]:
    return {"type": kind, "logicalType": logical}


_SCALARS: dict[str, tuple[Any, _Encode]] = {
    "BOOLEAN": ("boolean", lambda value: b"\1" if value else b"\0"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), ("int", _long)),
    **dict.fromkeys(("UINTEGER", "BIGINT"), ("long", _long)),
    "FLOAT": ("float", lambda value: struct.pack("<f", value)), "DOUBLE": ("double", lambda value: struct.pack("<d", value)),
    "VARCHAR": ("string", _text), "JSON": ("string", _text), "UUID": (_logical("string", "uuid"), _text),
    "BLOB": ("bytes", _bytes), "DATE": (_logical("int", "date"), _finite(2**31 - 1)),
    "TIME": (_logical("long", "time-micros"), _time_of_day),
    "TIMESTAMP": (_logical("long", "local-timestamp-micros"), _finite(2**63 - 1)),
    "TIMESTAMP WITH TIME ZONE": (_logical("long", "timestamp-micros"), _finite(2**63 - 1)),
}  # fmt: skip
#: Integers beyond 64 bits, and their decimal digits.
_WHOLE = {"UBIGINT": 20, "HUGEINT": 39, "UHUGEINT": 39}
