"""Convert columns that compiled code has built to Arrow arrays (resources/native/columns.c)."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from resources.decode.block import Payloads

__all__ = ["Decoder", "arrays", "planned"]

_STRUCT, _LIST, _BOOLEAN, _INTEGER, _DOUBLE, _TEXT = range(6)


class Decoder:
    """Decodes blocks of payloads to columns with compiled code. Not thread-safe.

    Args:
        found: the compiled library.
        kind: Arrow types of the columns.
        decoder: the result of its `kp_..._new`.

    Attributes:
        name: the part between `kp_` and `_decode` in its function names.
    """

    name: ClassVar[str]

    def __init__(self, found: ctypes.CDLL, kind: pa.StructType, decoder: int | None) -> None:
        if not decoder:
            raise MemoryError
        self._library, self._kind, self._decoder = found, kind, decoder
        weakref.finalize(self, getattr(found, f"kp_{self.name}_free"), decoder)

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """Decode payloads, and return the columns of the good ones, and for each payload whether it is good.

        Args:
            payloads: the block.
            chosen: indices of the payloads to decode.
            skip: number of bytes before the record.

        Raises:
            MemoryError: the block is too large.
        """
        chosen, bounds = np.ascontiguousarray(chosen, np.int64), np.ascontiguousarray(payloads.bounds)
        status, text = np.empty(len(chosen), np.uint8), np.frombuffer(payloads.text, np.uint8)
        rows = getattr(self._library, f"kp_{self.name}_decode")(
            self._decoder, text.ctypes.data, bounds.ctypes.data, chosen.ctypes.data, len(chosen), skip, status.ctypes.data
        )
        if rows < 0:
            raise MemoryError(f"{len(text):,} bytes of {self.name}")
        return arrays(self._library, self._decoder, self._kind, rows), status == 0


def planned(kind: pa.DataType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], bytes]:
    """Encode a type and its members for `kp_build`: nodes, ranges of integers, names.

    `kp_build` treats values of fixed width as integers, except booleans and doubles.
    """
    nodes: list[int] = []
    ranges: list[int] = []
    names = bytearray()
    _plan("", kind, nodes, ranges, names)
    return np.array(nodes, np.int32), np.array(ranges, np.uint64), bytes(names)


def _plan(name: str, kind: pa.DataType, nodes: list[int], ranges: list[int], names: bytearray) -> None:
    raw = name.encode()
    names += raw
    most = least = width = 0
    children: list[tuple[str, pa.DataType]] = []
    if pa.types.is_struct(kind):
        code, children = _STRUCT, [(item.name, item.type) for item in kind]
    elif pa.types.is_list(kind):
        code, children = _LIST, [("", kind.value_type)]
    elif pa.types.is_boolean(kind):
        code = _BOOLEAN
    elif pa.types.is_float64(kind):
        code = _DOUBLE
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        code = _TEXT
    else:
        code, width = _INTEGER, kind.bit_width // 8
        if pa.types.is_integer(kind):
            signed = pa.types.is_signed_integer(kind)
            most = 2 ** (kind.bit_width - signed) - 1
            least = most + 1 if signed else 0
    nodes += [code, width, len(children), len(raw)]
    ranges += [most, least]
    for child, inner in children:
        _plan(child, inner, nodes, ranges, names)


def arrays(found: ctypes.CDLL, decoder: int, kind: pa.StructType, rows: int) -> list[pa.Array]:
    """Copy the members of the root to Arrow arrays.

    Args:
        found: the compiled library.
        decoder: its decoder, whose columns are not changed.
        kind: type of a row that the decoder was created with.
        rows: number of rows.
    """
    nodes = found.kp_sizes(decoder, None)
    if nodes < 0:
        raise MemoryError
    sizes = np.zeros((nodes, 3), np.int64)
    found.kp_sizes(decoder, sizes.ctypes.data)
    counts, zeros, node = sizes.tolist(), _Zeros(), 0

    def array(kind: pa.DataType, rows: int) -> pa.Array:
        """Copy the slots of the next node, in depth-first order."""
        nonlocal node
        node += 1
        count, used, some_null = counts[node]
        if not count and rows > 0:  # no value in the block
            node += _nested(kind)
            return zeros.column(kind, rows)
        current = node
        assert rows < 0 or count == rows
        validity = pa.allocate_buffer((count + 7) // 8) if some_null else None
        offsets = values = None
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            offsets, values = pa.allocate_buffer((count + 1) * 4), pa.allocate_buffer(used)
        elif pa.types.is_list(kind):
            offsets = pa.allocate_buffer((count + 1) * 4)
        elif not pa.types.is_struct(kind):
            values = pa.allocate_buffer((count * kind.bit_width + 7) // 8)
        found.kp_copy(decoder, current, *(item.address if item else None for item in (validity, offsets, values)))
        if pa.types.is_struct(kind):
            children = [array(item.type, count) for item in kind]
            return pa.Array.from_buffers(kind, count, [validity], children=children)
        if pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, count, [validity, offsets], children=[array(kind.value_type, -1)])
        return pa.Array.from_buffers(kind, count, [validity, values] if offsets is None else [validity, offsets, values])

    return [array(item.type, rows) for item in kind]


class _Zeros:
    """Creates columns of NULL that share one buffer of zeros, so that they take no memory of their own."""

    def __init__(self) -> None:
        self._buffer = pa.py_buffer(b"")

    def column(self, kind: pa.DataType, rows: int) -> pa.Array:
        """Return so many rows of NULL; types with members do not share."""
        text = pa.types.is_string(kind) or pa.types.is_binary(kind)
        if kind.num_fields or not (text or kind.bit_width <= 64):
            return pa.nulls(rows, kind)
        if self._buffer.size < 8 * (rows + 1):  # 64 bits for each row, and an offset more
            self._buffer = pa.py_buffer(np.zeros(rows + 1, np.int64))
        return pa.Array.from_buffers(kind, rows, [self._buffer] * kind.num_buffers, rows)


def _nested(kind: pa.DataType) -> int:
    """Count the columns inside of a type."""
    inner = [kind.value_type] if pa.types.is_list(kind) else [item.type for item in kind] if pa.types.is_struct(kind) else []
    return sum(1 + _nested(item) for item in inner)
