"""Avro data to columns by compiled code; it leaves alone what is not plainly good (resources/native/avro.c)."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import pyarrow as pa

from resources.decode import avro_schema as steps
from resources.decode.avro_schema import Node, Plan
from resources.decode.block import Payloads
from resources.decode.native_columns import arrays, planned
from resources.native import library

__all__ = ["NativeAvro", "native_avro", "written"]


def native_avro(plan: Plan) -> NativeAvro | None:
    """A decoder for data of that schema; None where nothing is compiled."""
    found = library()
    return NativeAvro(found, plan) if found is not None else None


class NativeAvro:
    """Decodes blocks. Not for two threads at once.

    Args:
        found: the compiled part.
        plan: of the schema.
    """

    def __init__(self, found: ctypes.CDLL, plan: Plan) -> None:
        self._library, self._kind = found, plan.carried
        (data, symbols), (columns, ranges, names) = written(plan), planned(self._kind)
        self._decoder = found.kp_avro_new(
            data.ctypes.data, len(data), len(plan.nodes), symbols, len(symbols), columns.ctypes.data, ranges.ctypes.data, names
        )
        if not self._decoder:
            raise MemoryError
        weakref.finalize(self, found.kp_avro_free, self._decoder)

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """The columns of the good ones, as they are carried, and which are good.

        Args:
            payloads: the block.
            chosen: which of them.
            skip: bytes before the datum.

        Raises:
            MemoryError: the block is too large.
        """
        chosen, bounds = np.ascontiguousarray(chosen, np.int64), np.ascontiguousarray(payloads.bounds)
        status, text = np.empty(len(chosen), np.uint8), np.frombuffer(payloads.text, np.uint8)
        rows = self._library.kp_avro_decode(
            self._decoder, text.ctypes.data, bounds.ctypes.data, chosen.ctypes.data, len(chosen), skip, status.ctypes.data
        )
        if rows < 0:
            raise MemoryError(f"{len(text):,} bytes of Avro")
        return arrays(self._library, self._decoder, self._kind, rows), status == 0


def written(plan: Plan) -> tuple[np.ndarray[Any, Any], bytes]:
    """The steps as `kp_avro_new` reads them, and the symbols of enums one behind the other."""
    symbols = bytearray()
    data: list[int] = []
    for node in plan.nodes:
        more = _more(node, symbols)
        data += [node.op, node.a, node.b, len(more) if node.op == steps.ENUM else len(node.inner), len(more), *more]
    return np.array(data, np.int64), bytes(symbols)


def _more(node: Node, symbols: bytearray) -> list[int]:
    if node.op == steps.RECORD:
        return [item for pair in zip(node.inner, node.places, strict=True) for item in pair]
    if node.op != steps.ENUM:
        return node.inner
    ends = [len(symbols)]
    for name in node.names:
        symbols += name.encode()
        ends.append(len(symbols))
    return ends
