"""The interface of a table that is open in one transaction of its database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.kafka.record_block import RecordBlock

__all__ = ["OpenSource", "TableState"]


@dataclass(frozen=True)
class TableState:
    """A table at one moment.

    Attributes:
        identity: changes if the table is recreated.
        next: the highest value that was given to a row, plus 1.
        writers: transactions that may still add rows with lower values; empty if there are none.
    """

    identity: str
    next: int
    writers: frozenset[str] = frozenset()


class OpenSource(Protocol):
    """A table in one transaction of its database."""

    def state(self) -> TableState:
        """Read the state, after checking that the column can be a position.

        Raises:
            ReadFailed: it is not an integer column that is unique and never NULL.
        """

    def columns(self) -> Columns:
        """Return the columns whose numbers need the types of the table (exact_numbers.py)."""

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """Read the rows with values in the range, in their order."""
