"""Partition and offset of each row of a table, in one file of the report, read in passes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kpipe.audit.windows import Window

__all__ = ["RowFile", "RowFileWriter", "Stretch", "number_of_rows"]

_GROUP = 1 << 20
_BATCH = 1 << 17
_SCHEMA = pa.schema([pa.field("partition", pa.int32(), False), pa.field("offset", pa.int64(), False)])
_NUMBER = pa.field("number", pa.int64(), False)

Int64 = NDArray[np.int64]


@dataclass
class Stretch:
    """Rows of one partition.

    Attributes:
        rows: their number.
        first, last: lowest and highest offset.
    """

    rows: int = 0
    first: int = 2**63 - 1
    last: int = -1


@dataclass
class RowFileWriter:
    """Writer of the file; a context manager. The file has its name when it is complete.

    Attributes:
        path: of the file.
        partitions: of the topic.
        numbered: whether rows have a number in their record.
        stretches: by partition.
        other_partition: rows of partitions that the topic does not have; they are not written.
    """

    path: Path
    partitions: int
    numbered: bool = False
    stretches: dict[int, Stretch] = field(default_factory=dict)
    other_partition: int = 0

    def __enter__(self) -> RowFileWriter:
        self._aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._schema = _SCHEMA.append(_NUMBER) if self.numbered else _SCHEMA
        # Offsets are nearly sorted: differences take a byte each.
        self._writer = pq.ParquetWriter(
            self._aside,
            self._schema,
            compression="zstd",
            use_dictionary=["partition"],
            column_encoding={"offset": "DELTA_BINARY_PACKED"},
        )
        self._waiting: list[tuple[Int64, ...]] = []
        self._count = 0
        return self

    def add(self, partitions: Int64, offsets: Int64, *ordinals: Int64) -> None:
        """Append rows; no partition and no offset is negative."""
        known = partitions < self.partitions
        if not known.all():
            self.other_partition += int((~known).sum())
            partitions, offsets = partitions[known], offsets[known]
            ordinals = tuple(item[known] for item in ordinals)
        if not len(partitions):
            return
        order = np.argsort(partitions, kind="stable")
        numbers, firsts = np.unique(partitions[order], return_index=True)
        places = offsets[order]
        lows, highs = np.minimum.reduceat(places, firsts), np.maximum.reduceat(places, firsts)
        sizes = np.diff(np.append(firsts, len(places)))
        for number, size, low, high in zip(*(item.tolist() for item in (numbers, sizes, lows, highs)), strict=True):
            found = self.stretches.setdefault(number, Stretch())
            found.rows, found.first, found.last = found.rows + size, min(found.first, low), max(found.last, high)
        self._waiting.append((partitions, offsets, *ordinals))
        self._count += len(partitions)
        if self._count >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            partitions, *others = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
            self._waiting, self._count = [], 0
            for first in range(0, len(partitions), _GROUP):
                last = first + _GROUP
                columns = [pa.array(partitions[first:last].astype(np.int32)), *(pa.array(item[first:last]) for item in others)]
                self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=_GROUP)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                with self._aside.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(self._aside, self.path)
        finally:
            self._aside.unlink(missing_ok=True)


def number_of_rows(path: Path) -> int:
    """Return the number of rows of a file."""
    return int(pq.read_metadata(path).num_rows)


class RowFile:
    """Reader of the file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def batches(self, windows: Sequence[Window] | None = None) -> Iterator[tuple[Int64, Int64]]:
        """Yield partitions and offsets of all rows, except parts of the file that contain none of the windows' offsets."""
        with pq.ParquetFile(self._path, pre_buffer=False) as file:
            groups = range(file.num_row_groups)
            wanted = [at for at in groups if windows is None or self._may_contain(file.metadata.row_group(at), windows)]
            for batch in file.iter_batches(_BATCH, row_groups=wanted, use_threads=False) if wanted else ():
                partitions, offsets = batch.columns
                yield partitions.to_numpy().astype(np.int64), offsets.to_numpy()

    @staticmethod
    def _may_contain(group: pq.RowGroupMetaData, windows: Sequence[Window]) -> bool:
        number, place = (group.column(at).statistics for at in (0, 1))
        if number is None or place is None or not (number.has_min_max and place.has_min_max):
            return True
        return any(
            number.min <= window.partition <= number.max and place.min < window.end and window.start <= place.max
            for window in windows
        )
