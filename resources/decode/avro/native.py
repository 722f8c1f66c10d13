"""Decode Avro data to columns with compiled code (resources/native/avro.c). Other code decodes unusual payloads."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from resources.decode.avro import nodes as steps
from resources.decode.avro.nodes import Node, Plan
from resources.decode.native_columns import Decoder, planned
from resources.native import library

__all__ = ["NativeAvro", "native_avro", "written"]


def native_avro(plan: Plan) -> NativeAvro | None:
    """Create the decoder of a schema; None without the compiled library."""
    found = library()
    return NativeAvro(found, plan) if found is not None else None


class NativeAvro(Decoder):
    """Decodes blocks. Not thread-safe.

    Args:
        found: the compiled library.
        plan: the plan of the schema.
    """

    name = "avro"

    def __init__(self, found: ctypes.CDLL, plan: Plan) -> None:
        (data, symbols), (columns, ranges, names) = written(plan), planned(plan.carried)
        decoder = found.kp_avro_new(
            data.ctypes.data, len(data), len(plan.nodes), symbols, len(symbols), columns.ctypes.data, ranges.ctypes.data, names
        )
        super().__init__(found, plan.carried, decoder)


def written(plan: Plan) -> tuple[np.ndarray[Any, Any], bytes]:
    """Encode the steps for `kp_avro_new`, and concatenate the symbols of enums."""
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
