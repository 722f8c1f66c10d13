"""Write and read deletion vectors of Delta: roaring bitmaps of 64-bit positions, in files whose names are in the log.

Source of the format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Deletion Vector Format".
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap64

from kpipe.errors import DestinationError
from resources.destinations.lakehouse.folder import Folder

__all__ = ["file_name", "identity", "positions", "read", "write"]

_MAGIC = 1681511377
_VERSION = b"\x01"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def write(folder: Folder, deleted: Sequence[BitMap64]) -> list[dict[str, Any]]:
    """Write vectors into one new file, durably, and return their descriptors.

    Args:
        folder: of the table.
        deleted: positions, one vector for each file of rows.

    Raises:
        DestinationError: the file cannot be written.
    """
    made, found, data = uuid.uuid4(), list[dict[str, Any]](), bytearray(_VERSION)
    for bitmap in deleted:
        payload = struct.pack("<i", _MAGIC) + bitmap.serialize()
        found.append(
            {
                "storageType": "u",
                "pathOrInlineDv": _encoded(made.bytes),
                "offset": len(data),
                "sizeInBytes": len(payload),
                "cardinality": len(bitmap),
            }
        )
        data += struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    folder.write(f"deletion_vector_{made}.bin", bytes(data))
    return found


def identity(descriptor: Mapping[str, Any] | None) -> str:
    """Return a text that no other vector has; empty: no vector."""
    if descriptor is None:
        return ""
    place = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    return f"{place}@{descriptor['offset']}" if descriptor.get("offset") is not None else place


def file_name(descriptor: Mapping[str, Any]) -> str:
    """Return the name of a vector's file; empty: the vector is in the log.

    Raises:
        DestinationError: the descriptor is invalid.
    """
    kind, text = descriptor["storageType"], descriptor["pathOrInlineDv"]
    if kind == "u":
        return f"deletion_vector_{uuid.UUID(bytes=_decoded(text[-20:]))}.bin"
    return str(text).rpartition("/")[2] if kind == "p" else ""


def positions(folder: Folder, descriptor: Mapping[str, Any]) -> np.ndarray:
    """Return the positions of a vector, sorted."""
    return np.array(read(folder, descriptor).to_array(), dtype=np.int64)


def read(folder: Folder, descriptor: Mapping[str, Any]) -> BitMap64:
    """Read a vector.

    Raises:
        DestinationError: it is missing, damaged, or outside of the table's folder.
    """
    kind, text, where = descriptor["storageType"], descriptor["pathOrInlineDv"], f"Delta {folder.place}: deletion vector"
    if kind == "i":
        payload = _decoded(text)[: descriptor["sizeInBytes"]]
    elif kind == "u":
        name = file_name(descriptor)
        path = f"{text[:-20]}/{name}" if len(text) > 20 else name
        start, size = descriptor.get("offset") or 1, descriptor["sizeInBytes"]
        with folder.opened(path) as stream:
            stream.seek(start)
            data = stream.read(size + 8)
        payload = data[4:-4]
        if len(data) != size + 8 or struct.unpack(">i", data[:4])[0] != size or zlib.crc32(payload) != _sum(data):
            raise DestinationError(f"{where} {path}: the file is damaged", "restore a backup of the table")
    else:
        raise DestinationError(f"{where}: not supported with into.key: an absolute path", "copy the table, or choose another one")
    try:
        if struct.unpack("<i", payload[:4])[0] != _MAGIC:
            raise ValueError("its first bytes are unknown")
        found = BitMap64.deserialize(payload[4:])
    except (ValueError, struct.error) as error:
        raise DestinationError(f"{where}: it is damaged: {error}", "restore a backup of the table") from error
    if len(found) != descriptor["cardinality"]:
        raise DestinationError(
            f"{where}: expected {descriptor['cardinality']} positions, found {len(found)}", "restore a backup of the table"
        )
    return found


def _sum(data: bytes) -> int:
    number: int = struct.unpack(">I", data[-4:])[0]
    return number


def _encoded(data: bytes) -> str:
    """Encode bytes, whose number is a multiple of 4, by Z85 (rfc.zeromq.org/spec/32); Python has it from 3.13 on."""
    text: list[str] = []
    for (number,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            number, rest = divmod(number, 85)
            digits.append(_DIGITS[rest])
        text += reversed(digits)
    return "".join(text)


def _decoded(text: str) -> bytes:
    """Decode Z85.

    Raises:
        DestinationError: it is invalid.
    """
    try:
        groups = [text[at : at + 5] for at in range(0, len(text), 5)]
        return b"".join(struct.pack(">I", _number(group)) for group in groups)
    except (ValueError, struct.error) as error:
        raise DestinationError("Delta: a deletion vector in the log is invalid", "restore a backup of the table") from error


def _number(group: str) -> int:
    if len(group) != 5:
        raise ValueError(group)
    number = 0
    for digit in group:
        number = number * 85 + _DIGITS.index(digit)
    return number
