"""Decode JSON payloads to columns with compiled code (resources/native/json.c). Other code decodes unusual payloads."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.schema.columns import JSON, VARCHAR, Columns, ListOf, Struct, Type
from resources.decode.block import Payloads
from resources.decode.json.new_members import NewMembers
from resources.decode.native_columns import arrays
from resources.duckdb_engine.arrow_types import is_direct, wire_type
from resources.native import library

__all__ = ["GOOD", "LOOK", "UNKNOWN", "NativeJson", "Place", "native_json"]

GOOD, LOOK, UNKNOWN = 0, 1, 2
"""Status of a payload: it is a row; Python code must decode it; it has a member without a column."""

_STRUCT, _LIST, _BOOLEAN, _INTEGER, _DOUBLE, _TEXT = range(6)


# Values that a column of text accepts: strings only; any value, as compact JSON; strings unchanged and other values as JSON.
_TEXTS, _AS_JSON, _ANYTHING = range(3)
# Unknown members for which a STRUCT's payload needs Python code; other unknown members are ignored.
_NONE, _SIMILAR, _EVERY = range(3)

#: A position in the columns: names of members; None means the items of a list.
Place = tuple[str | None, ...]


def native_json(columns: Columns, ways: Collection[Place] | None = None, notes: bool = False) -> NativeJson | None:
    """Create a decoder for the columns; None without the compiled library or without columns."""
    compiled = library()
    return NativeJson(compiled, columns, ways, notes) if compiled is not None and len(columns) else None


class NativeJson:
    """Decodes blocks. Not thread-safe.

    Args:
        found: the compiled library.
        columns: columns of the types in `is_direct`, and scalar columns of other types, which are returned as text.
        ways: positions of objects on the way to selected values. With them, members without a column are ignored at any
            depth, instead of being `UNKNOWN`. In other objects, `new_members` notes that there are some, and two kinds of them
            need Python code: names that may differ from a field by case only, and names that a field cannot have.
        notes: whether members without a column are ignored too, but each is noted for `new_members`.
    """

    def __init__(self, found: ctypes.CDLL, columns: Columns, ways: Collection[Place] | None = None, notes: bool = False) -> None:
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
            found.kp_json_select(self._decoder)
        if notes:
            found.kp_json_note(self._decoder)

    def new_members(self, payloads: Payloads) -> NewMembers:
        """Return the members without a column of the last block, which these payloads are, in payloads with status `GOOD`."""
        text, sizes = np.frombuffer(payloads.text, np.uint8), np.zeros(2, np.int64)
        self._library.kp_json_notes(self._decoder, text.ctypes.data, sizes.ctypes.data, None, None)
        names, members = np.empty((sizes[0], 2), np.int64), np.empty((sizes[1], 2), np.int64)
        self._library.kp_json_notes(self._decoder, text.ctypes.data, sizes.ctypes.data, names.ctypes.data, members.ctypes.data)
        data = memoryview(payloads.text)
        texts = [str(data[start : start + length], "utf-8") for start, length in names.tolist()]
        return NewMembers(len(payloads), texts, members[:, 0], members[:, 1])

    def absent(self, node: int, rows: int) -> np.ndarray[Any, Any]:
        """Return for each slot of a node in the last block whether the value was absent.

        Args:
            node: number of the node, in depth-first order; the row is 0.
            rows: number of its slots: the number of rows, except inside lists.
        """
        absent = np.ones(rows, np.bool_)  # a column without any value has no slots
        self._library.kp_absent(self._decoder, node, absent.ctypes.data)
        return absent

    def decode(self, payloads: Payloads) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """Return the rows of payloads with status `GOOD` in wire types, and the status of each payload.

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
    """Encode a type and its members for `build` in json.c."""
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
