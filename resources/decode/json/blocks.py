"""Blocks of JSON payloads, examined as a whole: what a block reader can be trusted with, and what it costs to infer columns."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from kpipe.schema.nesting import DEEPEST_JSON
from resources.decode.block import Payloads, count_of
from resources.native import library

__all__ = ["affordable", "has_constant", "is_utf8", "names_of", "one_line", "one_object_each", "too_deep"]

# Cells that Arrow's reader may make of members without a column: each name takes one in every object of its list or block,
# whether the object has such a member or not. 2^26 cells of 8 bytes are 512 MiB.
_MOST_CELLS = 1 << 26
# Names without a column in a block. An ordinary one has few; to make columns of very many takes longer than row by row.
_MOST_NAMES = 1 << 12
# What Arrow's reader takes for a number.
_CONSTANT = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf)")
_NAME = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*(:?)')
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|$)|[\[{\]}]', re.DOTALL)
_SPACES = bytes.maketrans(b"\n\r", b"  ")


def affordable(data: bytes, known: int) -> bool:
    """Return whether a reader that infers columns from the block makes no more cells than memory and time are meant for.

    Args:
        data: the block.
        known: names that have a column.
    """
    objects, members = count_of(b"{", data), count_of(b":", data)
    most = known + _MOST_NAMES
    if members <= most and objects * members <= _MOST_CELLS:
        return True
    return names_of(data, max(1, min(most, _MOST_CELLS // max(1, objects)))) >= 0


def names_of(data: bytes, most: int) -> int:
    """Count the distinct names of members, as they are written; -1 where there are more than `most`."""
    found, text = library(), np.frombuffer(data, np.uint8)
    if found is not None:
        return int(found.kp_names(text.ctypes.data, len(text), most))
    names: set[bytes] = set()
    for item in _NAME.finditer(data):
        if item[2]:
            names.add(item[1])
            if len(names) > most:
                return -1
    return len(names)


def too_deep(data: bytes, most: int = DEEPEST_JSON) -> bool:
    """Return whether lists and objects are nested deeper than `most` levels, as far as the text is JSON.

    A reader that stops at the first error does not go deeper than what is counted up to there.
    """
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    found, text = library(), np.frombuffer(data, np.uint8)
    if found is not None:
        return bool(found.kp_too_deep(text.ctypes.data, len(text), most))
    depth = 0
    for item in _BRACKET.finditer(data):
        if item[0] in b"[{":
            depth += 1
            if depth > most:
                return True
        elif item[0] in b"]}":
            depth = max(0, depth - 1)
    return False


def one_object_each(payloads: Payloads) -> bool:
    """Prove, without looking at them one by one, that the k-th object of the joined payloads is the k-th payload.

    Every payload begins with a brace, ends with one and holds no newline, so at a payload's begin the reader is between
    objects (an object left open would be followed by `}` newline `{`, and a text left open by a raw newline: both are
    errors), and each payload holds at least one object. With as many objects as payloads, each holds exactly one.
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
    """Return whether NaN or an infinity may stand there as a value; inside of a text it only costs a closer look."""
    return (b"NaN" in data or b"Inf" in data) and _CONSTANT.search(data) is not None


def one_line(payload: bytes) -> bytes:
    """Return the payload without raw newlines, which in JSON are white space only, and without white space around it."""
    return payload.translate(_SPACES).strip() if b"\n" in payload or b"\r" in payload else payload.strip()
