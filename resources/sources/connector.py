"""The interface of a connector: what a source other than Kafka must provide.

A split is to a connector what a partition is to Kafka: positions that only increase, of which a range can be read again with the
same result. Planning, ledger, tasks, commits and verification are those of topics (docs/adr/0056-sources-as-splits.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kpipe.offsets import Range
from kpipe.schema.columns import Columns

if TYPE_CHECKING:
    from resources.kafka.record_block import RecordBlock

__all__ = ["Connector", "Split"]


@dataclass(frozen=True)
class Split:
    """A part of a source with positions of its own, such as a file.

    Attributes:
        name: unique in the source, printable, without secrets; contains a slash, which the name of a topic never does.
        identity: changes if records that may have been read change; never for appended records.
        end: exclusive end of the positions that can be read now.
        complete: whether no record will follow.
        high: exclusive end of the positions that exist; above `end` while some of them may still change. None: the end.
        settled: see `PartitionState`.
    """

    name: str
    identity: str
    end: int
    complete: bool = False
    high: int | None = None
    settled: bool = True


class Connector(Protocol):
    """A source. It can be pickled, without open connections; tasks read with a copy. Used from one thread at a time."""

    @property
    def noun(self) -> str:
        """Return the word for a split in messages, such as `file`."""

    @property
    def place(self) -> str:
        """Return the place of the splits, such as a folder; without secrets. Part of every position in the ledger."""

    @property
    def pattern(self) -> str:
        """Return the regular expression of the names that splits can have: a missing split with such a name was removed."""

    @property
    def on_removal(self) -> str:
        """Return why a split that was read may be missing, and what to do; empty: it was deleted."""

    @property
    def secrets(self) -> Sequence[str]:
        """Return values that must not be shown or be sent over an unencrypted connection."""

    @property
    def unchanging(self) -> bool:
        """True if records that were read never change, so that the last ones can be compared before more are read."""

    def splits(self) -> Sequence[Split]:
        """List the splits. Never from a cache that a change of the source could outlive.

        Raises:
            SourceError: the source cannot be listed, or contains something that cannot be read; the message names it.
        """

    def header(self, name: str) -> tuple[str, ...] | None:
        """Return the names of the fields that the split declares itself; None: it declares none."""

    def columns(self, name: str) -> Columns:
        """Return the columns of the split with the types of the source (exact_numbers.py); none if it has no types.

        Raises:
            ReadFailed: the split is missing or cannot be read.
        """

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """Read the records whose positions are in the range, in order, in blocks that fit in memory.

        A second call returns the same records. Positions without a record are gaps.

        Raises:
            ReadFailed: the split is missing, is not the one with this identity, or ends before the range does.
        """
