"""Values for retrying dead letters with the pipeline's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kpipe.batch.batch import Commit, Committed
from kpipe.errors import NotAvailable
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = ["DeadLetter", "Replay", "Replayed", "Replaying", "keyed"]


@dataclass(frozen=True)
class DeadLetter:
    """A stored dead letter.

    Attributes:
        id: its number among the pipeline's errors.
        batch: id of the batch that read it.
        source: partition of the record.
        offset: offset of the record.
        timestamp: ms since 1970 UTC; -1 without a timestamp.
        key, value: None if the record had none.
        headers: in order; None without headers.
    """

    id: int
    batch: str
    source: PartitionId
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class Replay:
    """Everything that becomes visible at once when dead letters are retried.

    Attributes:
        commit: of kind `replay`, without lanes, steps and counts: its files are the new rows and the new dead letters.
        registered: registration id of the pipeline when the dead letters were read.
        letters: the retried dead letters; no two have the same partition number and offset.
        fan_out: whether a record may have given several rows.
    """

    commit: Commit
    registered: str
    letters: tuple[DeadLetter, ...]
    fan_out: bool = False


@dataclass(frozen=True)
class Replayed:
    """Counts of retried dead letters: `tried = answered + filtered + failed`.

    Attributes:
        id: id of the replay.
        seq: sequence number of its commit.
        tried: retried dead letters.
        answered: records that gave rows.
        rows: rows that they gave.
        filtered: records that gave no row on purpose.
        failed: records that are dead letters again, with the new reason.
        reasons: the most frequent of these reasons, each after its stage, with the number of dead letters.
    """

    id: str
    seq: int
    tried: int
    answered: int
    rows: int
    filtered: int
    failed: int
    reasons: Mapping[str, int] = field(default_factory=dict)


def keyed(pipeline: str, table: str = "") -> NotAvailable:
    """Return the error of dead letters whose rows belong to a table with a key.

    Args:
        pipeline: the pipeline's name.
        table: a table that was written with a key before, if the definition has no key now.
    """
    before = f": table {table} was written with a key before" if table else ""
    return NotAvailable(
        f"pipeline {pipeline}: dead letters of rows with a key (into.key) cannot be retried in this version{before}",
        "a newer row of the key may exist; write the corrected records to the topic",
    )


@runtime_checkable
class Replaying(Protocol):
    """Optional interface of a destination: replace dead letters by rows."""

    def columns(self) -> Columns | None:
        """See `Destination`."""
        ...

    def letters(self, after: int, limit: int) -> Sequence[DeadLetter]:
        """Read dead letters with higher numbers, in order, from ranges that were loaded into this table.

        At most `limit`, and some 64 MB. No two of them have the same partition number and offset: after a reread, the second
        one starts the next page. Output rows of a program without an offset are left out.

        Raises:
            NotAvailable: one of their tables was ever written with a key.
        """
        ...

    def replay(self, replay: Replay) -> Committed:
        """Write the rows, remove their records from the dead letters, and update the counts of their ranges, or do nothing.

        One transaction does all of it, on condition that every letter is still a dead letter. The replay is read back
        by its id, as any commit; if it was committed before, nothing changes.

        Raises:
            Fenced: one of the letters is not a dead letter any more. Nothing was changed.
            NotAvailable: a table was written with a key since.
            DestinationError, StagingFailed, SchemaConflict, OutcomeUnknown: as `Destination.commit`.
        """
        ...
