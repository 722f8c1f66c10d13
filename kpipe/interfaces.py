"""The three edges of the core: the topics, the tasks, the table. Each is small, and its contract stands here.

Real ones live in resources/; public fakes in kpipe/testing/; what every destination must hold: resources/testing/conformance.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from kpipe.batch.batch import Batch, Commit, Committed, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.column_growth import Closed
from kpipe.definition.pipeline import Timestamp
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicSnapshot
from kpipe.verification.recount import Entry, Recount

__all__ = [
    "Audited",
    "Auditing",
    "Constrained",
    "Destination",
    "ErrorLog",
    "GroupFollower",
    "Keyed",
    "Publication",
    "Refusing",
    "Resuming",
    "Several",
    "Spread",
    "Stager",
    "Topics",
]


class Topics(Protocol):
    """What the brokers know of a pipeline's topics. Reads no record."""

    def snapshot(self) -> TopicSnapshot:
        """Identity and offsets of all partitions, as of now; never from a cache, every call with a deadline.

        Raises:
            BrokerUnreachable, TopicUnknown, CredentialsRefused.
        """
        ...

    def present(self) -> Collection[PartitionId]:
        """Identity of all partitions, as of now: what `snapshot` knows, without the offsets, for a third of its time.

        Raises:
            BrokerUnreachable, TopicUnknown, CredentialsRefused.
        """
        ...

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """First offset of each partition whose record is not older; the last stable offset where there is none.

        Raises:
            BrokerUnreachable, CredentialsRefused.
        """
        ...


@runtime_checkable
class GroupFollower(Protocol):
    """What topics can besides: show how far a pipeline is as a consumer group's offsets."""

    def follow(self, positions: Mapping[PartitionId, int]) -> None:
        """Set the offsets of the group that `source.group` names, if it names one. They are never read back.

        A failure is logged and changes nothing: it must not hold up ingest.
        """
        ...


class Stager(Protocol):
    """Reads the ranges of a batch, runs the program, decodes, and leaves finished files. Changes nothing visible.

    Used from one thread at a time, not always the same one; only `give_up` is called beside.
    """

    def columns(self, batch: Batch, table: int = 0) -> Columns:
        """Payload columns inferred from the first records of the batch; empty when none can be decoded.

        Args:
            batch: whose records are looked at.
            table: which of the pipeline's tables (kpipe/tables/multi_table.py), 0 is the first.

        Raises SourceError, TransformFailed.
        """
        ...

    def stage(
        self, batch: Batch, columns: Columns, also: Sequence[Columns] = (), closed: Sequence[Closed] = ()
    ) -> Sequence[RangeReport]:
        """Read every range of the batch to its proven end and stage rows and dead letters.

        After: exactly one report for every piece of every range; pieces of a range are disjoint and cover it; every file that a
        report names is complete, durable (fsynced) and will not change. On failure: files may lie about, none is referred to;
        calling it again is safe and makes other files.

        Args:
            batch: what to read.
            columns: the payload columns that rows are decoded to. Columns that the records hold beyond them are reported in
                `new_columns`, and are not in the files.
            also: the same for each further table. A record that cannot become a row of one of them becomes none of any.
            closed: of each table why it takes no further columns: a record that holds one is a reject. Empty: all are reported.

        Files of rows hold the columns and Kafka's coordinates (`_kafka_partition` ...), rows of one record together; with
        `keeps_originals` (kpipe/tables/upsert.py) also `_kafka_original`, the record: a STRUCT(key BLOB, value BLOB, headers
        STRUCT(name VARCHAR, value BLOB)[]). Files of deletes hold a line for each tombstone: the columns of the key, and the
        coordinates. Where rows have a key (kpipe/tables/upsert.py), a record whose key is NULL is a reject of the stage `parse`.

        Raises SourceError, TransformFailed, RecordRejected, StagingFailed.
        """
        ...

    def give_up(self) -> None:
        """Make a `stage` in another thread end soon, whatever way; does nothing where none is at work."""
        ...


@dataclass(frozen=True)
class Publication:
    """Metadata of one batch that waits to be mirrored.

    Attributes:
        batch: id of the batch.
        seq: its sequence number.
        metadata: by partition (TOPIC:NUMBER where there are several topics), as stored with the commit.
    """

    batch: str
    seq: int
    metadata: Mapping[str, Mapping[str, Any]]


class Destination(Protocol):
    """A table, its dead letters and its ledger, in one place that can change all three at once.

    One object serves one pipeline. It may be used from one thread at a time; any number of objects, in any number of
    processes, may point at the same place.
    """

    def describe(self) -> str:
        """Where rows go, for people: kind, place and table; holds no secret."""
        ...

    def columns(self) -> Columns | None:
        """Payload columns of the table as it is now (Kafka's own coordinates left out); None if there is no table."""
        ...

    def ledger(self) -> tuple[str, Ledger]:
        """The ledger as it is now, through a fresh connection, and the id under which the pipeline was registered.

        The id is made at the first commit and never changes; "" before that. A ledger that comes back with another id,
        or with a lower `seq`, is not the one that was there before.
        """
        ...

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing.

        Before: the files are verified (they exist, with the reported size, rows and columns). Inside one transaction:
        (1) every lane change is a compare-and-swap on equality, all must hold; (2) rows, dead letters, history and
        metadata are written and counted; (3) the table is created or widened to `columns` when it must be.
        After any answer, error or not, the batch id is looked up through a fresh connection, and only that decides:
        found means landed; not found and lanes as expected means not landed; else Fenced.

        With a `KeyRule`, files of rows and of deletes are the writes of the batch, applied as if one by one in the order of
        (`_kafka_partition`, `_kafka_offset`, place in the file), whatever the order of the files; `into.key`, where it is
        given, names columns of both that are never NULL. The commit that is given back says what became of them
        (`Commit.settled`), also when it had landed before: that is stored with the ledger's ranges, in the same transaction. A
        range of a lane that is not the live one (a backfill) is older than what is there: a write to a row of the same
        partition with a higher offset, which the same source has read, is ignored, and does not delete.

        With `Commit.also` (only a destination that is `Several` is given it), all of this holds for every table, and the counts
        of each are stored with the ledger's ranges.

        Committing a commit that has landed before returns the same result and changes nothing.

        Raises:
            Fenced: some lane is not what the commit expects. Nothing was changed.
            DestinationBusy: it could not be had in time. Nothing was changed.
            StagingFailed: a file is not what was reported. Nothing was changed.
            SchemaConflict: the table cannot take the columns. Nothing was changed.
            LedgerMismatch: the table is gone, or is another one than the ledger speaks of. Nothing was changed.
            OutcomeUnknown: the answer was lost and the destination cannot be read. Nothing is deleted.
            DestinationError: it failed; nothing was changed.
        """
        ...

    def history(self) -> Sequence[Entry]:
        """Every committed range of the pipeline, in order of commit."""
        ...

    def recount(self) -> Recount:
        """The table and the dead letters counted afresh, one consistent view."""
        ...

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of the view `kpipe_<name>` (design.md 4.5) that belong to this pipeline, newest first.

        Args:
            name: `pipelines`, `batches`, `batches_summary`, `errors` or `cursors`; `targets` of one that is `Several`.
            limit: most rows; None: all.

        Returns:
            Rows by column name; none when the pipeline has never committed.
        """
        ...

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Note the pipeline's state (`running`, `stopped`, `error`, `needs_operator`) and, when given, an error event.

        Only for people: nothing reads it back to decide. Does nothing when the pipeline has never committed.
        """
        ...

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Metadata of commits that have not been mirrored, oldest first."""
        ...

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        """Mark them as mirrored; gives those that this very call marked (each batch is given to one caller only)."""
        ...


@runtime_checkable
class Constrained(Protocol):
    """What a destination can besides: say which rows its table takes."""

    def required(self) -> Collection[str]:
        """Payload columns of the table that take no NULL; none where there is no table."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """What a stager can besides: set records aside of which the table has said that it does not take their rows."""

    def refuse(self, records: Mapping[PartitionId, Mapping[int, str]]) -> bool:
        """From now on these are rejects of the stage `constraint`, with these reasons, by offset.

        Gives whether any of them is new: otherwise staging once more would change nothing.
        """
        ...


@runtime_checkable
class Spread(Protocol):
    """What a stager can besides: say where its work is done."""

    def work(self) -> Work:
        """Of this run, so far."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A destination that knows rows by a key (kpipe/tables/upsert.py)."""

    def key(self) -> tuple[str, ...]:
        """Columns of the key: those of its rule, or else the table's primary key, as the table spells them.

        Raises:
            InvalidPipeline: the rule names none, and the table has no primary key, or is not there.
        """
        ...


@runtime_checkable
class Several(Protocol):
    """A destination that puts rows into several tables in one commit (`Commit.also`)."""

    def further(self) -> Sequence[Destination]:
        """The further tables in the definition's order, each a destination that is asked (columns, key), never committed to."""
        ...

    def held(self) -> Mapping[str, int]:
        """Rows that the ledger says the pipeline has left in each further table, by the table's name."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A destination that begins what it cannot take back before it can commit (resources/destinations/webhook)."""

    def unfinished(self) -> Commit | None:
        """Return a batch that some run has begun to send and that has not landed, to be committed as it is before anything is
        planned; None where there is none.

        Committing it again is the only way to finish it. A commit of kind `give_up` with its id gives it up: it is not returned
        any more. Other ledger-only commits that would move its lanes are refused.

        Raises:
            DestinationBusy: another process is at it.
            DestinationError: it cannot be read.
        """
        ...


@dataclass(frozen=True)
class Audited:
    """What `into.audit` says of rows that wait to be published.

    Attributes:
        where: the branch that they are on.
        snapshot: its id.
        rows: how many they are.
        failed: by the check's name, which of them are not what it says, in words; the others are true of all.
    """

    where: str
    snapshot: str
    rows: int
    failed: Mapping[str, str]


@runtime_checkable
class Auditing(Protocol):
    """A destination that keeps rows from readers until its checks are true of them (`into.audit`)."""

    def held_back(self) -> str:
        """Id of the snapshot in which rows wait that the ledger has not gone past; empty where none do.

        Raises:
            DestinationError: it cannot be read.
        """
        ...

    def audited(self) -> Audited | None:
        """What the checks say of these rows, read afresh; None where none wait.

        Raises:
            DestinationError: they cannot be read.
        """
        ...


@runtime_checkable
class ErrorLog(Protocol):
    """What a destination can besides: forget errors that stopped runs."""

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; how many there were. Dead letters stay: they are data."""
        ...
