"""Check blocks of JSON payloads as a whole: whether Arrow's reader is exact for them, and what inferring columns costs."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from kpipe.schema.nesting import DEEPEST_JSON
from resources.decode.block import Payloads, count_of
from resources.native import library

__all__ = ["affordable", "has_constant", "has_long_number", "is_utf8", "names_of", "one_line", "one_object_each", "too_deep"]

# Limit of the cells that Arrow's reader may create for members without a column: each name takes one cell in every object of
# its list or block, even if the object lacks the member. 2^26 cells of 8 bytes are 512 MiB.
_MOST_CELLS = 1 << 26
# Limit of names without a column in a block. Usually there are few; with very many, decoding row by row is faster.
_MOST_NAMES = 1 << 12
# Constants that Arrow's reader accepts as numbers.
_CONSTANT = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf)")
# Python rejects integers of more than 4,300 digits; Arrow's reader accepts them.
_MOST_DIGITS = 4_000
_LONG = re.compile(rb"(?<![0-9])[0-9]{%d}" % (_MOST_DIGITS + 1))
_NAME = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*(:?)')
# For each byte: 1 opens a list or an object, -1 closes one, 2 begins or ends a string.
_BRACKETS = np.zeros(256, np.int8)
_BRACKETS[np.frombuffer(b'[{]}"', np.uint8)] = (1, 1, -1, -1, 2)
_SPACES = bytes.maketrans(b"\n\r", b"  ")


def affordable(data: bytes, known: int) -> bool:
    """Return whether inferring columns from the block stays within the limits of cells and names.

    Args:
        data: the block.
        known: number of names that have a column.
    """
    objects, members = count_of(b"{", data), count_of(b":", data)
    most = known + _MOST_NAMES
    if members <= most and objects * members <= _MOST_CELLS:
        return True
    return names_of(data, max(1, min(most, _MOST_CELLS // max(1, objects)))) >= 0


def names_of(data: bytes, most: int) -> int:
    """Count the distinct names of members; return -1 if there are more than `most`."""
    compiled, text = library(), np.frombuffer(data, np.uint8)
    if compiled is not None:
        return int(compiled.kp_names(text.ctypes.data, len(text), most))
    names: set[bytes] = set()
    for item in _NAME.finditer(data):
        if item[2]:
            names.add(item[1])
            if len(names) > most:
                return -1
    return len(names)


def too_deep(data: bytes, most: int = DEEPEST_JSON) -> bool:
    """Return whether lists and objects are nested deeper than `most` levels, up to the first error in the JSON.

    A reader that stops at the first error does not go deeper than that.
    """
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    compiled, text = library(), np.frombuffer(data, np.uint8)
    if compiled is not None:
        return bool(compiled.kp_too_deep(text.ctypes.data, len(text), most))
    if b"\\" in data:  # an escaped quote does not end a string
        text = np.frombuffer(data.replace(b"\\\\", b"  ").replace(b'\\"', b"  "), np.uint8)
    steps = _BRACKETS[text]
    steps = steps[steps != 0]
    quotes = steps == 2
    level = np.cumsum(np.where(quotes | (np.cumsum(quotes) & 1 == 1), 0, steps), dtype=np.int64)
    return bool((level - np.minimum.accumulate(np.minimum(level, 0)) > most).any())  # ignore unmatched closing brackets


def one_object_each(payloads: Payloads) -> bool:
    """Prove, without parsing each payload, that the k-th object of the joined payloads is the k-th payload.

    Every payload begins with a brace, ends with one and contains no newline. So at its begin the reader is between objects:
    an open object would continue with `}` newline `{`, an open string with a raw newline, and both are errors. Each payload
    contains at least one object. With as many objects as payloads, each contains exactly one.
    """
    data, between = payloads.joined, len(payloads) - 1
    return (
        data.startswith(b"{")
        and data.endswith(b"}")
        and data.count(b"\n") == between
        and data.count(b"}\n{") == between
        and not data.startswith(b"\xef\xbb\xbf")
    )


def is_utf8(data: bytes) -> bool:
    """Return whether the block is UTF-8."""
    if data.isascii():
        return True
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def has_constant(data: bytes) -> bool:
    """Return whether NaN or an infinity may be a value; a match inside a string costs time only."""
    return (b"NaN" in data or b"Inf" in data) and _CONSTANT.search(data) is not None


def has_long_number(payloads: Payloads) -> bool:
    """Return whether a number may have more digits than Python converts; a match inside a string costs time only."""
    return bool((np.diff(payloads.bounds) > _MOST_DIGITS).any()) and _LONG.search(payloads.joined) is not None


def one_line(payload: bytes) -> bytes:
    """Replace raw newlines of valid JSON by spaces, and strip the payload. In a string, a newline is not valid."""
    return (payload.translate(_SPACES) if b"\n" in payload or b"\r" in payload else payload).strip(b" \t\n\r")
