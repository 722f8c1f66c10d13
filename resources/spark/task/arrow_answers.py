"""Match the rows of an Arrow program to the records that it was given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kpipe.errors import TransformFailed
from resources.decode.arrow.decoder import OFFSET, BatchReader, TypedRows
from resources.decode.arrow.ipc_stream import MOST_BYTES, Batches
from resources.decode.arrow.types import Rows
from resources.kafka.record_block import RecordBlock
from resources.spark.task.transform_input import Feed
from transforms.counts import check_counts

__all__ = ["Answers"]

_NONE = np.iinfo(np.int64).min  # before the first row
_MOST_PARTS = 1024  # of one record's rows: Python's and Arrow's objects of a small part are larger than its values


class Answers:
    """Rows of one run of a program, each block with all records that it answers. Iterate once.

    In mode `map` the rows belong to the records in order. In the other modes, the column `offset` names the record of each
    row: rows are in offset order, and records without a row are filtered. Whatever a program's batches are, all rows of a
    record are in one block, so that a record is loaded or rejected as a whole.

    Args:
        chunks: the program's stdout.
        feed: of the program; it keeps the records until they are answered.
        mode: of the program.
        where: the program and its range, for messages.

    Raises:
        TransformFailed: from the iteration: the stream or an offset is invalid, or the counts do not fit the mode.
    """

    def __init__(self, chunks: Iterable[bytes], feed: Feed, mode: str, where: str) -> None:
        self._batches, self._feed, self._mode, self._where = Batches(chunks, where), feed, mode, where
        self._rows = 0  # read so far
        self._last: list[TypedRows] = []  # rows of one record, which may have more
        self._last_bytes = self._joined = 0  # of them; the first parts, which are joined ones
        self._known_at = -1
        self._known = np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[tuple[TypedRows, RecordBlock]]:
        reader: BatchReader | None = None
        for batch in self._batches:
            if not batch.num_rows:  # perhaps of other types: libraries infer them from rows
                continue
            if reader is None:
                reader = self._opened()
            self._check_number(batch.num_rows)
            for part in reader.read(batch):
                yield from self._in_order(part) if self._mode == "map" else self._by_offset(part)
                self._rows += part.count
        if self._mode == "map":
            check_counts("map", self._feed.given, self._rows, self._where, "row")
        elif self._last:
            yield self._emitted([])

    def _opened(self) -> BatchReader:
        reader = BatchReader(self._batches.schema, self._where)
        if self._mode != "map" and not reader.traced:
            raise self._failed(
                f"it writes no column {OFFSET}, which mode {self._mode} requires",
                "write for each row the offset of its record, from the column of that name in the input",
                "",
            )
        return reader

    def _check_number(self, count: int) -> None:
        """Check the number of rows before anything is allocated for them."""
        most = {"map": len(self._feed.waiting), "filter": self._feed.given - self._rows}.get(self._mode)
        if most is not None and count > most:
            check_counts(self._mode, self._feed.given, self._rows + count, self._where, "row")

    def _in_order(self, rows: TypedRows) -> Iterator[tuple[TypedRows, RecordBlock]]:
        held = self._feed.answered(rows.count)
        if rows.offsets is not None:
            expected = held.column("offset").to_numpy()
            wrong = np.flatnonzero(rows.offsets != expected)
            if len(wrong):
                raise self._wrong_offset(rows, int(wrong[0]), f"expected {expected[wrong[0]]}, the next record's")
        yield rows, held

    def _by_offset(self, rows: TypedRows) -> Iterator[tuple[TypedRows, RecordBlock]]:
        offsets = rows.offsets
        assert offsets is not None
        self._check_offsets(rows)
        first, last = int(offsets[0]), int(offsets[-1])
        if self._last and _offset(self._last[0]) != first:
            yield self._emitted([])
        start = int(np.searchsorted(offsets, last, "left"))
        if start:
            yield self._emitted([rows.part(0, start)])
        tail = rows.part(start, rows.count)
        self._last.append(tail)
        if len(self._last) - self._joined == _MOST_PARTS:
            self._last[self._joined :] = [self._whole(self._last[self._joined :])]
            self._joined += 1
        self._last_bytes += offsets[start:].nbytes + sum(array.nbytes for array in tail.arrays)
        if self._last_bytes > MOST_BYTES:
            what = f"it wrote more than {MOST_BYTES:,} bytes of rows for the record at offset {last}"
            raise self._failed(what, "write fewer rows")

    def _check_offsets(self, rows: TypedRows) -> None:
        offsets = rows.offsets
        assert offsets is not None
        before = np.concatenate(([_offset(self._last[0]) if self._last else _NONE], offsets[:-1]))
        back = np.flatnonzero(offsets < before)
        if len(back):
            raise self._wrong_offset(rows, int(back[0]), f"expected {before[back[0]]} or a later one: rows in offset order")
        known = self._waiting()
        places = np.searchsorted(known, offsets)  # `isin` would take time for each waiting record, however few the rows are
        missing = places == len(known)
        missing[~missing] = known[places[~missing]] != offsets[~missing]
        absent = np.flatnonzero(missing)
        if len(absent):
            raise self._wrong_offset(rows, int(absent[0]), "expected the offset of a record of the input")
        again = np.flatnonzero(offsets == before)
        if self._mode == "filter" and len(again):
            raise self._wrong_offset(rows, int(again[0]), "expected one row for a record at most in mode filter", "count")

    def _waiting(self) -> Rows:
        """Return the offsets of the waiting records; answered ones are the first of those that were given."""
        if self._known_at != self._feed.given:
            self._known_at, self._known = self._feed.given, self._feed.waiting.column("offset").to_numpy()
        return self._known[len(self._known) - len(self._feed.waiting) :]

    def _whole(self, parts: list[TypedRows]) -> TypedRows:
        try:
            return TypedRows.joined(parts)
        except (pa.ArrowException, OverflowError) as error:
            raise self._failed(f"the rows of a record do not fit into memory: {error}", "write fewer rows") from error

    def _emitted(self, more: list[TypedRows]) -> tuple[TypedRows, RecordBlock]:
        """Return the kept rows and these, which are complete, and all records up to that of the last row."""
        rows = self._whole([*self._last, *more])
        self._last, self._last_bytes, self._joined = [], 0, 0
        assert rows.offsets is not None
        known = self._waiting()
        held = self._feed.answered(int(np.searchsorted(known, rows.offsets[-1], "right")))
        return replace(rows, owners=np.searchsorted(known, rows.offsets)), held

    def _wrong_offset(self, rows: TypedRows, at: int, problem: str, phase: str = "work") -> TransformFailed:
        assert rows.offsets is not None
        return self._failed(
            f"row {self._rows + at + 1:,} of its output, column {OFFSET}: {problem}, found {rows.offsets[at]}",
            "copy the offset of the record that the row comes from; keep the input's order",
            phase,
        )

    def _failed(self, reason: str, hint: str, phase: str = "work") -> TransformFailed:
        return TransformFailed(f"transform{f' ({self._where})' if self._where else ''}: {reason}", hint, phase)


def _offset(rows: TypedRows) -> int:
    assert rows.offsets is not None
    return int(rows.offsets[0])
