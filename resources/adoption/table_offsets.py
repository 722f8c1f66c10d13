"""Read the highest offset of each partition in a table that another loader has filled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from kpipe.adoption.positions import Key, Positions
from kpipe.audit.coordinates import find_coordinates
from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId
from resources.audit.normalize import Normalizer
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress

__all__ = ["TableColumns", "table_offsets"]


@dataclass(frozen=True)
class TableColumns:
    """Columns of partition, offset and topic, and the topic's name in the last one; None: by known layouts."""

    partition: str | None = None
    offset: str | None = None
    topic: str | None = None
    topic_value: str | None = None


@dataclass
class _Rows:
    rows: int = 0
    first: int = 2**63 - 1
    last: int = -1


def table_offsets(address: TableAddress, columns: TableColumns, partitions: Collection[PartitionId]) -> Positions:
    """Return the highest offset plus one of each partition that has rows. Reads the table once, in bounded memory.

    Whether rows are missing below is not decided: `kpipe audit` does that. A number of rows that differs from the number of
    offsets is a note.

    Raises:
        InvalidPipeline: the columns cannot be determined, or rows of several topics cannot be distinguished.
        DestinationError: the table cannot be read.
    """
    topics = sorted({source.topic.name for source in partitions})
    if columns.topic_value is not None and len(topics) > 1:
        raise InvalidPipeline(f"--topic-value: the pipeline has {len(topics)} topics", "adopt one topic for each pipeline")
    found: dict[Key, _Rows] = {}
    notes: list[str] = []
    with open_table(address) as table:
        coordinates = find_coordinates(table.fields(), columns.partition, columns.offset, columns.topic)
        if coordinates.topic is None and len(topics) > 1:
            raise InvalidPipeline(
                f"{table.name}: no column of topics, and the pipeline has {len(topics)} topics", "name it: --topic-column"
            )
        normal = {topic: Normalizer(columns.topic_value or topic) for topic in topics}
        for arrays in table.batches(coordinates):
            for topic, normalizer in normal.items():
                _add(found, topic, *normalizer(arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None))
        origin = f"table {table.name}, {table.snapshot}"
    invalid = max(normalizer.counts.invalid for normalizer in normal.values())
    if invalid:
        sample = next(item for each in normal.values() for item in each.counts.samples)
        notes.append(f"{origin}: {invalid:,} rows identify no record, such as {sample}")
    other = min(normalizer.counts.other_topic for normalizer in normal.values())
    if other:
        notes.append(f"{origin}: {other:,} rows of other topics are left out")
    for (topic, number), rows in sorted(found.items()):
        span = rows.last + 1 - rows.first
        if rows.rows != span:
            what = "rows are missing or gave none" if rows.rows < span else "offsets have more than one row"
            notes.append(
                f"{topic}/{number}: offsets [{rows.first}, {rows.last + 1}): expected {span:,} rows, found {rows.rows:,}:"
                f" {what}; kpipe audit names them"
            )
    return Positions(origin, {key: rows.last + 1 for key, rows in found.items()}, notes)


def _add(found: dict[Key, _Rows], topic: str, partitions: np.ndarray, offsets: np.ndarray) -> None:
    for number in np.unique(partitions).tolist():
        mine = offsets[partitions == number]
        rows = found.setdefault((topic, number), _Rows())
        rows.rows += len(mine)
        rows.first, rows.last = min(rows.first, int(mine.min())), max(rows.last, int(mine.max()))
