"""Columns that compiled code has built, as Arrow arrays (resources/native/columns.c)."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

__all__ = ["arrays"]


def arrays(found: ctypes.CDLL, decoder: int, kind: pa.StructType, rows: int) -> list[pa.Array]:
    """The members of the root, copied.

    Args:
        found: the compiled part.
        decoder: its decoder; what it has built stays as it is.
        kind: type of a row, as the decoder was told it.
        rows: number of rows.
    """
    node = 0

    def array(kind: pa.DataType, rows: int) -> pa.Array:
        """The next node's slots, in order of depth."""
        nonlocal node
        node += 1
        here, size = node, np.zeros(3, np.int64)
        found.kp_size(decoder, here, size.ctypes.data)
        count, used, some_null = (int(item) for item in size)
        assert rows < 0 or count == rows
        validity = pa.allocate_buffer((count + 7) // 8) if some_null else None
        offsets = values = None
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            offsets, values = pa.allocate_buffer((count + 1) * 4), pa.allocate_buffer(used)
        elif pa.types.is_list(kind):
            offsets = pa.allocate_buffer((count + 1) * 4)
        elif not pa.types.is_struct(kind):
            values = pa.allocate_buffer((count * kind.bit_width + 7) // 8)
        found.kp_copy(decoder, here, *(item.address if item else None for item in (validity, offsets, values)))
        if pa.types.is_struct(kind):
            children = [array(item.type, count) for item in kind]
            return pa.Array.from_buffers(kind, count, [validity], children=children)
        if pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, count, [validity, offsets], children=[array(kind.value_type, -1)])
        return pa.Array.from_buffers(kind, count, [validity, values] if offsets is None else [validity, offsets, values])

    return [array(item.type, rows) for item in kind]
