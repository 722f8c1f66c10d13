"""Load a DuckLake: the engine of `SqlDestination`."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import duckdb

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from kpipe.schema.columns import Columns
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.duckdb.constraint_violations import Rule, rejected
from resources.destinations.duckdb.engine import DuckDBEngine
from resources.destinations.duckdb.upsert import merge
from resources.destinations.ducklake import data_files
from resources.destinations.ducklake.file_lake import FileLake
from resources.destinations.ducklake.footers import check_rows
from resources.destinations.ducklake.server_lake import ServerLake
from resources.destinations.ducklake.sql_dialect import DIALECT, LETTERS
from resources.destinations.sql.engine import ErrorClass, TargetTable, Violation
from resources.destinations.sql.ledger import duckdb_dialect, format_table
from resources.destinations.sql.ledger.table_definitions import FORMAT
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.sql_dialect import Dialect
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection
from resources.durable_files import sync_file_system

__all__ = ["DuckLakeEngine"]

# Words of a conflict that DuckLake or its catalog reports at COMMIT, or when a change is written.
_CONFLICTS = (
    "onflict", "duplicate key", "could not serialize", "database is locked", "concurrent", "UNIQUE constraint", "deadlock",
)  # fmt: skip


@contextmanager
def _one_state(lake: FileLake | ServerLake) -> Iterator[Connection]:
    """Open a connection in a read-only transaction, which ends with it. A query of a missing table does not abort it."""
    with lake.read() as connection:
        connection.execute("BEGIN TRANSACTION READ ONLY")
        yield connection


class DuckLakeEngine(DuckDBEngine):
    """A lake; tables are in its schema main.

    Args:
        lake: catalog and data folder.
        staging: folders of staged files; nothing else on the machine can be read through a connection.
    """

    dialect = DIALECT
    letters = LETTERS
    exchange_refusal = "tables of a DuckLake are not renamed in one transaction"
    recovery_hint = "restore a backup of the catalog and its data folder; or continue in another lake (into.catalog)"

    def __init__(self, lake: FileLake | ServerLake, staging: Sequence[Path] = ()) -> None:
        super().__init__(Path("unused"), staging)
        self.lake = lake
        self.database = lake  # type: ignore[assignment]

    def describe(self) -> str:
        """See `Engine`."""
        return self.lake.catalog.describe()

    def hurry(self, seconds: float) -> None:
        """See `Engine`."""
        self.lake.hurry(seconds)

    def reading(self) -> AbstractContextManager[Connection]:
        """See `Engine`. All statements see one state: a catalog in SQLite or PostgreSQL takes commits of others meanwhile."""
        return _one_state(self.lake)

    def reading_fresh(self) -> AbstractContextManager[Connection]:
        """See `Engine`."""
        return _one_state(self.lake.fresh)

    def begin_snapshot(self, connection: Connection) -> None:
        """See `Engine`: `reading` has begun it."""

    def batch_bytes(self, record_bytes: float) -> int | None:
        """See `Engine`: registered rows are not read."""
        return None

    def create_ledger(self, connection: Connection, dialect: Dialect = DIALECT) -> None:
        """See `Engine`."""
        duckdb_dialect.create(connection, dialect)

    def required(self, connection: Connection, table: str) -> list[str]:
        """See `Engine`."""
        return [name for name in data_files.required(connection, table) if not name.lower().startswith("_kafka_")]

    def primary_key(self, connection: Connection, table: str) -> tuple[str, ...]:
        """See `Engine`: DuckLake has no keys."""
        return ()

    def classify(self, error: Exception, step: str) -> ErrorClass:
        """See `Engine`."""
        found = super().classify(error, step)
        if isinstance(error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)):
            return found  # not from the catalog's database: these errors have no class of their own
        conflict = any(word in str(error) for word in _CONFLICTS)
        return ErrorClass(conflict, found.refused and not conflict, found.damage, found.busy, hint=found.hint)

    def begin(self, connection: Connection, pipeline: str, tables: Sequence[TargetTable]) -> tuple[bool, list[bool]]:
        """See `Engine`. Changing one row fences the commit: two transactions that only insert would both commit.

        The transaction begins before the tables are looked for, as another run may create them at any time.
        """
        connection.execute("BEGIN")
        known = self.ledger_exists(connection)
        if known:
            format_table.upgrade(connection, self.dialect, self.table_exists(connection, FORMAT.name))
            self.dialect.change(connection, f"UPDATE {FORMAT.sql} SET version = version")
        return known, [self.table_exists(connection, table.name) for table in tables]

    def commit(self, connection: Connection) -> None:
        """See `Engine`. DuckLake writes Parquet files without syncing them, and a power cut would lose them.

        Raises:
            DestinationError: the disk failed.
        """
        try:
            sync_file_system(self.lake.data)
            super().commit(connection)
            self.lake.settle()
        except OSError as error:
            raise DestinationError(f"{self.lake.data}: {error.strerror or error}", "check the disk, then run it again") from error

    def insert(self, connection: Connection, table: str, commit: Commit, files: Sequence[Proven], known: Columns) -> None:
        """See `Engine`."""
        data_files.insert(connection, self.lake, table, commit, files, known)

    def merge(self, connection: Connection, batch: KeyedBatch) -> tuple[Commit, dict[Part, Holding]]:
        """See `Engine`."""
        return merge(connection, batch, partial(check_rows, connection, batch.table))

    def violations(
        self, connection: Connection, table: str, commit: Commit, files: Sequence[Proven], known: Columns
    ) -> list[Violation]:
        """See `Engine`."""
        rules: list[Rule] = [("NOT NULL", None, [name]) for name in data_files.required(connection, table)]
        return rejected(connection, table, commit, files, known, rules)

    def lost_by_exchange(self, connection: Connection, live: str, rebuilt: str) -> Sequence[str]:
        """See `Engine`: there are no indexes and constraints."""
        return ()
