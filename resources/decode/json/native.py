"""JSON payloads to columns by compiled code; it leaves alone what is not plainly good (resources/native/json.c)."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.schema.columns import JSON, VARCHAR, Columns, ListOf, Struct, Type
from resources.decode.block import Payloads
from resources.decode.native_columns import arrays
from resources.duckdb_engine.arrow_types import is_direct, wire_type
from resources.native import library

__all__ = ["GOOD", "LOOK", "UNKNOWN", "NativeJson", "Place", "native_json"]

GOOD, LOOK, UNKNOWN = 0, 1, 2
"""Of each payload: it is a row; exact code must look at it; it has a member without a column."""

_STRUCT, _LIST, _BOOLEAN, _INTEGER, _DOUBLE, _TEXT = range(6)


# Which values a column of text takes: texts only; any value, as compact JSON; texts as they are and all else as JSON.
_TEXTS, _AS_JSON, _ANYTHING = range(3)
# Which members beyond its fields a STRUCT leaves to exact code, where others are left out.
_NONE, _SIMILAR, _EVERY = range(3)

#: A place in the columns: names of members, None for the items of a list.
Place = tuple[str | None, ...]


def native_json(columns: Columns, ways: Collection[Place] | None = None) -> NativeJson | None:
    """A decoder for these columns; None where nothing is compiled, or there are none."""
    found = library()
    return NativeJson(found, columns, ways) if found is not None and len(columns) else None


class NativeJson:
    """Decodes blocks. Not for two threads at once.

    Args:
        found: the compiled part.
        columns: types that `types.is_direct` names, and beside these, at the top, scalars of any other: they come as text.
        ways: places of objects that only lead to values; then members without a column are left out, at any depth, instead of
            being `UNKNOWN`. In other objects a member that may differ from a field by upper and lower case only is left to
            exact code, as is a name that no field can have.
    """

    def __init__(self, found: ctypes.CDLL, columns: Columns, ways: Collection[Place] | None = None) -> None:
        self._library = found
        self._kind = pa.struct([(name, wire_type(kind)) for name, kind in columns])
        nodes: list[int] = []
        ranges: list[int] = []
        names = bytearray()
        _plan("", Struct(columns.items), (), ways or (), nodes, ranges, names)
        plan, limits = np.array(nodes, np.int32), np.array(ranges, np.uint64)
        self._decoder = found.kp_json_new(plan.ctypes.data, limits.ctypes.data, bytes(names))
        if not self._decoder:
            raise MemoryError
        weakref.finalize(self, found.kp_json_free, self._decoder)
        if ways is not None:
            found.kp_json_skip(self._decoder)

    def absent(self, node: int, rows: int) -> np.ndarray[Any, Any]:
        """For each slot of a node of the last block (in order of depth, the row itself is 0) whether nothing was there.

        Args:
            node: its number.
            rows: how many slots it has: as many as there are rows, where it lies in no list.
        """
        found = np.zeros(rows, np.bool_)
        self._library.kp_absent(self._decoder, node, found.ctypes.data)
        return found

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


def _plan(
    name: str, kind: Type, place: Place, ways: Collection[Place], nodes: list[int], ranges: list[int], names: bytearray
) -> None:
    """A node and all below it, as json.c's `build` reads them."""
    raw = name.encode()
    names += raw
    most = least = width = 0
    children: Sequence[tuple[str, Type]] = []
    wire = wire_type(kind)
    if isinstance(kind, Struct):
        code, children = _STRUCT, kind.fields
        width = _NONE if place in ways else _SIMILAR if all(field.isascii() for field, _ in children) else _EVERY
    elif isinstance(kind, ListOf):
        code, children = _LIST, [("", kind.item)]
    elif pa.types.is_boolean(wire):
        code = _BOOLEAN
    elif pa.types.is_integer(wire):
        code, width = _INTEGER, wire.bit_width // 8
        signed = pa.types.is_signed_integer(wire)
        most = 2 ** (wire.bit_width - signed) - 1
        least = most + 1 if signed else 0
    elif pa.types.is_floating(wire):
        code = _DOUBLE
    else:
        assert pa.types.is_string(wire)
        code, width = _TEXT, _AS_JSON if kind == JSON else _ANYTHING if kind == VARCHAR or not is_direct(kind) else _TEXTS
    nodes += [code, width, len(children), len(raw)]
    ranges += [most, least]
    for child, inner in children:
        step = child if isinstance(kind, Struct) else None
        _plan(child, inner, (*place, step), ways, nodes, ranges, names)
