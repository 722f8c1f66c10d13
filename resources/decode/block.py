"""What a decoder takes and gives: a block of payloads in, a table and what could not become a row out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Columns
from resources.native import library

__all__ = ["Decoded", "Decoder", "Payloads", "count_of"]

# Bytes a line, for a first guess of how many there are: to count them costs as much as to find them.
_SHORT_LINE = 64


def count_of(byte: bytes, block: bytes | memoryview, never: bytes = b"") -> int:
    """How often a byte stands in a buffer; -1 where the byte `never` stands in it."""
    found, text = library(), np.frombuffer(block, np.uint8)
    if found is not None:
        return int(found.kp_count(text.ctypes.data, len(text), byte, never or byte))
    return -1 if never and (text == ord(never)).any() else int(np.count_nonzero(text == ord(byte)))


class Payloads:
    """A block of payloads in one buffer, with a newline behind each.

    Args:
        text: the buffer.
        bounds: payload i is `text[bounds[i]:bounds[i + 1] - 1]`; int64, one more than there are payloads.
        missing: whether payload i is null (a tombstone; empty in the buffer); None: none is.
    """

    def __init__(self, text: Any, bounds: np.ndarray[Any, Any], missing: pa.Array | None = None) -> None:
        self.text, self.bounds, self.missing = text, bounds, missing
        self.count = len(bounds) - 1

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Payloads:
        """From a list."""
        bounds = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1, out=bounds[1:])
        return cls(b"\n".join((*values, b"")), bounds)

    @classmethod
    def of_lines(cls, block: bytes) -> Payloads:
        """From lines, each of which ends with a newline."""
        found, text = library(), np.frombuffer(block, np.uint8)
        if found is None:
            return cls(block, np.concatenate((np.zeros(1, np.int64), np.flatnonzero(text == ord("\n")) + 1)))
        room = len(block) // _SHORT_LINE + 1
        while True:
            bounds = np.empty(room + 1, np.int64)
            bounds[0] = 0
            count = int(found.kp_line_ends(text.ctypes.data, len(text), bounds[1:].ctypes.data, room))
            if count >= 0:
                return cls(block, bounds[: count + 1])
            room = count_of(b"\n", block)

    @classmethod
    def of_array(cls, lines: pa.Array) -> Payloads:
        """From a column of `large_binary` whose values end with a newline; nothing is copied but where there are nulls."""
        if lines.null_count:
            whole = cls.of_array(pc.fill_null(lines, b"\n"))
            return cls(whole.text, whole.bounds, lines.is_null())
        bounds = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return cls(memoryview(lines.buffers()[2] or b"")[first:last], bounds - first if first else bounds)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> bytes:
        return bytes(self.text[self.bounds[at] : self.bounds[at + 1] - 1])

    @cached_property
    def values(self) -> Sequence[bytes]:
        """The payloads one by one."""
        text, bounds = bytes(self.text), self.bounds.tolist()
        return [text[start : end - 1] for start, end in pairwise(bounds)]

    @cached_property
    def joined(self) -> bytes:
        """The payloads in one buffer, a newline between each two."""
        return bytes(self.text[:-1]) if self.count else b""

    def part(self, start: int, end: int) -> Payloads:
        """Payloads `[start, end)`."""
        first, last = int(self.bounds[start]), int(self.bounds[end])
        missing = None if self.missing is None else self.missing.slice(start, end - start)
        return Payloads(memoryview(self.text)[first:last], self.bounds[start : end + 1] - first, missing)


@dataclass(frozen=True)
class Decoded:
    """A decoded block.

    Attributes:
        table: payload columns, in the order of the pipeline's columns, in staged types.
        rows: number of rows: a table without columns does not know.
        kept: index of the payload of each row, ascending; one that gave several rows stands there several times, one that gave
            none and is no reject gave none on purpose. None: each payload gave one row.
        rejects: (index of the payload, reason) of those that could not become a row.
        new_columns: what the payloads hold beyond the columns.
        refused: as `rejects`, of those whose rows the table cannot take.
    """

    table: pa.Table
    rows: int
    kept: Sequence[int] | None = None
    rejects: Sequence[tuple[int, str]] = ()
    new_columns: Columns = field(default_factory=Columns)
    refused: Sequence[tuple[int, str]] = ()


class Decoder(Protocol):
    """Makes rows of payloads, in order. A payload gives all of its rows, or is a reject that says why.

    That is one row for each, but for formats in which a payload may hold several (CSV).

    Attributes:
        takes_nulls: whether null payloads are rows, too; else none is given to it.
    """

    takes_nulls: bool

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """Decode a block. Never raises for what the payloads hold.

        Args:
            payloads: the block.
            keys: key of each record, a column of bytes; None where they are not known.
        """
        ...
