"""Writes to one table: in a task's report of a range, and in a commit. All tables of a pipeline are treated alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kpipe.batch.counts import SETTLED, Counts, total
from kpipe.definition.pipeline import Pipeline
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = ["BatchTables", "ByLane", "Mark", "StagedFile", "TableReport", "TableWrite", "combined", "of_also", "of_into"]

_T = TypeVar("_T")

#: Partition and start offset of a step's lane.
ByLane = tuple[PartitionId, int]
_OF_INTO = ("rows", "deletes", *SETTLED)


@dataclass(frozen=True)
class StagedFile:
    """A complete, immutable Parquet file that no table references yet.

    Attributes:
        path: absolute path or URI; contains ids only, never a name from outside.
        size: bytes.
        rows: number of rows.
        sha256: of the file's bytes, hex.
        share: in a report, the range's rows in a file that several ranges share; None: all rows.
    """

    path: str
    size: int
    rows: int
    sha256: str
    share: int | None = None

    @property
    def own(self) -> int:
        """Rows of the range whose report names the file."""
        return self.rows if self.share is None else self.share


@dataclass(frozen=True)
class Mark:
    """Fingerprint of a range's rows, in addition to their number.

    Attributes:
        records: records that gave at least one of the rows.
        offsets: sum of the rows' offsets.
    """

    records: int = 0
    offsets: int = 0

    def __add__(self, other: Mark) -> Mark:
        return Mark(self.records + other.records, self.offsets + other.offsets)

    @staticmethod
    def follows(counts: Counts, span: int) -> bool:
        """Return whether the fingerprint follows from the counts: each offset gave one row, or none did, or ever will.

        Args:
            counts: of a range whose records give one row at most, with its dead letters, which may give rows later.
            span: number of its offsets.
        """
        return counts.rows == span or not (counts.rows or counts.dead_letters)


@dataclass(frozen=True)
class TableReport:
    """Staged files of one range for one table.

    Attributes:
        counts: counts of its rows and deletes (`Counts.of_rows`).
        files: files of rows; several if the table is partitioned (`into.partition_by`).
        deletes: file of keys to delete; None without deletes.
        mark: fingerprint of the rows; without records, the rows have no offsets.
        new_columns: columns of the records that the table lacks, with the inferred types.
    """

    counts: Counts = field(default_factory=Counts)
    files: tuple[StagedFile, ...] = ()
    deletes: StagedFile | None = None
    mark: Mark = Mark()
    new_columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True)
class BatchTables:
    """Tables that a batch writes.

    Attributes:
        parts: the definition for each table (kpipe/tables/multi_table.py).
        topics: position of each topic's table; None: each table takes the records of all topics.
    """

    parts: tuple[Pipeline, ...]
    topics: Mapping[str, int] | None = None

    def of(self, source: PartitionId) -> Sequence[int]:
        """Return the positions of the tables that take the records of a partition."""
        return range(len(self.parts)) if self.topics is None else (self.topics[source.topic.name],)


@dataclass(frozen=True)
class TableWrite:
    """Files and counts that a commit writes to one table.

    Attributes:
        table: its name; empty: the only table of the destination.
        columns: columns of the files.
        files: files of rows.
        deletes: files of keys to delete, in the order of the rows (kpipe/interfaces.py).
        counts: counts of the rows and deletes (`Counts.of_rows`), by partition and start offset of the step, without steps
            whose records are for other tables. Rows that the table has turned into dead letters or filtered are included.
        marks: fingerprints of the rows, by the same keys; empty if they follow from the counts (`Mark.follows`), or rows have a
            key or no offsets.
    """

    table: str = ""
    columns: Columns = field(default_factory=Columns)
    files: tuple[StagedFile, ...] = ()
    deletes: tuple[StagedFile, ...] = ()
    counts: Mapping[ByLane, Counts] = field(default_factory=dict)
    marks: Mapping[ByLane, Mark] = field(default_factory=dict)

    @property
    def totals(self) -> Counts:
        """Counts of all its ranges."""
        return total(self.counts.values())


# The ledger's ranges, published metadata and the JSON output of commands count the rows of the table of `into`, as for a
# pipeline with one table. They list the tables of `also` by name. Everything else treats the tables of a pipeline alike.


def of_into(tables: Sequence[_T]) -> _T:
    """Return the item for the table of `into`, from a sequence with one item for each table in the definition's order."""
    return tables[0]


def of_also(tables: Sequence[_T]) -> Sequence[_T]:
    """Return the items for the tables of `also`."""
    return tables[1:]


def combined(records: Counts, tables: Sequence[Counts], of_all: bool = False) -> Counts:
    """Return the counts of a range as the ledger stores them: of its records, and of the rows of the table of `into`.

    Args:
        records: counts of the records.
        tables: counts of each table. Dead letters and filtered rows of every table are included.
        of_all: whether to count the rows of all tables.
    """
    if not tables:
        return records
    rows = vars(total(tables) if of_all else of_into(tables))
    # As `replace` does, which takes three times as long: a batch combines each range several times.
    return Counts(
        **{
            **vars(records),
            "dead_letters": records.dead_letters + sum(counts.dead_letters for counts in tables),
            "filtered": records.filtered + sum(counts.filtered for counts in tables),
            **{name: rows[name] for name in _OF_INTO},
        }
    )
