"""The interface of decoders: a block of payloads becomes a table and a list of rejects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Columns
from resources.native import library

__all__ = ["Decoded", "Decoder", "Payloads", "TooManyRows", "count_of", "filtered", "in_parts"]

Result = TypeVar("Result")

# Assumed bytes of a line, for a first estimate of the number of lines: counting costs as much as finding them.
_SHORT_LINE = 64


def count_of(byte: bytes, block: bytes | memoryview, never: bytes = b"") -> int:
    """Count a byte in a buffer; return -1 if the buffer contains the byte `never`."""
    compiled, text = library(), np.frombuffer(block, np.uint8)
    if compiled is not None:
        return int(compiled.kp_count(text.ctypes.data, len(text), byte, never or byte))
    return -1 if never and (text == ord(never)).any() else int(np.count_nonzero(text == ord(byte)))


class Payloads:
    """A block of payloads in one buffer, with a newline after each.

    Args:
        text: the buffer.
        bounds: payload i is `text[bounds[i]:bounds[i + 1] - 1]`; int64, one more than the number of payloads.
        missing: for each payload whether it is null (a tombstone, empty in the buffer); None if no payload is null.
    """

    def __init__(self, text: Any, bounds: np.ndarray[Any, Any], missing: pa.Array | None = None) -> None:
        self.text, self.bounds, self.missing = text, bounds, missing
        self.count = len(bounds) - 1

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Payloads:
        """Build a block from a list of payloads."""
        bounds = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1, out=bounds[1:])
        return cls(b"\n".join((*values, b"")), bounds)

    @classmethod
    def of_lines(cls, block: bytes) -> Payloads:
        """Build a block from lines, each of which ends with a newline."""
        compiled, text = library(), np.frombuffer(block, np.uint8)
        if compiled is None:
            return cls(block, np.concatenate((np.zeros(1, np.int64), np.flatnonzero(text == ord("\n")) + 1)))
        room = len(block) // _SHORT_LINE + 1
        while True:
            bounds = np.empty(room + 1, np.int64)
            bounds[0] = 0
            count = int(compiled.kp_line_ends(text.ctypes.data, len(text), bounds[1:].ctypes.data, room))
            if count >= 0:
                return cls(block, bounds[: count + 1])
            room = count_of(b"\n", block)

    @classmethod
    def of_array(cls, lines: pa.Array) -> Payloads:
        """Build a block from a `large_binary` column whose values end with a newline; copies only if the column has nulls."""
        if lines.null_count:
            whole = cls.of_array(pc.fill_null(lines, b"\n"))
            return cls(whole.text, whole.bounds, lines.is_null())
        bounds = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return cls(memoryview(lines.buffers()[2] or b"")[first:last], bounds - first if first else bounds)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.text[self.bounds[index] : self.bounds[index + 1] - 1])

    @cached_property
    def values(self) -> Sequence[bytes]:
        """The payloads as a list."""
        text, bounds = bytes(self.text), self.bounds.tolist()
        return [text[start : end - 1] for start, end in pairwise(bounds)]

    @cached_property
    def joined(self) -> bytes:
        """The payloads in one buffer, separated by newlines."""
        return bytes(self.text[:-1]) if self.count else b""

    def part(self, start: int, end: int) -> Payloads:
        """Return the payloads `[start, end)`."""
        first, last = int(self.bounds[start]), int(self.bounds[end])
        missing = None if self.missing is None else self.missing.slice(start, end - start)
        return Payloads(memoryview(self.text)[first:last], self.bounds[start : end + 1] - first, missing)

    def take(self, places: np.ndarray[Any, Any]) -> Payloads:
        """Return the payloads at these positions."""
        some = Payloads.of([self[at] for at in places.tolist()])
        missing = None if self.missing is None else self.missing.take(pa.array(places))
        return Payloads(some.text, some.bounds, missing)


def filtered(table: pa.Table, stay: np.ndarray[Any, Any]) -> pa.Table:
    """Return the rows of a table for which `stay` is true. A table without columns has no rows: its caller counts them."""
    return table.filter(pa.array(stay)) if table.num_columns else table


@dataclass(frozen=True)
class Decoded:
    """A decoded block.

    Attributes:
        table: payload columns, in the order of the pipeline's columns, in staged types.
        rows: number of rows, which a table without columns does not have.
        kept: index of the payload of each row, ascending. A payload of several rows is repeated. A payload that is neither
            here nor in `rejects` was filtered. None: each payload is one row.
        rejects: (index of the payload, reason) of payloads that could not become rows.
        new_columns: members of the payloads that have no column.
        refused: like `rejects`, for payloads whose rows the table cannot store.
        deleted: index of each payload that deletes a row, ascending; these are not in `kept`.
        keys: the key columns of these rows, in staged types; None if no payload deletes.
        stops: (index, reason, hint) of payloads that no policy may pass over.
        found: the part of `new_columns` that is known from values, not from a schema. A decoder that checks the limits on new
            columns itself (`Bounded`) has not checked it.
    """

    table: pa.Table
    rows: int
    kept: Sequence[int] | None = None
    rejects: Sequence[tuple[int, str]] = ()
    new_columns: Columns = field(default_factory=Columns)
    refused: Sequence[tuple[int, str]] = ()
    deleted: Sequence[int] = ()
    keys: pa.Table | None = None
    stops: Sequence[tuple[int, str, str]] = ()
    found: Columns = field(default_factory=Columns)

    @property
    def owners(self) -> np.ndarray[Any, Any]:
        """Index of the payload of each row, as an array."""
        return np.arange(self.rows) if self.kept is None else np.asarray(self.kept, np.int64)

    def where(self, stay: np.ndarray[Any, Any]) -> Decoded:
        """Return the block with only the rows for which `stay` is true; all else is unchanged."""
        return replace(self, table=filtered(self.table, stay), rows=int(stay.sum()), kept=self.owners[stay].tolist())

    def part(self, start: int, end: int) -> Decoded:
        """Return the payloads `[start, end)`; rows are not copied."""
        first, last = (start, end) if self.kept is None else (bisect_left(self.kept, start), bisect_left(self.kept, end))
        deletes = bisect_left(self.deleted, start), bisect_left(self.deleted, end)
        return replace(
            self,
            table=self.table.slice(first, last - first),
            rows=last - first,
            kept=None if self.kept is None else [index - start for index in self.kept[first:last]],
            rejects=[(index - start, why) for index, why in self.rejects if start <= index < end],
            refused=[(index - start, why) for index, why in self.refused if start <= index < end],
            deleted=[index - start for index in self.deleted[slice(*deletes)]],
            keys=None if self.keys is None else self.keys.slice(deletes[0], deletes[1] - deletes[0]),
            stops=[(index - start, why, hint) for index, why, hint in self.stops if start <= index < end],
        )


class TooManyRows(Exception):
    """The payloads of a block have too many rows, or too large ones, to be in memory together. One payload never has."""


def in_parts(count: int, decode: Callable[[int, int], Result]) -> Iterator[tuple[int, int, Result]]:
    """Decode a block as a whole, or in halves if it has too many rows; yield start and end of each part, and its result.

    Args:
        count: number of payloads.
        decode: decodes the payloads `[start, end)`; raises TooManyRows.
    """
    parts = [(0, count)]
    while parts:
        start, end = parts.pop()
        try:
            done = decode(start, end)
        except TooManyRows:
            if end - start < 2:
                raise
            middle = (start + end) // 2
            parts += [(middle, end), (start, middle)]
            continue
        yield start, end, done


class Decoder(Protocol):
    """Decodes payloads to rows, in order. A payload becomes all of its rows, or a reject with a reason.

    A payload is one row. In CSV, and where lists are exploded (`Format.several`), it may be several.

    Attributes:
        takes_nulls: whether null payloads are rows, too. If not, the caller passes none.
    """

    takes_nulls: bool

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """Decode a block. Invalid payloads are rejects and never raise.

        Args:
            payloads: the block.
            keys: key of each record, a column of bytes; None if the keys were not read.

        Raises:
            TooManyRows: several payloads, which have to be decoded in smaller blocks.
        """
        ...
