"""Decode Protobuf messages one by one: slow and exact, with reason and field of a reject; and convert parts of them to JSON.

Stricter than Protobuf's parsers. Values that they truncate or ignore are rejects here:

- a number outside of its type's range,
- a field with another wire type than the schema's,
- text that is not UTF-8.

Fields that the schema does not have are ignored, as in all parsers.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from resources.decode.json.rows import Reject
from resources.decode.protobuf import message_plan as steps
from resources.decode.protobuf.message_plan import Field, Message, Plan
from resources.decode.schema_decoder import Digits, Leaves, dumped

__all__ = ["Reader"]

_DEEPEST = 100
_EPOCH = datetime(1970, 1, 1)
_SECONDS = (-62_135_596_800, 253_402_300_799)  # the years 1 to 9999
_LONGEST = 315_576_000_000  # seconds of a Duration: duration.proto
_NANO = 10**9
_INTEGERS = {
    steps.INT32: ("an int32", -(2**31), 2**31 - 1), steps.UINT32: ("a uint32", 0, 2**32 - 1),
    steps.SINT32: ("a sint32", -(2**31), 2**31 - 1), steps.INT64: ("an int64", -(2**63), 2**63 - 1),
    steps.SINT64: ("a sint64", -(2**63), 2**63 - 1), steps.ENUM: ("an enum's number", -(2**31), 2**31 - 1),
    steps.FLAG: ("a bool", 0, 1),
}  # fmt: skip
_SIGNED = (steps.INT32, steps.INT64, steps.ENUM, steps.FLAG)
_CODES = {"DOUBLE": "<d", "FLOAT": "<f", "BIGINT": "<q", "UBIGINT": "<Q", "INTEGER": "<i", "UINTEGER": "<I"}
_WORDS = {0: "a varint", 1: "8 bytes", 2: "a length and bytes", 3: "a group", 5: "4 bytes"}
_ELSE = "not written with this schema"


class Reader:
    """Decoder of messages of one type.

    Args:
        plan: of the type.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def row(self, data: bytes) -> dict[str, Any]:
        """Return the values of the plan's columns before conversion.

        Raises:
            Reject: the bytes are not a message of the type; names the field.
        """
        return self._message(self._plan.messages[0], data, "", 0, False)

    def leaves(self) -> Leaves:
        """Return for each part that is read as bytes the function that converts it to JSON text."""
        found: Leaves = {}

        def look(message: Message, path: tuple[str | None, ...]) -> None:
            for item in message.fields:
                below = (*path, item.name, None) if item.repeated and item.op != steps.MAP else (*path, item.name)
                if item.op in (steps.SPAN, steps.MAP):
                    found[below] = partial(self._text, item)
                elif item.op == steps.MESSAGE:
                    look(self._plan.messages[item.inner], below)

        look(self._plan.messages[0], ())
        return found

    def _text(self, item: Field, part: bytes) -> str:
        message = self._plan.messages[item.inner]
        if item.op == steps.SPAN:
            return dumped(self._json(message, part, "", 0))
        scan, parts = _Scan(part), []
        while scan.at < len(part):
            parts.append(scan.sized(""))
        return dumped(self._map(message, parts, "", 0))

    def _message(self, kind: Message, data: bytes, path: str, depth: int, as_json: bool) -> dict[str, Any]:
        if depth > _DEEPEST:
            raise _fail(path, "nested too deeply")
        found: dict[int, list[Any]] = {}
        for item, value in self._values(kind, data, path):
            if item.group >= 0:
                for other in kind.fields:
                    if other.group == item.group and other is not item:
                        found.pop(other.number, None)
            found.setdefault(item.number, []).append(value)
        members = {}
        for item in kind.fields:
            there = f"{path}.{item.name}" if path else item.name
            members[item.name] = self._member(item, found.get(item.number, []), there, depth, as_json)
            if as_json and members[item.name] is None and item.number not in found:
                del members[item.name]
        return members

    def _values(self, kind: Message, data: bytes, path: str) -> Iterator[tuple[Field, Any]]:
        """Yield each value of each known field: a scalar, or the bytes of a message or map entry."""
        scan = _Scan(data)
        while scan.at < len(data):
            number, wire = scan.tag(path)
            item = kind.known.get(number)
            if item is None:
                scan.skip(number, wire, path, 0)
                continue
            there = f"{path}.{item.name}" if path else item.name
            packed = wire == steps.SIZED and item.repeated and item.wire not in (steps.SIZED, steps.BEGIN)
            if packed:
                part = _Scan(scan.sized(there))
                while part.at < len(part.data):
                    yield item, self._scalar(item, part, there)
            elif wire != item.wire:
                words = _WORDS.get(wire, f"wire type {wire}")
                raise _fail(there, f"expected {item.said}, found {words}: {_ELSE}")
            elif wire == steps.BEGIN:
                yield item, scan.group(number, there)
            elif item.op >= steps.MESSAGE:
                yield item, scan.sized(there)
            else:
                yield item, self._scalar(item, scan, there)

    def _scalar(self, item: Field, scan: _Scan, path: str) -> Any:
        if item.op in (steps.FOUR, steps.EIGHT):
            return struct.unpack(_CODES[str(item.kind)], scan.take(4 if item.op == steps.FOUR else 8, path))[0]
        if item.op == steps.BYTES:
            return scan.sized(path)
        if item.op == steps.STRING:
            raw = scan.sized(path)
            try:
                return raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise _fail(path, f"not UTF-8 at byte {error.start}") from None
        number = scan.varint(path)
        if item.op == steps.UINT64:
            return number
        if item.op in (steps.SINT32, steps.SINT64):
            number = (number >> 1) ^ -(number & 1)
        elif item.op in _SIGNED and number >= 2**63:
            number -= 2**64
        said, least, most = _INTEGERS[item.op]
        if not least <= number <= most:
            raise _fail(path, f"{number} is not {said}: {_ELSE}")
        if item.op == steps.ENUM:
            return self._plan.enums[item.inner].get(number, str(number))
        return bool(number) if item.op == steps.FLAG else number

    def _member(self, item: Field, found: list[Any], path: str, depth: int, as_json: bool) -> Any:
        """Return the value of a field from all of its occurrences."""
        if item.op == steps.MAP:
            if as_json:
                return self._map(self._plan.messages[item.inner], found, path, depth)
            return b"".join(_length(len(part)) + part for part in found)
        if item.repeated:
            return [self._value(item, value, f"{path}[{at}]", depth, as_json) for at, value in enumerate(found)]
        if not found:
            if item.required:
                raise _fail(path, f"missing, and the schema requires it: {_ELSE}")
            return _as_json(item.default, item) if as_json and item.filled else item.default
        if item.op < steps.MESSAGE:
            return _as_json(found[-1], item) if as_json else found[-1]
        if len(found) > 1:  # occurrences of a message are merged, which is what reading their concatenation does
            for part in found:
                _Scan(part).whole(path)
        return self._value(item, b"".join(found), path, depth, as_json)

    def _value(self, item: Field, value: Any, path: str, depth: int, as_json: bool) -> Any:
        if item.op < steps.MESSAGE:
            return _as_json(value, item) if as_json else value
        kind = self._plan.messages[item.inner]
        if item.op == steps.SPAN:
            return self._json(kind, value, path, depth + 1) if as_json else value
        if item.op == steps.MESSAGE:
            return self._json(kind, value, path, depth + 1) if as_json else self._message(kind, value, path, depth + 1, False)
        parts = self._message(kind, value, path, depth + 1, False)
        if item.op == steps.WRAPPER:
            return _as_json(parts["value"], kind.fields[0]) if as_json else parts["value"]
        return _moment(item, parts["seconds"], parts["nanos"], path, as_json)

    def _json(self, kind: Message, data: bytes, path: str, depth: int) -> Any:
        """Convert a message to JSON."""
        if depth > _DEEPEST:
            raise _fail(path, "nested too deeply")
        name = kind.name.removeprefix("google.protobuf.")
        if name == kind.name or name not in ("Struct", "Value", "ListValue"):
            return self._message(kind, data, path, depth, True)
        members = self._message(kind, data, path, depth, True)
        if name == "Struct":
            return members.get("fields", {})
        if name == "ListValue":
            return members.get("values", [])
        number = members.get("number_value")
        if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
            return int(number)
        return next((value for key, value in members.items() if key != "null_value"), None)

    def _map(self, kind: Message, parts: list[bytes], path: str, depth: int) -> dict[str, Any]:
        """Convert entries to an object; the last entry of a key counts."""
        found: dict[str, Any] = {}
        for part in parts:
            if depth >= _DEEPEST:
                raise _fail(path, "nested too deeply")
            entry: dict[int, list[Any]] = {1: [], 2: []}
            for item, value in self._values(kind, part, path):
                entry[item.number].append(value)
            key, value = kind.known[1], kind.known[2]
            name = entry[1][-1] if entry[1] else key.default
            name = str(name).lower() if isinstance(name, bool) else str(name)
            there = f"{path}[{name[:40]!r}]"
            if value.op >= steps.MESSAGE and not entry[2]:  # an absent message is an empty message
                found[name] = self._value(value, b"", there, depth + 1, True)
            else:
                found[name] = self._member(value, entry[2], there, depth + 1, True)
        return found


def _moment(item: Field, seconds: int, nanos: int, path: str, as_json: bool) -> Any:
    if item.op == steps.TIMESTAMP:
        if not _SECONDS[0] <= seconds <= _SECONDS[1] or not 0 <= nanos < _NANO:
            raise _fail(path, f"{seconds} s and {nanos} ns: not a Timestamp (years 1 to 9999, nanos 0 to 999999999)")
        if not as_json:
            return seconds * 1_000_000 + nanos // 1000
        text = f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}.{nanos:09}"
        return (text[:-10] if not nanos else text[:-6] if not nanos % 10**6 else text[:-3] if not nanos % 1000 else text) + "Z"
    if abs(seconds) > _LONGEST or abs(nanos) >= _NANO or seconds * nanos < 0:
        raise _fail(path, f"{seconds} s and {nanos} ns: not a Duration (at most 10000 years, equal signs)")
    value = Decimal(seconds * _NANO + nanos).scaleb(-9)
    return Digits(f"{value:f}") if as_json else value


def _as_json(value: Any, item: Field) -> Any:
    """Convert a scalar to JSON: bytes to base64, NaN and infinities to text, as Protobuf's JSON; 64-bit numbers stay numbers."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return Digits(str(np.float32(value))) if item.op == steps.FOUR else value


def _fail(path: str, why: str) -> Reject:
    return Reject(f"{path or 'the record'}: {why}")


def _length(size: int) -> bytes:
    found = bytearray()
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*found, size))


class _Scan:
    """Reader of Protobuf's wire format."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int, path: str) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise _fail(path, f"the message ends inside this value ({len(self.data)} bytes): cut off, or {_ELSE}")
        found = self.data[self.at : end]
        self.at = end
        return found

    def varint(self, path: str) -> int:
        value = shift = 0
        while True:
            byte = self.take(1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise _fail(path, "a number of more than 64 bits")
        if value >= 2**64:
            raise _fail(path, "a number of more than 64 bits")
        return value

    def sized(self, path: str) -> bytes:
        return self.take(self.varint(path), path)

    def tag(self, path: str) -> tuple[int, int]:
        begin = self.at
        value = self.varint(path)
        number, wire = value >> 3, value & 7
        if value >= 2**32 or self.at - begin > 5 or not number or wire > steps.BITS32:
            raise _fail(path, f"byte {begin} does not begin a field: {_ELSE}")
        return number, wire

    def skip(self, number: int, wire: int, path: str, depth: int) -> None:
        if wire == steps.VARINT:
            self.varint(path)
        elif wire in (steps.BITS64, steps.BITS32):
            self.take(8 if wire == steps.BITS64 else 4, path)
        elif wire == steps.SIZED:
            self.sized(path)
        elif wire == steps.END:
            raise _fail(path, f"unexpected end of group {number}: {_ELSE}")
        else:
            if depth >= _DEEPEST:
                raise _fail(path, "nested too deeply")
            while True:
                inner, kind = self.tag(path)
                if kind == steps.END and inner == number:
                    return
                self.skip(inner, kind, path, depth + 1)

    def group(self, number: int, path: str) -> bytes:
        """Return the bytes up to the end of the open group."""
        begin = self.at
        while True:
            end = self.at
            inner, wire = self.tag(path)
            if wire == steps.END and inner == number:
                return self.data[begin:end]
            self.skip(inner, wire, path, 0)

    def whole(self, path: str) -> None:
        """Check that the bytes are a sequence of fields."""
        while self.at < len(self.data):
            self.skip(*self.tag(path), path, 0)
