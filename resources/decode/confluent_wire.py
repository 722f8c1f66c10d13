"""Confluent's wire format: a zero byte, the schema id in four bytes (big-endian), then the record.

Source: Confluent Platform's documentation, "Wire format". With Protobuf, message indexes precede the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.decode.block import Payloads

__all__ = ["LENGTH", "framed", "messages", "stripped", "unframed"]

LENGTH = 5


def framed(payloads: Payloads) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the schema id of each payload, and whether the payload has one."""
    starts, ends = payloads.bounds[:-1], payloads.bounds[1:] - 1
    good = ends - starts >= LENGTH
    text = np.frombuffer(payloads.text, np.uint8)
    at = np.where(good, starts, 0)
    if not good.any():
        return np.zeros(len(payloads), np.int64), good
    good &= text[at] == 0
    at = np.where(good, starts, starts[int(np.argmax(good))] if good.any() else 0)
    ids = np.zeros(len(payloads), np.int64)
    if good.any():
        for byte in range(1, LENGTH):
            ids = ids << 8 | text[at + byte]
    return np.where(good, ids, 0), good


def unframed(payload: bytes) -> str:
    """Return the reason why a payload is not in the wire format."""
    if len(payload) < LENGTH:
        return f"not in the registry's wire format: expected at least {LENGTH} bytes, found {len(payload)}"
    return f"not in the registry's wire format: expected first byte 0, found {payload[0]}"


def messages(
    payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int
) -> Iterator[tuple[np.ndarray[Any, Any], tuple[int, ...] | str, int]]:
    """Group payloads by the message indexes after `skip` bytes, and return the indexes and their size in bytes.

    Invalid indexes are replaced by a reason. A single zero byte means the first message of the schema.
    """
    text = np.frombuffer(payloads.text, np.uint8)
    starts, ends = payloads.bounds[chosen] + skip, payloads.bounds[chosen + 1] - 1
    left = np.flatnonzero(starts < ends)
    for at in np.flatnonzero(starts >= ends):
        yield chosen[at : at + 1], "not in the registry's wire format: it ends before the message index", 0
    first = text[starts[left]] == 0
    if first.any():
        yield chosen[left[first]], (0,), 1
    left = left[~first]
    for _ in range(_MOST_ALIKE):
        if not len(left):
            return
        start, end = int(starts[left[0]]), int(ends[left[0]])
        indexes, size = _indexes(bytes(text[start : min(end, start + _LONGEST)]))
        same = ends[left] - starts[left] >= size
        for byte in range(size):
            same &= text[np.minimum(starts[left] + byte, len(text) - 1)] == text[start + byte]
        yield chosen[left[same]], indexes, size
        left = left[~same]
    for at in left:
        yield chosen[at : at + 1], *_indexes(bytes(text[starts[at] : min(ends[at], starts[at] + _LONGEST)]))


_MOST_ALIKE = 64  # a topic usually has few message types; beyond this number, payloads are read one by one
_LONGEST = 100  # limit of the indexes in bytes: no schema nests messages that deeply


def _indexes(data: bytes) -> tuple[tuple[int, ...] | str, int]:
    """Read zigzag varints: the number of indexes, then the indexes."""
    numbers: list[int] = []
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte >= 0x80:
            continue
        numbers.append((value >> 1) ^ -(value & 1))
        value = shift = 0
        if min(numbers) < 0:
            break
        if len(numbers) == numbers[0] + 1:
            return tuple(numbers[1:]) or (0,), at + 1
    return "not in the registry's wire format: expected a message index after the schema id", len(data)


def stripped(payloads: Payloads) -> Payloads:
    """Remove the prefix of payloads, all of which must have one."""
    lines = pa.Array.from_buffers(
        pa.large_binary(), len(payloads), [None, pa.py_buffer(payloads.bounds), pa.py_buffer(payloads.text)]
    )
    return Payloads.of_array(pc.binary_slice(lines, LENGTH))
