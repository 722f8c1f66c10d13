"""Confluent's wire format: a zero, the schema's id in four bytes (big-endian), then the record itself.

Format: Confluent Platform's documentation, "Wire format". Protobuf puts the indexes of the message between the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.decode.block import Payloads

__all__ = ["LENGTH", "framed", "stripped", "unframed"]

LENGTH = 5


def framed(payloads: Payloads) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The schema id of each payload, and whether it has one at all."""
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
    """Why a payload is not in the wire format."""
    if len(payload) < LENGTH:
        return f"not in the registry's wire format: {len(payload)} bytes, and its prefix alone has {LENGTH}"
    return f"not in the registry's wire format: it begins with byte {payload[0]}, not 0"


def stripped(payloads: Payloads) -> Payloads:
    """The payloads, all of them framed, without the prefix."""
    lines = pa.Array.from_buffers(
        pa.large_binary(), len(payloads), [None, pa.py_buffer(payloads.bounds), pa.py_buffer(payloads.text)]
    )
    return Payloads.of_array(pc.binary_slice(lines, LENGTH))
