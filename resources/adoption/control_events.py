"""Read events of the control topic of Iceberg's Kafka Connect sink: which type, and of which connector.

The format is that of Iceberg's `AvroUtil.encode`: a magic number, the length of the schema, the schema, and the event in
Avro. Only its first fields are decoded: id (16 bytes), type (int), timestamp (long) and group (string). They are the same in
all versions, the sink's first home (Tabular) included.
"""

from __future__ import annotations

import struct

__all__ = ["DATA_WRITTEN", "InvalidEvent", "event"]

DATA_WRITTEN = 1
"""Type of an event with files that a task has written: `PayloadType.DATA_WRITTEN`."""

_MAGIC = b"\xc2\x01"
_LENGTH = struct.Struct(">H")
_ID = 16


class InvalidEvent(ValueError):
    """The bytes are not an event."""


def event(data: bytes) -> tuple[int, str]:
    """Return type and connect group of an event.

    Raises:
        InvalidEvent: it is not one.
    """
    at = len(_MAGIC) + _LENGTH.size
    if not data.startswith(_MAGIC) or len(data) < at:
        raise InvalidEvent("not an event of Iceberg's sink")
    (schema,) = _LENGTH.unpack_from(data, len(_MAGIC))
    kind, at = _number(data, at + schema + _ID)
    _, at = _number(data, at)
    size, at = _number(data, at)
    group = data[at : at + size]
    if not 0 <= size <= len(data) or len(group) != size:
        raise InvalidEvent("truncated event")
    return kind, group.decode("utf-8", "replace")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decode Avro's variable-length zigzag number at a position; return it and the next position."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            break
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise InvalidEvent("truncated event")
