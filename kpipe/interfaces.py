"""Interfaces of the core: topics, stager and destination, with their contracts.

Implementations are in resources/, public fakes in kpipe/testing/. resources/testing/conformance.py tests every destination.
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
    "Constrained",
    "Destination",
    "ErrorLog",
    "GroupFollower",
    "Keyed",
    "MultiTable",
    "Publication",
    "Refusing",
    "Resuming",
    "Spread",
    "Stager",
    "Topics",
]


class Topics(Protocol):
    """Offsets and identity of a pipeline's topics, as reported by the brokers. Reads no record."""

    def snapshot(self) -> TopicSnapshot:
        """Read identity and offsets of all partitions from the brokers; never from a cache, every call with a deadline.

        Raises:
            BrokerUnreachable, TopicUnknown, CredentialsRefused.
        """
        ...

    def present(self) -> Collection[PartitionId]:
        """Read the identity of all partitions: `snapshot` without the offsets, in a third of its time.

        Raises:
            BrokerUnreachable, TopicUnknown, CredentialsRefused.
        """
        ...

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """Read the first offset at or after the timestamp for each partition; without one, the last stable offset.

        Raises:
            BrokerUnreachable, CredentialsRefused.
        """
        ...


@runtime_checkable
class GroupFollower(Protocol):
    """Optional interface of topics: copy a pipeline's position to the offsets of a consumer group."""

    def follow(self, positions: Mapping[PartitionId, int]) -> None:
        """Set the offsets of the consumer group in `source.group`, if there is one. They are never read back.

        A failure is logged and changes nothing: it must not delay ingest.
        """
        ...


class Stager(Protocol):
    """Read the ranges of a batch, run the program, decode, and write staged files that no table references yet.

    One thread at a time calls it, not always the same one. Only `give_up` may be called concurrently.
    """

    def columns(self, batch: Batch, table: int) -> Columns:
        """Infer payload columns from the first records of the batch; empty if no record can be decoded.

        Args:
            batch: the batch to take records from.
            table: which of the batch's tables (kpipe/tables/topic_tables.py), from 0.

        Raises SourceError, TransformFailed.
        """
        ...

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        """Read every range of the batch to its proven end and stage rows and dead letters.

        After: there is exactly one report for every piece of every range; the pieces of a range are disjoint and cover
        it. Every file in a report is complete, durable (fsynced) and final. On failure, files may remain that no table
        references. Another call is safe and writes other files.

        Args:
            batch: what to read.
            tables: for each table, the payload columns that its rows are decoded to. Further columns of the records
                are reported in `new_columns` and left out of the files. A record that cannot become a row of one
                table becomes a row of none.
            closed: for each table, why it accepts no further columns: a record with one is rejected. Empty: all are reported.

        Files of rows contain the columns and Kafka's coordinates (`_kafka_partition` ...), with the rows of one
        record together. With `keeps_originals` (kpipe/tables/upsert.py) they also contain `_kafka_original`, the
        record: a STRUCT(key BLOB, value BLOB, headers STRUCT(name VARCHAR, value BLOB)[]). Files of deletes contain
        one row for each tombstone: the key columns and the coordinates. For rows with a key (kpipe/tables/upsert.py),
        a record whose key is NULL is rejected in the stage `parse`.

        Raises SourceError, TransformFailed, RecordRejected, StagingFailed.
        """
        ...

    def give_up(self) -> None:
        """Make a `stage` call in another thread end soon, with or without an error; do nothing if none is running."""
        ...


@dataclass(frozen=True)
class Publication:
    """Metadata of one batch that is not yet published.

    Attributes:
        batch: id of the batch.
        seq: its sequence number.
        metadata: by partition (TOPIC:NUMBER for several topics), as stored with the commit; of the parts that are committed.
    """

    batch: str
    seq: int
    metadata: Mapping[str, Mapping[str, Any]]


class Destination(Protocol):
    """A table, its dead letters and its ledger, which one transaction can change together.

    One object serves one pipeline, one thread at a time. Any number of objects, in any number of processes, may use the same
    database.
    """

    def describe(self) -> str:
        """Describe the destination for messages: type, address and table, without secrets."""
        ...

    def columns(self) -> Columns | None:
        """Read the payload columns of the table, without Kafka's coordinates; None if it does not exist."""
        ...

    def ledger(self) -> tuple[str, Ledger]:
        """Read the ledger and the registration id through a new connection, unless the store has provably not changed.

        The id is made at the first commit and never changes; it is "" before that. Another id, or a lower `seq`,
        means that the ledger was replaced or restored.
        """
        ...

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing.

        Before: the files are verified (they exist, with the reported size, rows and columns). Inside one transaction:
        (1) every lane change is a compare-and-swap on equality, and all must succeed; (2) rows, dead letters, history and
        metadata are written and counted; (3) the table is created, or widened to `columns`, if needed.
        After any result, error or not, the batch id is read back through a new connection, which alone decides:
        found means committed; not found and lanes as expected means not committed; else Fenced.

        With a `KeyRule`, files of rows and of deletes are the writes of the batch. They are applied as if one by one,
        in the order of (`_kafka_partition`, `_kafka_offset`, position in the file), whatever the order of the files.
        `into.key`, if set, names columns of both that are never NULL. The returned commit has the counts of each
        outcome (`Commit.settled`), also if it was committed before: the same transaction stores them with the ledger's
        ranges. A range of any lane but the live one (a backfill) is older than the table. Such a write does not replace
        or delete a row of the same partition with a higher offset that the same source has read.

        All of this applies to every table of the commit. Only a `MultiTable` destination gets several tables; it stores the
        counts of each with the ledger's ranges.

        Committing the same commit again returns the same result and changes nothing.

        Raises:
            Fenced: a lane, or the registration, differs from what the commit expects. Nothing was changed.
            DestinationBusy: the destination was not available in time. Nothing was changed.
            StagingFailed: a file does not match its report. Nothing was changed.
            SchemaConflict: the table cannot accept the columns. Nothing was changed.
            LedgerMismatch: the table is missing, or is not the table of the ledger. Nothing was changed.
            OutcomeUnknown: the result was lost, and the destination cannot be read. Nothing is deleted.
            DestinationError: any other failure; nothing was changed.
        """
        ...

    def history(self) -> Sequence[Entry]:
        """Read every committed range of the pipeline, in order of commit, each with the number of its commit."""
        ...

    def recount(self) -> Recount:
        """Count the rows of the table and the dead letters, in one consistent view."""
        ...

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Read the pipeline's rows of the view `kpipe_<name>` (design.md 4.5), newest first.

        Args:
            name: `pipelines`, `batches`, `batches_summary`, `errors` or `cursors`; also `targets` for a `MultiTable`.
            limit: most rows; None: all.

        Returns:
            Rows by column name; empty if the pipeline has never committed.
        """
        ...

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Store the pipeline's state (`running`, `stopped`, `error`, `needs_operator`), and an error event if there is one.

        For display only: no decision depends on it. Does nothing if the pipeline has never committed.
        """
        ...

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Read the metadata of commits that are not yet published, oldest first."""
        ...

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark as published what `unpublished` returned, and return the batches of which this call marked something."""
        ...


@runtime_checkable
class Constrained(Protocol):
    """Optional interface of a destination: report the table's NOT NULL columns."""

    def required(self) -> Collection[str]:
        """Return the payload columns of the table that are NOT NULL; empty if the table does not exist."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """Optional interface of a stager: reject the records whose rows the table rejects."""

    def refuse(self, records: Mapping[PartitionId, Mapping[int, str]]) -> bool:
        """Reject these records, by offset, with these reasons, in the stage `constraint` of every later `stage` call.

        Return whether any of them is new: otherwise another `stage` call would change nothing.
        """
        ...


@runtime_checkable
class Spread(Protocol):
    """Optional interface of a stager: report the work of each machine."""

    def work(self) -> Work:
        """Return the work of this run so far."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A destination that can identify rows by a key (kpipe/tables/upsert.py)."""

    def key(self) -> tuple[str, ...]:
        """Return the key columns: those of the definition, or else the table's primary key, as the table spells them.

        Raises:
            InvalidPipeline: the definition names no key, and the table has no primary key or does not exist.
        """
        ...


@runtime_checkable
class MultiTable(Protocol):
    """A destination that writes several tables in one commit."""

    @property
    def tables(self) -> Sequence[Destination]:
        """A destination for each table, in the definition's order: only for reading columns and keys, never for commits."""
        ...

    def rows_left(self) -> Mapping[str, int]:
        """Return the number of the pipeline's rows in each table according to the ledger, by table name."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A destination whose writes cannot be rolled back once they begin (resources/destinations/webhook)."""

    def unfinished(self) -> Commit | None:
        """Return a batch that a run began to send and did not commit, if it exists.

        It must be committed unchanged before anything else is planned: that is the only way to finish it. A commit of
        kind `give_up` with its id abandons it, and it is not returned any more. Other ledger-only commits that would
        move its lanes are rejected. DROP PIPELINE calls this with placeholders in place of credentials.

        Raises:
            DestinationBusy: another process is sending it.
            DestinationError: it cannot be read.
        """
        ...


@runtime_checkable
class ErrorLog(Protocol):
    """Optional interface of a destination: delete the errors that stopped runs."""

    def clear_errors(self) -> int:
        """Delete the pipeline's error events and its last error, and return how many there were. Dead letters stay."""
        ...
