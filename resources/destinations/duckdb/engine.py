"""Load a DuckDB file: the engine of `SqlDestination`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.duckdb import table_extras, target_table
from resources.destinations.duckdb.constraint_violations import violations
from resources.destinations.duckdb.upsert import DUPLICATES, merge
from resources.destinations.sql.engine import Engine, ErrorClass, TargetTable
from resources.destinations.sql.ledger import duckdb_dialect, format_table, history_tables
from resources.destinations.sql.ledger.table_definitions import FORMAT
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine import row_groups
from resources.duckdb_engine.file_connection import Connection, Database, FileState, quote
from resources.duckdb_engine.memory_limit import VARIABLE, engine_bytes
from resources.duckdb_engine.sql_types import READ

__all__ = ["DuckDBEngine"]

_REFUSED = (
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.CatalogException,
    duckdb.DependencyException,
    duckdb.ParserException,
    duckdb.BinderException,
)
_MEMORY = f"make batches smaller (batch.max_bytes_per_partition), or set {VARIABLE} to more memory"


class DuckDBEngine(Engine):
    """A DuckDB file; tables are in its schema main.

    The file is opened for each call and closed at the end of it, so other programs can read between batches.

    Args:
        path: the file; created by the first commit.
        staging: folders of staged files; nothing else on the machine can be read through the connection.
        lock_timeout_s: longest wait for another process that has the file open.
    """

    dialect = duckdb_dialect.DIALECT
    letters = "{}"  # staged dead letters, as SQL, from the files
    errors = (duckdb.Error,)
    recovery_hint = "restore a backup of the file; or continue in another file (into.database)"
    staging: tuple[Path, ...] = ()
    is_keyed = True
    remembers = True
    exchange_refusal = ""

    def __init__(self, path: Path, staging: Sequence[Path] = (), lock_timeout_s: float = 30) -> None:
        self.staging = tuple(staging)
        self.database = Database(path, staging, lock_timeout_s)
        self._kept: dict[Hashable, tuple[FileState | None, Any]] = {}

    # Functions that use no state of the engine.
    ledger_exists = staticmethod(duckdb_dialect.present)
    create_ledger = staticmethod(duckdb_dialect.create)
    table_exists = staticmethod(duckdb_dialect.exists)
    columns = staticmethod(target_table.columns)
    required = staticmethod(target_table.required)
    primary_key = staticmethod(target_table.primary_key)
    insert = staticmethod(target_table.insert)
    violations = staticmethod(violations)
    lost_by_exchange = staticmethod(table_extras.lost_by_exchange)

    def describe(self) -> str:
        """See `Engine`."""
        return f"DuckDB {self.database.path}"

    def merge(self, connection: Connection, batch: KeyedBatch) -> tuple[Commit, dict[Part, Holding]]:
        """See `Engine`."""
        return merge(connection, batch)

    def exists(self) -> bool:
        """See `Engine`."""
        return self.database.exists()

    def reading(self) -> AbstractContextManager[Connection]:
        """See `Engine`."""
        return self.database.read()

    def writing(self, keyed: bool, row_bytes: int = 0) -> AbstractContextManager[Connection]:
        """See `Engine`."""
        return self.database.write(row_bytes, functions=keyed)  # ON DUPLICATE KEY UPDATE may call them

    def batch_bytes(self, record_bytes: float) -> int | None:
        """See `Engine`."""
        return row_groups.batch_bytes(record_bytes, engine_bytes())

    def remember(self, what: Hashable, value: Any) -> None:
        """See `Engine`."""
        self._kept[what] = self.database.state(), value

    def recall(self, what: Hashable) -> Any:
        """See `Engine`."""
        state, value = self._kept.get(what, (None, None))
        return value if state is not None and state == self.database.state() else None

    def classify(self, error: Exception, step: str) -> ErrorClass:
        """See `Engine`."""
        transaction = isinstance(error, duckdb.TransactionException)
        conflict = transaction and (not step or "onflict" in str(error) or "UNIQUE" in str(error))
        # Another commit of this process created it after the check and before the transaction.
        made = bool(step) and isinstance(error, duckdb.CatalogException) and "already exists" in str(error)
        return ErrorClass(
            conflict=conflict or made,
            refused=isinstance(error, _REFUSED),
            damage=duckdb_dialect.is_damage(error),
            taken=isinstance(error, duckdb.ConstraintException),
            hint=_MEMORY if isinstance(error, duckdb.OutOfMemoryException) else "",
        )

    def begin(self, connection: Connection, pipeline: str, tables: Sequence[TargetTable]) -> tuple[bool, list[bool]]:
        """See `Engine`."""
        # Before the transaction begins: a query of a missing table would abort it.
        recorded = duckdb_dialect.recorded(connection)
        known = recorded or self.ledger_exists(connection)
        found = known, [self.table_exists(connection, table.name) for table in tables]
        recorded = recorded or self.table_exists(connection, FORMAT.name)
        connection.execute("BEGIN")
        if known:
            format_table.upgrade(connection, self.dialect, recorded)
        return found

    def begin_snapshot(self, connection: Connection) -> None:
        """See `Engine`."""
        connection.execute("BEGIN TRANSACTION READ ONLY")

    def commit(self, connection: Connection) -> None:
        """See `Engine`."""
        connection.execute("COMMIT")

    def await_commits(self, connection: Connection, pipeline: str) -> None:
        """See `Engine`: a commit runs in this process, and has ended."""

    def view_columns(self, connection: Connection, view: str) -> list[tuple[str, bool]]:
        """See `Engine`."""
        rows = connection.execute(f"DESCRIBE {quote('main', view)}").fetchall()
        return [(name, kind == "TIMESTAMP WITH TIME ZONE") for name, kind, *_ in rows]

    def prepare(self, connection: Connection, table: str, exists: bool, commit: Commit, files: Sequence[Proven]) -> Columns:
        """See `Engine`."""
        return target_table.prepare(connection, table, exists, commit, files)

    def insert_dead_letters(self, connection: Connection, commit: Commit, files: Sequence[Proven], events: int) -> int:
        """See `Engine`."""
        source = self.letters.format(READ.format("$11"))
        statement, parameters = history_tables.letters(self.dialect, commit, events, source, [[file.path for file in files]])
        row = connection.execute(statement, parameters).fetchone()
        return row[0] if row else 0

    def insert_duplicates(self, connection: Connection, commit: Commit, events: int) -> int:
        """See `Engine`."""
        row = connection.execute(*history_tables.letters(self.dialect, commit, events, f"({DUPLICATES})")).fetchone()
        return row[0] if row else 0
