"""A DuckDB file as a destination."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb

from kpipe.batch.batch import Commit
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.duckdb import sql_dialect, target_table
from resources.destinations.duckdb.constraint_violations import violations
from resources.destinations.duckdb.upsert import DUPLICATES, upsert
from resources.destinations.sql import history_tables
from resources.destinations.sql.clearing import ClearingDestination
from resources.destinations.sql.hooks import Verdict
from resources.destinations.staged_file_check import Proven, Writes
from resources.duckdb_engine.file_connection import Connection, Database, quote
from resources.duckdb_engine.sql_types import READ

__all__ = ["DuckDBDestination"]

_REFUSED = (
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.CatalogException,
    duckdb.DependencyException,
    duckdb.ParserException,
    duckdb.BinderException,
)


class DuckDBDestination(ClearingDestination):
    """One pipeline's table in a DuckDB file.

    The file is opened for each call and closed at the end of it, so other programs can read between batches.

    Args:
        path: the file; made at the first commit.
        table: name of the table in schema main.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in; nothing else on the machine can be read through the connection.
        lock_timeout_s: longest wait for another process that has the file open.
        rule: what happens to rows by their key; None: they have none.
        also: the further tables of the pipeline.
    """

    dialect = sql_dialect.DIALECT
    failures = (duckdb.Error,)
    rescue = "restore a backup of the file; or go on in another file (into.database)"

    def __init__(
        self,
        path: Path,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        lock_timeout_s: float = 30,
        rule: KeyRule | None = None,
        also: Sequence[DuckDBDestination] = (),
    ) -> None:
        super().__init__(table, pipeline, config_json, staging, rule, also)
        self.database = Database(path, staging, lock_timeout_s)

    def describe(self) -> str:
        """Kind, place and table."""
        return f"DuckDB {self.database.path}, table {self.table}"

    def required(self) -> Collection[str]:
        """Payload columns that take no NULL; see `Constrained`."""

        def read(connection: Any) -> Collection[str]:
            return target_table.required(connection, self.table) if sql_dialect.exists(connection, self.table) else ()

        nothing: Collection[str] = ()
        return self._read(read, nothing)

    def _there(self) -> bool:
        return self.database.exists()

    def _reading(self) -> AbstractContextManager[Connection]:
        return self.database.read()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self.database.write()

    def _begin(self, connection: Connection) -> tuple[bool, list[bool]]:
        # Before it begins: a look at what is not there would abort it.
        found = sql_dialect.present(connection), [sql_dialect.exists(connection, place.table) for place in self.tables]
        connection.execute("BEGIN")
        return found

    def _snapshot(self, connection: Connection) -> None:
        connection.execute("BEGIN TRANSACTION READ ONLY")

    def _present(self, connection: Connection) -> bool:
        return sql_dialect.present(connection)

    def _exists(self, connection: Connection, name: str) -> bool:
        return sql_dialect.exists(connection, name)

    def _create(self, connection: Connection) -> None:
        sql_dialect.create(connection)

    def _all_columns(self, connection: Connection) -> Columns:
        return target_table.columns(connection, self.table)

    def _prepare(self, connection: Connection, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
        return target_table.prepare(connection, self.table, exists, commit, staged)

    def _insert(self, connection: Connection, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
        target_table.insert(connection, self.table, commit, staged, known)

    def _primary_key(self, connection: Connection) -> tuple[str, ...]:
        return target_table.primary_key(connection, self.table)

    def _upsert(
        self, connection: Connection, commit: Commit, ledger: Ledger, staged: Writes, key: tuple[str, ...], known: Columns
    ) -> tuple[Commit, dict[Part, Holding]]:
        assert self.rule is not None
        return upsert(connection, self.table, commit, self.rule, ledger, staged, key, known)

    def _set_duplicates_aside(self, connection: Connection, commit: Commit, events: int) -> None:
        connection.execute(*history_tables.letters(sql_dialect.DIALECT, commit, events, f"({DUPLICATES})"))

    def _violations(
        self, connection: Connection, commit: Commit, staged: Sequence[Proven]
    ) -> Sequence[tuple[int, int | None, str]]:
        return violations(connection, self.table, commit, staged, self._prepare(connection, True, commit, staged))

    def _set_aside(self, connection: Connection, commit: Commit, staged: Sequence[Proven], events: int) -> int:
        statement, parameters = history_tables.letters(
            sql_dialect.DIALECT, commit, events, READ.format("$11"), [[file.path for file in staged]]
        )
        row = connection.execute(statement, parameters).fetchone()
        return row[0] if row else 0

    def _commit(self, connection: Connection) -> None:
        connection.execute("COMMIT")

    def _settle(self, connection: Connection) -> None:
        pass  # a commit is in this process, and has answered

    def _described(self, connection: Connection, view: str) -> list[tuple[str, bool]]:
        rows = connection.execute(f"DESCRIBE {quote('main', view)}").fetchall()
        return [(name, kind == "TIMESTAMP WITH TIME ZONE") for name, kind, *_ in rows]

    def _judge(self, error: Exception, step: str) -> Verdict:
        transaction = isinstance(error, duckdb.TransactionException)
        conflict = transaction and (not step or "onflict" in str(error) or "UNIQUE" in str(error))
        # Made between the look and the transaction, by another commit of this process.
        made = bool(step) and isinstance(error, duckdb.CatalogException) and "already exists" in str(error)
        return Verdict(
            conflict=conflict or made,
            refused=isinstance(error, _REFUSED),
            damage=sql_dialect.is_damage(error),
            taken=isinstance(error, duckdb.ConstraintException),
        )
