"""Encode rows as Protobuf messages (protobuf.dev, "Encoding"), by a schema's descriptor.

A value is written exactly or not at all: a row with a value that the schema cannot represent is refused with the field's name.
`resources/decode/protobuf/` reads the values back.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type
from resources.destinations.kafka_sink.binary_encoding import decimal_bytes, plain, varint
from resources.destinations.kafka_sink.rejected_rows import Misfits

__all__ = ["ProtobufValues"]

_Encode = Callable[[Any], bytes]
_VARINT, _BITS64, _SIZED, _BITS32 = 0, 1, 2, 5
_BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _ENUM = 8, 9, 10, 11, 12, 14
# By type number in descriptor.proto: name, wire type, smallest and largest value, struct's code or how a varint is made.
_INTEGERS: dict[int, tuple[str, int, int, int, str]] = {
    3: ("int64", _VARINT, -(2**63), 2**63 - 1, ""), 4: ("uint64", _VARINT, 0, 2**64 - 1, ""),
    5: ("int32", _VARINT, -(2**31), 2**31 - 1, ""), 13: ("uint32", _VARINT, 0, 2**32 - 1, ""),
    17: ("sint32", _VARINT, -(2**31), 2**31 - 1, "zigzag"), 18: ("sint64", _VARINT, -(2**63), 2**63 - 1, "zigzag"),
    6: ("fixed64", _BITS64, 0, 2**64 - 1, "<Q"), 16: ("sfixed64", _BITS64, -(2**63), 2**63 - 1, "<q"),
    7: ("fixed32", _BITS32, 0, 2**32 - 1, "<I"), 15: ("sfixed32", _BITS32, -(2**31), 2**31 - 1, "<i"),
}  # fmt: skip
_WHOLE = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER")
_WELL = "google.protobuf."
_WRAPPERS = {
    f"{_WELL}{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_EPOCH, _MICRO = datetime(1970, 1, 1), timedelta(microseconds=1)
_FIRST, _LAST = (datetime.min - _EPOCH) // _MICRO, (datetime.max - _EPOCH) // _MICRO  # the years 1 to 9999
_DAY_US, _INFINITE_DAY, _INFINITE = 86_400_000_000, 2**31 - 1, 2**63 - 1


class _Misfit(Exception):
    """A value that its field cannot represent; the text has the reason, and the field inside of the column."""


class ProtobufValues:
    """Rows with these columns as messages of a type.

    Args:
        columns: all columns of the topic's rows; rows may lack some of them.
        message: the type. Fields without a column are never set.

    Raises:
        SchemaConflict: a column has no field, or one of another type.
    """

    def __init__(self, columns: Columns, message: Descriptor) -> None:
        self._fields = _fields(columns.items, message, "")

    def rows(self, block: pa.Table) -> list[bytes]:
        """Return one message for each row.

        Raises:
            Misfits: rows with a value that its field cannot represent.
        """
        at = {name.lower(): number for number, name in enumerate(block.column_names)}
        parts: list[list[bytes]] = []
        reasons: dict[int, str] = {}
        for name, encode in self._fields:
            if name in at:
                column = block.column(at[name])
                values = column.cast(plain(column.type)).to_pylist()
            else:
                values = [None] * block.num_rows
            found = []
            for row, value in enumerate(values):
                try:
                    found.append(encode(value))
                except _Misfit as error:
                    found.append(b"")
                    reasons.setdefault(row, str(error))
            parts.append(found)
        if reasons:
            raise Misfits(dict(sorted(reasons.items())))
        return [b"".join(row) for row in zip(*parts, strict=True)] if parts else [b""] * block.num_rows


def _fields(columns: tuple[tuple[str, Type], ...], message: Descriptor, above: str) -> list[tuple[str, _Encode]]:
    """Return the lower-case name of each column, and the function that encodes its field, also of NULL."""
    known: dict[str, FieldDescriptor] = {}
    for field in message.fields:
        if known.setdefault(field.name.lower(), field) is not field:
            raise _unfit(above or field.name, f"message {message.full_name}: {field.name} is duplicated in upper and lower case")
    listed = DescriptorProto()
    message.CopyToProto(listed)
    chosen = {item.name for item in listed.field if item.HasField("oneof_index") and not item.proto3_optional}
    made = []
    for name, kind in columns:
        where = f"{above}.{name}" if above else name
        target = known.pop(name.lower(), None)
        if target is None:
            raise _unfit(where, f"message {message.full_name} has no field of that name")
        if target.name in chosen:
            raise _unfit(where, f"its field in {message.full_name} is in a oneof, which is not supported")
        made.append((name.lower(), _field(kind, target, where)))
    lacking = next((field.name for field in known.values() if field.is_required), None)
    if lacking is not None:
        raise _unfit(above or lacking, f"message {message.full_name} requires {lacking}, and no column has that name")
    return made


def _unfit(where: str, why: str) -> SchemaConflict:
    return SchemaConflict(
        f"into.format protobuf: column {where}: the registered schema cannot be used: {why}",
        "register a version of it with a field for each column, or change the columns in select or columns",
    )


def _field(kind: Type, field: FieldDescriptor, where: str) -> _Encode:
    """Return the function that encodes a column's value as a field, with its tag."""
    if field.is_repeated:
        return _repeated(kind, field, where)
    wire, encode = _value(kind, field, where)
    tag, name = _tag(field, wire), where
    if field.has_presence and not field.is_required:
        return lambda value: b"" if value is None else tag + encode(value)

    def always(value: Any) -> bytes:
        if value is None:
            why = "is required" if field.is_required else "is not optional, so readers would see a zero or an empty text"
            raise _Misfit(f"{name}: NULL, but the field in the registered schema {why}")
        return tag + encode(value)

    return always


def _tag(field: FieldDescriptor, wire: int) -> bytes:
    return varint(field.number << 3 | wire)


def _repeated(kind: Type, field: FieldDescriptor, where: str) -> _Encode:
    """Return the function that encodes a list or a map. NULL is written as an empty one: Protobuf has no other."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        if not isinstance(kind, MapOf) or inner.fields[0].type != _STRING:
            raise _unfit(where, f"expected a field for {kind}, found a map<{_said(inner.fields[0])}, {_said(inner.fields[1])}>")
        return _map(kind, field, where)
    if not isinstance(kind, ListOf):
        raise _unfit(where, f"expected a field for {kind}, found a repeated one")
    wire, encode = _value(kind.item, field, where)
    if field.is_packed:
        tag = _tag(field, _SIZED)

        def packed(values: list[Any] | None) -> bytes:
            return tag + _sized(b"".join(_items(encode, values, where))) if values else b""

        return packed
    own = _tag(field, wire)
    return lambda values: b"".join(own + item for item in _items(encode, values or [], where))


def _items(encode: _Encode, values: list[Any], where: str) -> list[bytes]:
    found = []
    for at, value in enumerate(values):
        if value is None:
            raise _Misfit(f"{where}: item {at + 1} of the list is NULL, which Protobuf does not have")
        found.append(encode(value))
    return found


def _map(kind: MapOf, field: FieldDescriptor, where: str) -> _Encode:
    inner = field.message_type
    assert inner is not None
    wire, encode = _value(kind.item, inner.fields[1], where)
    tag, key, item = _tag(field, _SIZED), _tag(inner.fields[0], _SIZED), _tag(inner.fields[1], wire)

    def entries(pairs: list[tuple[str, Any]] | None) -> bytes:
        found = []
        for name, value in pairs or ():
            if value is None:
                raise _Misfit(f"{where}: the value of {name[:40]!r} in the map is NULL, which Protobuf does not have")
            found.append(tag + _sized(key + _text(name) + item + encode(value)))
        return b"".join(found)

    return entries


def _value(kind: Type, field: FieldDescriptor, where: str) -> tuple[int, _Encode]:
    """Return the wire type of a value that is not NULL, and the function that encodes it without its tag."""
    number, inner, name = field.type, field.message_type, str(kind)
    if number == _MESSAGE and inner is not None:
        encode = _message(kind, inner, where)
        if encode is not None:
            return _SIZED, lambda value: _sized(encode(value))
    elif isinstance(kind, (ListOf, MapOf, Struct)) or number == _GROUP:
        pass
    elif number in _INTEGERS and _WHOLE.fullmatch(name):
        return _INTEGERS[number][1], _integer(number, where)
    elif number == _BOOL and name == "BOOLEAN":
        return _VARINT, lambda value: b"\1" if value else b"\0"
    elif number == 2 and name == "FLOAT":
        return _BITS32, lambda value: struct.pack("<f", value)
    elif number == 1 and name in ("FLOAT", "DOUBLE"):
        return _BITS64, lambda value: struct.pack("<d", value)
    elif number == _BYTES and name == "BLOB":
        return _SIZED, _sized
    elif number == _ENUM and name == "VARCHAR":
        return _VARINT, _enum(field, where)
    elif number == _STRING:
        text = _TEXTS.get("DECIMAL" if name.startswith("DECIMAL") else name)
        if text is not None:
            return _SIZED, lambda value: _text(_named(text, value, where))
    raise _unfit(where, f"expected a field for {kind}, found {_said(field)}")


def _message(kind: Type, inner: Descriptor, where: str) -> _Encode | None:
    """Return the function that encodes the content of a message; None: the type does not fit."""
    name, fields = inner.full_name, inner.fields
    if name == f"{_WELL}Timestamp" and str(kind) in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return lambda value: _named(_timestamp, value, where)
    if name in _WRAPPERS:
        return _content([("", _field(kind, fields[0], where))])
    if name == "confluent.type.Decimal" and str(kind).startswith("DECIMAL"):
        return _decimal(*map(int, re.findall(r"\d+", str(kind))))
    if isinstance(kind, (ListOf, MapOf)) and len(fields) == 1 and fields[0].is_repeated:
        return _field(kind, fields[0], where)
    if isinstance(kind, Struct) and not name.startswith(_WELL):
        return _members(_fields(kind.fields, inner, where))
    return None


def _content(fields: list[tuple[str, _Encode]]) -> _Encode:
    return lambda value: b"".join(encode(value) for _, encode in fields)


def _members(fields: list[tuple[str, _Encode]]) -> _Encode:
    def content(value: dict[str, Any]) -> bytes:
        held = {name.lower(): item for name, item in value.items()}
        return b"".join(encode(held.get(name)) for name, encode in fields)

    return content


def _named(make: Callable[[Any], Any], value: Any, where: str) -> Any:
    try:
        return make(value)
    except _Misfit as error:
        raise _Misfit(f"{where}: {error}") from None


def _integer(number: int, where: str) -> _Encode:
    said, _, least, most, code = _INTEGERS[number]

    def encode(value: Any) -> bytes:
        found = int(value)
        if not least <= found <= most:
            raise _Misfit(f"{where}: {found} is not {said}, the type of the field in the registered schema")
        if code == "zigzag":
            return varint((found << 1) ^ (found >> 63))
        return struct.pack(code, found) if code else varint(found % 2**64)

    return encode


def _enum(field: FieldDescriptor, where: str) -> _Encode:
    kind = field.enum_type
    assert kind is not None
    name, numbers = kind.full_name, {item.name: varint(item.number % 2**64) for item in kind.values}

    def encode(value: str) -> bytes:
        if value not in numbers:
            raise _Misfit(f"{where}: {value[:40]!r} is not a value of the enum {name}")
        return numbers[value]

    return encode


def _sized(value: bytes) -> bytes:
    return varint(len(value)) + value


def _text(value: Any) -> bytes:
    return _sized(value if isinstance(value, bytes) else str(value).encode())


def _timestamp(value: int) -> bytes:
    """Encode microseconds as google.protobuf.Timestamp, which has the years 1 to 9999 only."""
    if not _FIRST <= value <= _LAST:
        raise _Misfit("the time is not in the years 1 to 9999, which google.protobuf.Timestamp has")
    seconds, micros = divmod(value, 1_000_000)
    return b"\x08" + varint(seconds % 2**64) + (b"\x10" + varint(micros * 1000) if micros else b"")


def _decimal(precision: int, scale: int) -> _Encode:
    convert = decimal_bytes(scale)
    rest = b"\x10" + varint(precision) + b"\x18" + varint(scale)
    return lambda value: b"\x0a" + _sized(convert(value)) + rest


def _day(value: int) -> str:
    if abs(value) == _INFINITE_DAY:
        return "infinity" if value > 0 else "-infinity"
    try:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        raise _Misfit("the date is not in the years 1 to 9999") from None


def _moment(value: int) -> str:
    if abs(value) == _INFINITE:
        return "infinity" if value > 0 else "-infinity"
    if not _FIRST <= value <= _LAST:
        raise _Misfit("the timestamp is not in the years 1 to 9999")
    return (_EPOCH + value * _MICRO).isoformat(timespec="microseconds")


def _time(value: int) -> str:
    return "24:00:00" if value == _DAY_US else (_EPOCH + value * _MICRO).time().isoformat()


def _digits(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


#: Column types as text: as in documents of JSON (resources/destinations/json_documents.py).
_TEXTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("VARCHAR", "JSON", "UUID"), lambda value: value), **dict.fromkeys(("DECIMAL", "HUGEINT"), _digits),
    "DATE": _day, "TIME": _time, "TIMESTAMP": _moment,
    "TIMESTAMP WITH TIME ZONE": lambda value: _moment(value) + ("" if abs(value) == _INFINITE else "Z"),
}  # fmt: skip


def _said(field: FieldDescriptor) -> str:
    """Return a field's type for errors."""
    if field.type in _INTEGERS:
        return _INTEGERS[field.type][0]
    if field.message_type is not None:
        return field.message_type.full_name
    return {1: "double", 2: "float", _BOOL: "bool", _STRING: "string", _BYTES: "bytes", _ENUM: "an enum"}.get(
        field.type, "a group"
    )
