"""The connector of a table: one split, whose positions are the values of the column."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kpipe.definition.source import SourceTable
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.connector import Split
from resources.sources.tables.open_table import OpenSource, TableState

__all__ = ["TableConnector"]

_PATIENCE_S = 2.0  # longest wait for the transactions that are open when a connector first reads the state
_NAP_S = 0.2


@dataclass(eq=False)
class TableConnector:
    """See `Connector`.

    A value below the highest visible one may belong to a transaction that has not committed yet. So the end is published only
    when every transaction that could write the table at that moment has ended.

    Attributes:
        table: the definition.
        credentials: secrets of the connection, by name.
    """

    noun: ClassVar = "table"
    on_removal: ClassVar = ""
    unchanging: ClassVar = False

    table: SourceTable
    credentials: dict[str, Secret] = field(repr=False)
    _safe: int | None = field(default=None, init=False, repr=False)
    _waiting: list[tuple[int, frozenset[str]]] = field(default_factory=list, init=False, repr=False)

    def _open(self) -> AbstractContextManager[OpenSource]:
        if self.table.type == "postgres":
            from resources.sources.tables.postgres_table import open_postgres

            return open_postgres(self.table, self.credentials)
        if self.table.type == "mysql":
            from resources.sources.tables.mysql_table import open_mysql

            return open_mysql(self.table, self.credentials)
        from resources.sources.tables.duckdb_table import open_duckdb

        return open_duckdb(self.table, self.credentials)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**vars(self), "_safe": None, "_waiting": []}

    @property
    def place(self) -> str:
        """The database, without user and settings."""
        return f"{self.table.type}://{self.table.database.rpartition('@')[2].partition('?')[0]}"

    @property
    def _name(self) -> str:
        return f"{self.table.type}/{self.table.name}"

    @property
    def pattern(self) -> str:
        """See `Connector`."""
        return f"^{re.escape(self._name)}$"

    @property
    def secrets(self) -> Sequence[str]:
        """Secrets of the connection."""
        return list(self.credentials.values())

    def splits(self) -> Sequence[Split]:
        """See `Connector`. The first call waits: without an earlier state, any open transaction may add a row anywhere."""
        deadline = time.monotonic() + (0 if self._waiting else _PATIENCE_S)
        while True:
            with self._open() as table:
                state = table.state()
            end = self._end(state)
            if end is not None or time.monotonic() >= deadline:
                return [Split(self._name, self._identity(state), end or 0, high=state.next, settled=end is not None)]
            time.sleep(_NAP_S)

    def _identity(self, state: TableState) -> str:
        """Return what positions are values of: a column of that table."""
        column = self.table.column if self.table.type == "postgres" else self.table.column.lower()
        return f"{state.identity}.{column}"

    def _end(self, state: TableState) -> int | None:
        """Return the end below which no row can appear any more; None: the first transactions have not ended yet."""
        self._waiting.append((state.next, state.writers))
        settled = [at for at, (_, writers) in enumerate(self._waiting) if not writers & state.writers]
        if settled:
            self._safe = max(self._safe or 0, self._waiting[settled[-1]][0])
            del self._waiting[: settled[-1] + 1]
        del self._waiting[1:-1]  # the oldest one ends first
        return None if self._safe is None else min(self._safe, state.next)

    def header(self, name: str) -> tuple[str, ...] | None:
        """See `Connector`: rows have the names of their columns."""
        return None

    def columns(self, name: str) -> Columns:
        """See `Connector`."""
        with self._open() as table:
            return table.columns()

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """See `Connector`."""
        with self._open() as table:
            found = table.state()
            if self._identity(found) != identity:
                raise ReadFailed(f"table {self.table.name} was replaced while it was read", "run it again")
            last = -1
            for block in table.records(span):
                offsets = block.column("offset").to_numpy()
                if (np.diff(offsets, prepend=last) <= 0).any():
                    raise ReadFailed(
                        f"table {self.table.name}: a value of {self.table.column} is there more than once",
                        "choose a unique column: source.table.column",
                    )
                last = int(offsets[-1]) if len(offsets) else last
                yield block
