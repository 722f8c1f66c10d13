"""Parts that Avro and Protobuf share: integers of variable length, bytes of decimals, and values of columns as Python's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context
from typing import Any

import pyarrow as pa

__all__ = ["decimal_bytes", "plain", "varint"]

_EXACT = Context(prec=100)
_SMALL = [bytes((number,)) for number in range(128)]


def varint(number: int) -> bytes:
    """Encode a number of at least 0 with 7 bits a byte, the lowest first."""
    if number < 128:
        return _SMALL[number]
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def decimal_bytes(scale: int) -> Callable[[Any], bytes]:
    """Return the function that encodes a decimal as its unscaled integer: two's complement, big-endian."""

    def encode(value: Any) -> bytes:
        number = int(value) if isinstance(value, int | str) else int(_EXACT.scaleb(value, scale))
        if isinstance(value, int | str):
            number *= 10**scale
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    return encode


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type with integers in place of times: Python's dates end with the year 9999."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, plain(kind.item_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(plain(kind.value_type))
    return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind
