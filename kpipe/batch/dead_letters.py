"""Dead letters run through the pipeline's definition again, from what is kept of them. Plain values."""

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
    """A record as it was set aside.

    Attributes:
        id: its number among the pipeline's errors.
        batch: id of the batch that read it.
        source: where it was read.
        offset: where it was read.
        timestamp: ms since 1970 UTC; -1 when there is none.
        key, value: None where the record had none.
        headers: in order; None where there are none.
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
    """What becomes visible at once when dead letters were run through the definition again.

    Attributes:
        commit: of kind `replay`, without lanes, steps and counts: its files are the rows and the dead letters that came of it.
        registered: id under which the pipeline was registered when the dead letters were read.
        letters: what was tried; no two of the same partition number and offset.
        several: a record may have given several rows.
    """

    commit: Commit
    registered: str
    letters: tuple[DeadLetter, ...]
    several: bool = False


@dataclass(frozen=True)
class Replayed:
    """What became of dead letters that were tried again: `tried = answered + filtered + failed`.

    Attributes:
        id: of the replay.
        seq: of its commit.
        tried: dead letters.
        answered: records that gave rows.
        rows: that they gave.
        filtered: records that gave no row on purpose.
        failed: still dead letters, with the new reason.
        reasons: the most frequent of these reasons, each behind its stage, with the number of dead letters.
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
    """Return the error of dead letters whose rows go to a table with a key.

    Args:
        pipeline: its name.
        table: that was written with a key before, where the definition has none now.
    """
    before = f": table {table} was written with a key before" if table else ""
    return NotAvailable(
        f"pipeline {pipeline}: dead letters of rows with a key (into.key ...) cannot be retried in this version{before}",
        "a newer row of their key may be there; write the mended records to the topic again",
    )


@runtime_checkable
class Replaying(Protocol):
    """What a destination can besides: move dead letters to rows."""

    def columns(self) -> Columns | None:
        """See `Destination`."""
        ...

    def letters(self, after: int, limit: int) -> Sequence[DeadLetter]:
        """Dead letters whose number is greater, in order, from ranges that were loaded into this table.

        At most `limit`, and some 64 MB; no two of them have the same partition number and offset (a record that was read
        again on demand): the second of two begins the next page. Rows of a program that have no offset are left out.

        Raises:
            NotAvailable: there are some, and a table of theirs was ever written with a key.
        """
        ...

    def replay(self, replay: Replay) -> Committed:
        """Write the rows, take their records from the dead letters, and say so in the history of their ranges, or do nothing.

        All in one transaction, which holds only while each of the letters still is one. Read back by its id, as any commit;
        one that has landed before changes nothing.

        Raises:
            Fenced: one of the letters is none any more. Nothing was changed.
            NotAvailable: a table was written with a key since.
            DestinationError, StagingFailed, SchemaConflict, OutcomeUnknown: as `Destination.commit`.
        """
        ...
