"""Decode Protobuf messages to columns with compiled code (resources/native/protobuf.c). Other code decodes unusual ones."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from resources.decode.native_columns import Decoder, planned
from resources.decode.protobuf import message_plan as steps
from resources.decode.protobuf.message_plan import Field, Message, Plan
from resources.native import library

__all__ = ["NativeProtobuf", "native_protobuf", "written"]


def native_protobuf(plan: Plan) -> NativeProtobuf | None:
    """Create the decoder of a message type; None without the compiled library."""
    found = library()
    return NativeProtobuf(found, plan) if found is not None else None


class NativeProtobuf(Decoder):
    """Decoder of blocks; not thread-safe.

    Args:
        found: the compiled library.
        plan: of the message type.
    """

    name = "protobuf"

    def __init__(self, found: ctypes.CDLL, plan: Plan) -> None:
        (data, texts), (columns, ranges, names) = written(plan), planned(plan.carried)
        decoder = found.kp_protobuf_new(
            data.ctypes.data, len(data), len(plan.messages), len(plan.enums), texts, len(texts), columns.ctypes.data,
            ranges.ctypes.data, names,
        )  # fmt: skip
        super().__init__(found, plan.carried, decoder)


def written(plan: Plan) -> tuple[np.ndarray[Any, Any], bytes]:
    """Serialize messages and enums for `kp_protobuf_new`; return the numbers, and all texts concatenated."""
    texts = bytearray()
    data: list[int] = []
    for message in plan.messages:
        bits = len(message.fields) + message.oneofs
        data += [len(message.fields), bits]
        for place, item in sorted(enumerate(message.fields), key=lambda pair: pair[1].number):
            data += _field(message, item, place, texts)
    for names in plan.enums:
        data.append(len(names))
        for number, name in sorted(names.items()):
            data += [number, *_text(name.encode(), texts)]
    return np.array(data, np.int64), bytes(texts)


def _text(text: bytes, texts: bytearray) -> tuple[int, int]:
    begin = len(texts)
    texts += text
    return begin, len(texts)


def _field(message: Message, item: Field, place: int, texts: bytearray) -> list[int]:
    flags = item.repeated | item.required << 1 | item.filled << 2
    group = len(message.fields) + item.group if item.group >= 0 else -1
    fixed = begin = length = 0
    if isinstance(item.default, str | bytes):
        raw = item.default.encode() if isinstance(item.default, str) else item.default
        begin, end = _text(raw, texts)
        length = end - begin
    elif item.filled:
        fixed = _bits(item)
    return [item.number, item.op, item.wire, place, item.inner, flags, group, fixed, begin, length]


def _bits(item: Field) -> int:
    """Return the bits of a default of fixed width."""
    if isinstance(item.default, float):
        code = "<f" if item.op == steps.FOUR else "<d"
        return int.from_bytes(struct.pack(code, item.default).ljust(8, b"\0"), "little", signed=True)
    return int.from_bytes((int(item.default) & (2**64 - 1)).to_bytes(8, "little"), "little", signed=True)
