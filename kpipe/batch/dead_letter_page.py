"""Pages of stored dead letters in the order of their commits, for the topic of `errors.topic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kpipe.errors import DestinationError

__all__ = ["LetterMark", "LetterPages", "StoredLetter", "of_other_ledger"]


@dataclass(frozen=True)
class LetterMark:
    """The position of a dead letter among those of its pipeline; every later commit has greater positions.

    Attributes:
        batch: id of its commit.
        at: number that increases with each commit: `error_id` in a database, the commit's `seq` in a lake.
        within: number of the dead letter in its commit, from 1; 0 where `at` is unique.
    """

    batch: str
    at: int
    within: int = 0


@dataclass(frozen=True)
class StoredLetter:
    """A stored dead letter.

    Attributes:
        mark: its position.
        topic: topic of the record.
        partition: number of its partition.
        offset: its offset; None: an output row of a program, which has none.
        timestamp_us: its timestamp, microseconds since 1970 UTC; None: it has none.
        key: its key.
        value: its value.
        headers: its headers.
        stage: stage at which it failed: `parse`, `transform`, `constraint` or `duplicate_key`.
        reason: why.
    """

    mark: LetterMark
    topic: str
    partition: int
    offset: int | None
    timestamp_us: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    stage: str
    reason: str


@runtime_checkable
class LetterPages(Protocol):
    """Optional interface of a destination: read its dead letters page by page, in the order of their commits."""

    def letter_page(self, after: LetterMark | None, limit: int, max_bytes: int) -> Sequence[StoredLetter]:
        """Read the dead letters behind a position, in order; empty: there are none.

        Args:
            after: the position; None: before the first.
            limit: most dead letters.
            max_bytes: of keys and values; the page ends before the dead letter that exceeds it, and has one at least.

        Raises:
            DestinationError: the ledger does not contain the commit of the position, or cannot be read.
        """
        ...

    def letters_behind(self, after: LetterMark | None) -> int:
        """Count the dead letters behind a position; see `letter_page`."""
        ...


def of_other_ledger(pipeline: str, where: str, mark: LetterMark) -> DestinationError:
    """Return the error of a position whose commit the ledger does not contain."""
    return DestinationError(
        f"pipeline {pipeline}: {where}: the ledger lacks batch {mark.batch}, whose dead letters are in the topic of dead letters:"
        " it is an older copy",
        "restore a newer copy; or set another errors.topic, which receives all dead letters of this one",
    )
