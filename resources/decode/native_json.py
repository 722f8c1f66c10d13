"""JSON payloads to columns by compiled code; it leaves alone what is not plainly good (resources/native/json.c)."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.schema import Columns
from resources.decode.block import Payloads
from resources.decode.native_columns import arrays
from resources.decode.types import wire_type
from resources.native import library

__all__ = ["GOOD", "LOOK", "UNKNOWN", "NativeJson", "native_json"]

GOOD, LOOK, UNKNOWN = 0, 1, 2
"""Of each payload: it is a row; exact code must look at it; it has a member without a column."""

_STRUCT, _LIST, _BOOLEAN, _INTEGER, _DOUBLE, _TEXT = range(6)


def native_json(columns: Columns) -> NativeJson | None:
    """A decoder for these columns, all of them of a type that JSON has; None where nothing is compiled."""
    found = library()
    return NativeJson(found, columns) if found is not None and len(columns) else None


class NativeJson:
    """Decodes blocks. Not for two threads at once.

    Args:
        found: the compiled part.
        columns: types that `types.is_direct` names; others come as text.
    """

    def __init__(self, found: ctypes.CDLL, columns: Columns) -> None:
        self._library = found
        self._kind = pa.struct([(name, wire_type(kind)) for name, kind in columns])
        nodes: list[int] = []
        ranges: list[int] = []
        names = bytearray()
        _plan("", self._kind, nodes, ranges, names)
        plan, limits = np.array(nodes, np.int32), np.array(ranges, np.uint64)
        self._decoder = found.kp_json_new(plan.ctypes.data, limits.ctypes.data, bytes(names))
        if not self._decoder:
            raise MemoryError
        weakref.finalize(self, found.kp_json_free, self._decoder)

    def decode(self, payloads: Payloads) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """The rows of the good ones in wire types, and the status of each payload.

        Raises:
            MemoryError: the block is too large.
        """
        status = np.empty(len(payloads), np.uint8)
        text, bounds = np.frombuffer(payloads.text, np.uint8), np.ascontiguousarray(payloads.bounds)
        rows = self._library.kp_json_decode(
            self._decoder, text.ctypes.data, bounds.ctypes.data, len(payloads), status.ctypes.data
        )
        if rows < 0:
            raise MemoryError(f"{len(text):,} bytes of JSON")
        return pa.table(arrays(self._library, self._decoder, self._kind, rows), names=[kind.name for kind in self._kind]), status


def _plan(name: str, kind: pa.DataType, nodes: list[int], ranges: list[int], names: bytearray) -> None:
    """A node and all below it, as json.c's `build` reads them."""
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
    elif pa.types.is_integer(kind):
        code, width = _INTEGER, kind.bit_width // 8
        signed = pa.types.is_signed_integer(kind)
        most = 2 ** (kind.bit_width - signed) - 1
        least = most + 1 if signed else 0
    elif pa.types.is_floating(kind):
        code = _DOUBLE
    else:
        assert pa.types.is_string(kind)
        code = _TEXT
    nodes += [code, width, len(children), len(raw)]
    ranges += [most, least]
    for child, inner in children:
        _plan(child, inner, nodes, ranges, names)
