"""The ledger of a webhook: a DuckDB file with a receipts table and the payload columns of all rows so far."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Committed
from kpipe.errors import SchemaConflict
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.sql.column_matching import widening
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.destinations.sql.ledger import history_tables, ledger_table
from resources.destinations.sql.ledger.table_definitions import COMMITS
from resources.destinations.staged_file_check import Proven
from resources.destinations.webhook.dispatcher import RECEIPTS
from resources.type_compatibility import COORDINATES

__all__ = ["ReceiptsDestination", "ReceiptsState"]

#: For each receipts table: columns of the rows that were sent, as JSON.
_SENT = "main.kpipe_sent"
_CREATE = f"CREATE TABLE IF NOT EXISTS {_SENT} (target_table VARCHAR, columns VARCHAR)"
_SELECT = f"SELECT columns FROM {_SENT} WHERE lower(target_table) = lower($1)"


@dataclass(frozen=True)
class ReceiptsState:
    """The state of the ledger at one moment.

    Attributes:
        landed: the requested commit, if it is in the ledger.
        columns: payload columns of all rows so far.
        ledger: lanes.
    """

    landed: Committed | None
    columns: Columns
    ledger: Ledger


class ReceiptsDestination(SqlDestination["ReceiptsEngine"]):
    """One pipeline's receipts, dead letters and lanes. Rows are sent before they are committed here.

    Args:
        path: the DuckDB file.
        table: name of the receipts table.
        pipeline: name of the pipeline.
        config: the pipeline's definition for display, without secrets.
        staging: folders of staged files.
        lock_timeout_s: longest wait for another process that has the file open.
    """

    def __init__(
        self,
        path: Path,
        table: str,
        pipeline: str,
        config: Mapping[str, Any] | None,
        staging: Sequence[Path],
        lock_timeout_s: float,
    ) -> None:
        super().__init__(ReceiptsEngine(path, staging, lock_timeout_s), pipeline, [TargetTable(table)], config)

    def sent_columns(self) -> Columns | None:
        """Return the payload columns of all rows so far; None before the first commit.

        Raises:
            LedgerMismatch: the receipts table is missing, and the ledger records receipts.
            SchemaConflict: the table of that name is not a receipts table.
        """
        if self.columns() is None:
            return None
        found: Columns | None = self.store.read(lambda connection: self.engine.sent(connection, self.store.table), None)
        return found

    def look(self, commit: Commit) -> ReceiptsState:
        """Return the state of the ledger before a commit, through one connection.

        Raises:
            LedgerMismatch, SchemaConflict: as `sent_columns`.
        """
        engine, table = self.engine, self.store.table

        def read(connection: Any) -> ReceiptsState:
            row = connection.execute(
                f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [commit.id, self.pipeline]
            ).fetchone()
            landed = None if row is None else Committed(history_tables.settled(connection, commit), row[0])
            columns = Columns()
            if landed is None and engine.table_exists(connection, table):
                columns = engine.sent(connection, table)
            elif landed is None:
                self.check_missing(connection, self.store.table)
            return ReceiptsState(landed, columns, ledger_table.read(connection, self.pipeline)[1])

        return self.store.read_ledger(read, ReceiptsState(None, Columns(), Ledger(self.pipeline)))


class ReceiptsEngine(DuckDBEngine):
    """A DuckDB file with receipts tables, and the columns of the rows that were sent.

    Attributes:
        wanted: columns of the rows of the current commit.
    """

    wanted: Columns = Columns()

    def sent(self, connection: Any, table: str) -> Columns:
        """Return the payload columns of all rows so far.

        Raises:
            SchemaConflict: the table is not a receipts table.
        """
        self.check_receipts(connection, table)
        if not self.table_exists(connection, "kpipe_sent"):
            return Columns()
        return _recorded(connection, table)[0]

    def check_receipts(self, connection: Any, table: str) -> None:
        """Check that an existing table contains receipts: other rows must not be mixed with them.

        Raises:
            SchemaConflict: it is not a receipts table.
        """
        if self.columns(connection, table).without(COORDINATES.names()) != RECEIPTS:
            raise SchemaConflict(
                f"table {table} in {self.database.path}: expected receipts of a webhook, found another table of that name",
                "choose another name for the receipts table: into.table",
            )

    def prepare(self, connection: Any, table: str, exists: bool, commit: Commit, files: Sequence[Proven]) -> Columns:
        """Create the table and record the columns of the rows; see `Engine`."""
        if exists:
            self.check_receipts(connection, table)
        known = super().prepare(connection, table, exists, commit, files)
        connection.execute(_CREATE)
        old, is_recorded = _recorded(connection, table)
        wide = grown(old, widening(old, self.wanted))
        if wide != old or not is_recorded:
            connection.execute(f"DELETE FROM {_SENT} WHERE lower(target_table) = lower($1)", [table])
            text = json.dumps([[name, str(kind)] for name, kind in wide])
            connection.execute(f"INSERT INTO {_SENT} VALUES ($1, $2)", [table, text])
        return known


def _recorded(connection: Any, table: str) -> tuple[Columns, bool]:
    """Return the recorded columns, and whether the table is recorded."""
    rows = connection.execute(_SELECT, [table]).fetchall()
    return (Columns.of(dict(json.loads(rows[0][0]))) if rows else Columns()), bool(rows)
