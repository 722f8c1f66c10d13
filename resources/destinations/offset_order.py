"""Read staged rows of each source partition in the order of their offsets, across files.

Short ranges share a file, and a long range is split into pieces that several tasks stage. A file may contain several partitions,
and a partition may be in several files: `[0, 100)` and `[200, 300)` in one, `[100, 200)` in another. Destinations that guarantee
Kafka's order read staged files with this module.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.destinations.file_blocks import blocks, divided
from resources.destinations.staged_file_check import Proven

__all__ = ["OffsetOrder", "Origin"]

_COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
_INDEXED = 65_536  # rows whose coordinates are in memory at once
_CACHED = 64 << 20  # bytes of row groups of shared files that stay in memory for the next range

#: Topic (empty where rows have no topic column) and partition of rows.
Origin = tuple[str, int]
_Key = tuple[int, int]


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one partition in a file, with offsets that do not decrease.

    Attributes:
        file: the file.
        at: index of the first row in the file.
        count: number of rows.
        first: offset of the first row.
        number: of the run, in the order of the files; orders rows of equal offset.
    """

    file: Proven
    at: int
    count: int
    first: int
    number: int

    @property
    def key(self) -> _Key:
        return self.first, self.number


class OffsetOrder:
    """Staged rows by source partition.

    Memory is bounded by three parts: an index of ranges, a block of each overlapping range, and a cache of shared row groups.
    Rows without an offset keep their order in the files.

    Args:
        files: the files of the rows. Of two rows with one offset, that of the earlier file comes first.
        rows: limit of rows in a block.
        size: limit of bytes in a block; None: no limit.
    """

    def __init__(self, files: Sequence[Proven], rows: int, size: int | None) -> None:
        self._rows, self._size, self._groups = rows, size, _RowGroups()
        self._runs: dict[Origin, list[_Run]] = {}
        numbers = count()
        for file in files:
            for origin, at, length, first in _ranges(file):
                self._runs.setdefault(origin, []).append(_Run(file, at, length, first, next(numbers)))

    @property
    def origins(self) -> list[Origin]:
        """Return the partitions in the order of the files: reading them in this order reads each file once."""
        return list(self._runs)

    def blocks(self, origin: Origin) -> Iterator[tuple[Proven, pa.Table]]:
        """Return rows of one partition in blocks, in the order of their offsets, each with its file."""
        waiting = deque(sorted(self._runs[origin], key=lambda run: run.key))
        opened: list[tuple[int, int, _Cursor]] = []  # a heap; numbers of runs differ, so cursors are never compared
        while waiting or opened:
            if waiting and (not opened or waiting[0].key < opened[0][:2]):
                run = waiting.popleft()
                heappush(opened, (*run.key, _Cursor(run, self._read(run))))
                continue
            _, number, cursor = opened[0]
            later = [*(entry[:2] for entry in opened[1:3]), *([waiting[0].key] if waiting else [])]
            yield cursor.run.file, cursor.take(min(later, default=None))
            if cursor.offset is None:
                heappop(opened)
            else:
                heapreplace(opened, (cursor.offset, number, cursor))

    def _read(self, run: _Run) -> Iterator[pa.Table]:
        if run.count < run.file.rows:
            for table in self._groups.rows(run.file.path, run.at, run.count, self._rows):
                yield from [table] if self._size is None else divided(table, self._size)
        elif self._size is not None:
            yield from blocks(run.file.path, self._rows, self._size)
        else:
            with pq.ParquetFile(run.file.path) as parquet:
                for batch in parquet.iter_batches(batch_size=self._rows):
                    yield pa.Table.from_batches([batch])


class _Cursor:
    """Reading position in a run."""

    def __init__(self, run: _Run, blocks: Iterator[pa.Table]) -> None:
        self.run, self._blocks = run, blocks
        self._at, self._offsets = 0, list[int]()
        self._table = pa.table({})
        self._next()

    @property
    def offset(self) -> int | None:
        """Offset of the next row; None at the end."""
        return self._offsets[self._at] if self._at < len(self._offsets) else None

    def take(self, before: _Key | None) -> pa.Table:
        """Return the rows of the current block before a key, or all of them."""
        end = len(self._offsets)
        if before is not None:
            offset, number = before
            end = (bisect_right if self.run.number < number else bisect_left)(self._offsets, offset, self._at)
        taken = self._table.slice(self._at, end - self._at)
        self._at = end
        if end == len(self._offsets):
            self._next()
        return taken

    def _next(self) -> None:
        self._at, self._offsets = 0, list[int]()
        for table in self._blocks:
            self._table, self._offsets = table, table.column("_kafka_offset").fill_null(0).to_pylist()
            if self._offsets:
                return


class _RowGroups:
    """Cache of row groups of files that several ranges share."""

    def __init__(self) -> None:
        self._starts: dict[str, list[int]] = {}
        self._tables: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()

    def rows(self, path: str, at: int, count: int, size: int) -> Iterator[pa.Table]:
        """Return `count` rows of a file from index `at`, in blocks."""
        end = at + count
        while at < end:
            table, start = self._group(path, at)
            stop = min(end, start + table.num_rows)
            for place in range(at, stop, size):
                yield table.slice(place - start, min(size, stop - place))
            at = stop

    def _group(self, path: str, at: int) -> tuple[pa.Table, int]:
        """Return the row group of a row index, and the index of its first row."""
        if path not in self._starts:
            with pq.ParquetFile(path) as parquet:
                rows = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
            self._starts[path] = [0, *np.cumsum(rows).tolist()]
        number = bisect_right(self._starts[path], at) - 1
        table = self._tables.pop((path, number), None)
        if table is None:
            with pq.ParquetFile(path) as parquet:
                table = parquet.read_row_group(number)
        self._tables[path, number] = table
        while len(self._tables) > 1 and sum(held.nbytes for held in self._tables.values()) > _CACHED:
            self._tables.popitem(last=False)
        return table, self._starts[path][number]


def _ranges(file: Proven) -> Iterator[tuple[Origin, int, int, int]]:
    """Return the runs of a file: partition, index of the first row, number of rows, offset of the first row."""
    names = [name for name in _COORDINATES if name in file.names]
    run: tuple[Origin, int, int] | None = None  # partition, index, offset of its first row
    at, last = 0, -1
    with pq.ParquetFile(file.path) as parquet:
        for batch in parquet.iter_batches(batch_size=_INDEXED, columns=names):
            topics = batch.column("_kafka_topic").dictionary_encode() if "_kafka_topic" in names else None
            codes = topics.indices.to_numpy() if topics is not None else np.zeros(batch.num_rows, np.int32)
            partitions, offsets = (batch.column(name).fill_null(0).to_numpy() for name in ("_kafka_partition", "_kafka_offset"))
            breaks = (codes[1:] != codes[:-1]) | (partitions[1:] != partitions[:-1]) | (offsets[1:] < offsets[:-1])
            for start in [0, *(np.flatnonzero(breaks) + 1).tolist()] if batch.num_rows else []:
                topic = topics.dictionary[int(codes[start])].as_py() if topics is not None else ""
                origin = topic, int(partitions[start])
                if start == 0 and run is not None and run[0] == origin and last <= offsets[0]:
                    continue  # continues the previous batch
                if run is not None:
                    yield run[0], run[1], at + start - run[1], run[2]
                run = origin, at + start, int(offsets[start])
            at += batch.num_rows
            last = int(offsets[-1]) if batch.num_rows else last
    if run is not None:
        yield run[0], run[1], at - run[1], run[2]
