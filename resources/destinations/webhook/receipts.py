"""The ledger of a webhook: a DuckDB file whose table holds receipts, and which columns rows have had."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.batch.batch import Commit, Committed
from kpipe.errors import SchemaConflict
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from resources.destinations.duckdb import DuckDBDestination, sql_dialect, target_table
from resources.destinations.lakehouse.type_widening import grown
from resources.destinations.sql import history_tables, ledger_table
from resources.destinations.sql.column_matching import widening
from resources.destinations.sql.table_definitions import COMMITS
from resources.destinations.staged_file_check import Proven
from resources.destinations.webhook.dispatcher import RECEIPTS
from resources.duckdb_engine.file_connection import Connection
from resources.type_compatibility import COORDINATES

__all__ = ["Book", "Look"]

#: By table of receipts: columns of the rows that were sent, as JSON.
_SENT = "main.kpipe_sent"
_CREATE = f"CREATE TABLE IF NOT EXISTS {_SENT} (target_table VARCHAR, columns VARCHAR)"
_SELECT = f"SELECT columns FROM {_SENT} WHERE lower(target_table) = lower($1)"


@dataclass(frozen=True)
class Look:
    """What the ledger says at one moment.

    Attributes:
        landed: the commit that was asked for, where it has landed.
        columns: payload columns that rows have had.
        ledger: lanes.
    """

    landed: Committed | None
    columns: Columns
    ledger: Ledger


class Book(DuckDBDestination):
    """One pipeline's receipts, dead letters and lanes. What is committed to it has been sent before.

    Attributes:
        wanted: columns of the rows of the commit at hand.
    """

    wanted: Columns = Columns()

    def sent_columns(self) -> Columns | None:
        """Payload columns that rows have had; None before the first.

        Raises:
            LedgerMismatch: the table of receipts is gone, and the ledger says that there were some.
            SchemaConflict: the table of that name holds no receipts.
        """
        if super().columns() is None:
            return None
        found: Columns | None = self._read(self._known, None)
        return found

    def look(self, commit: Commit) -> Look:
        """What the ledger says before a commit, through one connection.

        Raises:
            LedgerMismatch, SchemaConflict: as `sent_columns`.
        """

        def read(connection: Any) -> Look:
            if not sql_dialect.present(connection):
                return Look(None, Columns(), Ledger(self.pipeline))
            row = connection.execute(
                f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [commit.id, self.pipeline]
            ).fetchone()
            landed = None if row is None else Committed(history_tables.settled(connection, commit), row[0])
            columns = Columns()
            if landed is None and sql_dialect.exists(connection, self.table):
                columns = self._known(connection)
            elif landed is None:
                self._check_gone(connection)
            return Look(landed, columns, ledger_table.read(connection, self.pipeline)[1])

        found: Look = self._read(read, Look(None, Columns(), Ledger(self.pipeline)))
        return found

    def _known(self, connection: Any) -> Columns:
        self._check_own(connection)
        if not sql_dialect.exists(connection, "kpipe_sent"):
            return Columns()
        rows = connection.execute(_SELECT, [self.table]).fetchall()
        return Columns.of(dict(json.loads(rows[0][0]))) if rows else Columns()

    def _check_own(self, connection: Connection) -> None:
        """The table is one of receipts: an ordinary one of that name is not to be mixed with them.

        Raises:
            SchemaConflict: it is not.
        """
        found = target_table.columns(connection, self.table).without(COORDINATES.names())
        if found != RECEIPTS:
            raise SchemaConflict(
                f"table {self.table} in {self.database.path} is there, and holds no receipts of a webhook",
                "name another for them: into.table",
            )

    def _prepare(self, connection: Connection, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
        if exists:
            self._check_own(connection)
        known = super()._prepare(connection, exists, commit, staged)
        connection.execute(_CREATE)
        rows = connection.execute(_SELECT, [self.table]).fetchall()
        old = Columns.of(dict(json.loads(rows[0][0]))) if rows else Columns()
        wide = grown(old, widening(old, self.wanted))
        if wide != old or not rows:
            connection.execute(f"DELETE FROM {_SENT} WHERE lower(target_table) = lower($1)", [self.table])
            text = json.dumps([[name, str(kind)] for name, kind in wide])
            connection.execute(f"INSERT INTO {_SENT} VALUES ($1, $2)", [self.table, text])
        return known
