"""Facts about one offset that a destination has recorded, read in one consistent view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from kpipe.ledger.ledger import Ledger
from kpipe.verification.recount import Entry

__all__ = [
    "DECISIONS",
    "MOST",
    "Attributing",
    "CommitInfo",
    "Facts",
    "Found",
    "Letter",
    "Query",
    "Reading",
    "RowSources",
    "Snapshot",
    "TableRows",
    "Traceable",
    "Versioned",
    "VersionedTables",
]

#: Most decisions, and most retries, that a destination returns for an offset: the newest ones.
MOST = 20
#: Kinds of ledger-only commits that an operator or a policy has decided, or a read has found. Claims are part of each batch.
DECISIONS = (
    "begin", "adopt", "jump", "loss", "skip", "give_up", "backfill", "rewind", "reread", "retire", "clear", "cut", "accept_log",
    "accept_ledger", "exchange",
)  # fmt: skip


@dataclass(frozen=True)
class CommitInfo:
    """A commit as the ledger records it.

    Attributes:
        batch: id of the batch.
        seq: sequence number.
        kind: as in `Commit`.
        run_id: Dagster's run id, or the id of a process.
        version: of definition and program.
        committed: clock of the driver before the commit became visible; None: unknown.
        note: text of a decision.
    """

    batch: str
    seq: int
    kind: str = "batch"
    run_id: str = ""
    version: str = ""
    committed: datetime | None = None
    note: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A state of a table that other engines can query.

    Attributes:
        id: version of a Delta table, or id of an Iceberg snapshot.
        seq: sequence number of the pipeline's commit that made it.
    """

    id: int
    seq: int


@dataclass(frozen=True)
class Query:
    """A query of a snapshot: `engine` is the program that executes it."""

    engine: str
    text: str


@dataclass(frozen=True)
class Letter:
    """A dead letter at the offset.

    Attributes:
        batch: id of the batch that read the record.
        stage, reason: why the record gave no row.
        version: of definition and program that rejected it last.
        counted: false after the table was cleared: the letter is kept for display only.
    """

    batch: str
    stage: str = ""
    reason: str = ""
    version: str = ""
    counted: bool = True


@dataclass(frozen=True)
class TableRows:
    """Rows of one table that may belong to a reading.

    Attributes:
        table: its name when the batch was committed.
        written: rows that the batch has written of the range.
        exists: whether the table still exists.
        at_offset: rows with the coordinates of the offset; None: rows have no coordinates.
        in_range: rows with coordinates in the range; None as above.
        records: distinct offsets of these rows.
        shared_offset: whether another reading may have written rows with the coordinates of the offset.
        shared_range: whether another reading may have written rows with coordinates in the range.
        keyed: whether rows have been merged by a key, so that later rows replace them.
        gave: records of the range that have given at least one of `written`; None: not recorded.
    """

    table: str
    written: int = 0
    exists: bool = True
    at_offset: int | None = None
    in_range: int | None = None
    records: int | None = None
    shared_offset: bool = False
    shared_range: bool = False
    keyed: bool = False
    gave: int | None = None


@dataclass(frozen=True)
class Reading:
    """A committed range that contains the offset.

    Attributes:
        entry: the range.
        commit: its commit.
        tables: the tables that the batch has written. Empty: rows cannot be searched in this destination.
        letters: dead letters of the batch at the offset.
        letters_in_range: dead letters of the batch that name an offset in the range.
        records: distinct offsets of the rows of all its tables in the range; None: unknown.
        snapshot: state of the table that the commit made; None: the destination has none, or it expired.
    """

    entry: Entry
    commit: CommitInfo
    tables: tuple[TableRows, ...] = ()
    letters: tuple[Letter, ...] = ()
    letters_in_range: int = 0
    records: int | None = None
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that a destination has recorded about an offset of a topic's partition.

    Attributes:
        ledger: of the pipeline.
        readings: ranges that contain the offset, of every topic with that name, in order of commit. Markers of rereads and
            clearings are among them; those of clearings also if they contain other offsets of the partition only.
        decisions: newest decisions whose note names the partition, newest first; at most `MOST`.
        retries: newest retries of dead letters, newest first; at most `MOST`.
        searched: whether dead letters and rows were searched.
    """

    ledger: Ledger
    readings: Sequence[Reading] = ()
    decisions: Sequence[CommitInfo] = ()
    retries: Sequence[CommitInfo] = ()
    searched: bool = True


@dataclass(frozen=True)
class Found:
    """Coordinates of a row; None: the row has none.

    Attributes:
        topic, partition, offset: of the record that gave the row.
    """

    topic: str | None
    partition: int | None
    offset: int | None


@dataclass(frozen=True)
class RowSources:
    """Columns by which the rows of a table name the source of their records, whatever the present definition states.

    Attributes:
        keyed: whether any pipeline has merged rows by a key, so that later rows have replaced others.
        topic_column: whether the table has a column with the topic.
        unnamed: whether rows name no topic: a definition with one topic has written them. None: unknown.
        owner: topic of all rows that name none; None: unknown.
    """

    keyed: bool = False
    topic_column: bool = True
    unnamed: bool | None = False
    owner: str | None = None


@runtime_checkable
class Attributing(Protocol):
    """Optional interface of a destination: report how the rows of a table name the source of their records."""

    def row_sources(self, table: str) -> RowSources:
        """Read it from the ledger and the table. It may read the whole column of topics."""
        ...


@runtime_checkable
class Traceable(Protocol):
    """Optional interface of a destination: report what is recorded about an offset."""

    def trace(self, topic: str, partition: int, offset: int) -> Facts:
        """Read what is recorded about the offset, in one consistent view.

        Memory does not depend on the length of the history, only on how often the offset was read.
        """
        ...

    def rows_at(self, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
        """Find rows by equality of columns, and return their coordinates.

        Args:
            table: one of the pipeline's tables.
            where: values by column, as text; each is converted to the column's type, and bound as a parameter.
            limit: maximum of rows.

        Raises:
            InvalidPipeline: the table or a column does not exist, a value does not fit its column, or rows have no coordinates.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """Optional interface of a destination: name the states of the table that other engines can query."""

    def snapshots(self, seqs: Sequence[int]) -> Mapping[int, Snapshot]:
        """Find the snapshots that these commits made, by sequence number. Expired ones are missing."""
        ...

    def writers(self, table: str) -> Sequence[str]:
        """Return the names of the pipelines that have committed to the table."""
        ...

    def queries(self, snapshot: Snapshot, condition: str = "") -> Sequence[Query]:
        """Return queries of a snapshot, one for each engine; `condition` is a condition in standard SQL, or empty."""
        ...


@runtime_checkable
class VersionedTables(Protocol):
    """Optional interface of a destination with tables by topic whose states are their own."""

    def versions(self, table: str) -> Versioned:
        """Return the states of a table; their sequence numbers are those of the pipeline's commits."""
        ...
