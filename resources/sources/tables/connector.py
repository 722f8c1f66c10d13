"""The connector of a table: one split, whose positions are the values of the column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kpipe.definition.source import SourceTable
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.connector import Split

__all__ = ["OpenSource", "TableConnector", "TableState"]


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

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """Read the rows with values in the range, in their order."""


#: Opens the table; takes the definition and the secrets of the connection.
Opening = Callable[[SourceTable, dict[str, Secret]], AbstractContextManager[OpenSource]]


class TableConnector:
    """See `Connector`.

    A value below the highest visible one may belong to a transaction that has not committed yet. So the end is published only
    when every transaction that could write the table at that moment has ended.

    Args:
        table: the definition.
        secrets: of the connection, by name.
        `open`: opens the table.
    """

    noun, unchanging = "table", False
    record_size = 1

    def __init__(self, table: SourceTable, secrets: dict[str, Secret], open: Opening) -> None:
        self._table, self._secrets, self._open = table, secrets, open
        self._safe, self._waiting = 0, list[tuple[int, frozenset[str]]]()

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**vars(self), "_safe": 0, "_waiting": []}

    @property
    def place(self) -> str:
        """The database, without user and settings."""
        return f"{self._table.type}://{self._table.database.rpartition('@')[2].partition('?')[0]}"

    @property
    def _name(self) -> str:
        return f"{self._table.type}/{self._table.name}"

    @property
    def pattern(self) -> str:
        """See `Connector`."""
        return f"^{re.escape(self._name)}$"

    @property
    def secrets(self) -> Sequence[str]:
        """Secrets of the connection."""
        return list(self._secrets.values())

    def splits(self) -> Sequence[Split]:
        """See `Connector`."""
        with self._open(self._table, self._secrets) as table:
            state = table.state()
        return [Split(self._name, state.identity, self._end(state), high=state.next)]

    def _end(self, state: TableState) -> int:
        """Return the end below which no row can appear any more."""
        self._waiting.append((state.next, state.writers))
        settled = [at for at, (_, writers) in enumerate(self._waiting) if not writers & state.writers]
        if settled:
            self._safe = max(self._safe, self._waiting[settled[-1]][0])
            del self._waiting[: settled[-1] + 1]
        del self._waiting[1:-1]  # the oldest one ends first
        return min(self._safe, state.next)

    def header(self, name: str) -> tuple[str, ...] | None:
        """See `Connector`: rows have the names of their columns."""
        return None

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """See `Connector`."""
        with self._open(self._table, self._secrets) as table:
            found = table.state()
            if found.identity != identity:
                raise ReadFailed(f"table {self._table.name} was replaced while it was read", "run it again")
            last = -1
            for block in table.records(span):
                offsets = block.column("offset").to_numpy()
                if (np.diff(offsets, prepend=last) <= 0).any():
                    raise ReadFailed(
                        f"table {self._table.name}: a value of {self._table.column} is there more than once",
                        "choose a unique column: source.table.column",
                    )
                last = int(offsets[-1]) if len(offsets) else last
                yield block
