"""Sum up what a run has read and written, for lineage."""

from __future__ import annotations

from dataclasses import dataclass, field

from kpipe.batch.batch import Committed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns

__all__ = ["Progress", "Read", "Written"]

# Most ranges of a partition; they are adjacent, and so joined, unless lanes of several backfills take turns.
_MOST_RANGES = 100


@dataclass
class Read:
    """Ranges and records that were read of one topic.

    Attributes:
        ranges: by partition, the newest ones; adjacent ranges are joined.
        records: number of records.
        bytes: of their keys and values.
    """

    ranges: dict[int, list[Range]] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0

    def add(self, partition: int, found: Range) -> None:
        """Add a range."""
        mine = self.ranges.setdefault(partition, [])
        if mine and mine[-1].end == found.start:
            found = Range(mine.pop().start, found.end)
        mine.append(found)
        del mine[:-_MOST_RANGES]


@dataclass
class Written:
    """Rows that were written to one table.

    Attributes:
        columns: columns of the newest rows, without Kafka's coordinates.
        rows: number of rows.
    """

    columns: Columns = field(default_factory=Columns)
    rows: int = 0


@dataclass
class Progress:
    """Totals of a run.

    Attributes:
        topics: by name.
        tables: by name.
        batches: committed batches.
        batch, seq: id and number of the newest.
    """

    topics: dict[str, Read] = field(default_factory=dict)
    tables: dict[str, Written] = field(default_factory=dict)
    batches: int = 0
    batch: str = ""
    seq: int = 0

    def add(self, committed: Committed) -> None:
        """Add a committed batch."""
        commit = committed.commit
        for step in commit.steps:
            self.topics.setdefault(step.source.topic.name, Read()).add(step.source.partition, step.range)
        for (source, _), counts in commit.counts.items():
            read = self.topics.setdefault(source.topic.name, Read())
            read.records, read.bytes = read.records + counts.messages, read.bytes + counts.bytes
        for write in commit.tables:
            written = self.tables.setdefault(write.table, Written())
            written.columns, written.rows = write.columns or written.columns, written.rows + write.totals.rows
        self.batches, self.batch, self.seq = self.batches + 1, commit.id, committed.seq
