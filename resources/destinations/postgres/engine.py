"""Load a PostgreSQL database: the engine of `SqlDestination`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.postgres import sql_dialect, table_extras, target_table
from resources.destinations.postgres.connection import Server, Session
from resources.destinations.postgres.constraint_violations import violations
from resources.destinations.postgres.merge_staging import DUPLICATES, copy
from resources.destinations.postgres.upsert import merge
from resources.destinations.sql.engine import Engine, ErrorClass, TargetTable, Violation
from resources.destinations.sql.ledger import format_table, history_tables
from resources.destinations.sql.ledger.table_definitions import FORMAT, PIPELINES
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.staged_reader import reader
from resources.destinations.staged_file_check import Proven

__all__ = ["PostgresEngine"]

_INSTANT = 1184  # oid of timestamptz
# SQLSTATE, appendix A of PostgreSQL's manual. Created or widened between check and statement; deadlock; serialization.
_CONFLICTS = {"42P07", "42701", "40001", "40P01"}
_REFUSED = ("22", "23", "42", "44", "54", "0A", "P0")  # data, constraints, definitions, checks of views, limits, triggers
_RIGHTS = "42501"  # insufficient_privilege
_LOST = ("08", "57P", "25P03")  # connection, shutdown or start of the server, idle too long
_LACKS = "53"  # disk space, memory, connections
_WHO = (
    "find the blocking session: SELECT pid, application_name, state FROM pg_stat_activity WHERE application_name LIKE 'kpipe%';"
    " pg_terminate_backend(pid) ends it"
)


class PostgresEngine(Engine):
    """A PostgreSQL database; tables are in the first schema of the user's search_path.

    Args:
        server: where to connect to.
        staging: folders of staged files.
    """

    dialect = sql_dialect.DIALECT
    errors = (psycopg.Error,)
    recovery_hint = "restore a backup of the database; or continue in another schema or database (into.database)"
    staging: tuple[Path, ...] = ()
    is_keyed = True
    exchange_refusal = ""

    def __init__(self, server: Server, staging: Sequence[Path] = ()) -> None:
        self.server, self.staging = server, tuple(staging)

    # Functions that use no state of the engine.
    ledger_exists = staticmethod(sql_dialect.present)
    create_ledger = staticmethod(sql_dialect.create)
    table_exists = staticmethod(sql_dialect.exists)
    columns = staticmethod(target_table.columns)
    required = staticmethod(target_table.required)
    primary_key = staticmethod(target_table.primary_key)
    prepare = staticmethod(target_table.prepare)
    lost_by_exchange = staticmethod(table_extras.lost_by_exchange)
    grant_as = staticmethod(table_extras.grant_as)

    def describe(self) -> str:
        """See `Engine`."""
        return f"PostgreSQL {self.server.place}"

    def hurry(self, seconds: float) -> None:
        """See `Engine`."""
        self.server.timeout.hurry(seconds)

    def exists(self) -> bool:
        """See `Engine`."""
        return True

    def reading(self) -> AbstractContextManager[Session]:
        """See `Engine`. All statements see one state: otherwise the pipeline's row and its lanes could be of two commits."""
        return self.server.session("ISOLATION LEVEL REPEATABLE READ")

    def reading_fresh(self) -> AbstractContextManager[Session]:
        """See `Engine`."""
        return self.server.session("ISOLATION LEVEL REPEATABLE READ", fresh=True)

    def writing(self, keyed: bool, row_bytes: int = 0) -> AbstractContextManager[Session]:
        """See `Engine`."""
        return self.server.session()

    def classify(self, error: Exception, step: str) -> ErrorClass:
        """See `Engine`."""
        state = getattr(error, "sqlstate", None) or ""
        text = str(error)
        if state == "55P03":
            return ErrorClass(busy=_WHO)
        if state.startswith(_LACKS):
            return ErrorClass(busy="the server has no free disk space, memory or connections: free some, then run it again")
        if state.startswith(_LOST) or (isinstance(error, psycopg.OperationalError) and not state):
            return ErrorClass(busy="the connection was lost; run it again")
        catalogue = state == "23505" and 'constraint "pg_' in text  # two transactions create the same table
        return ErrorClass(
            conflict=state in _CONFLICTS or catalogue,
            refused=state.startswith(_REFUSED),
            rights=state == _RIGHTS,
            damage=state in ("42P01", "42703") and not catalogue,
            taken=state == "23505",
        )

    def begin(self, connection: Session, pipeline: str, tables: Sequence[TargetTable]) -> tuple[bool, list[bool]]:
        """See `Engine`."""
        keyed = [table.name for table in tables if table.rule is not None]
        connection.begin("ISOLATION LEVEL READ COMMITTED" if keyed else "")
        sql_dialect.take_turns(connection, pipeline)
        known = self.ledger_exists(connection)
        if known:
            format_table.upgrade(connection, self.dialect, self.table_exists(connection, FORMAT.name))
            # Commits of a pipeline are serial, even with a client that takes no advisory lock.
            lock = f"SELECT 1 FROM {PIPELINES.sql} WHERE pipeline_name = $1 FOR UPDATE"  # noqa: S608 - a name of ours
            connection.execute(lock, [pipeline])
        there = {table.name: self.table_exists(connection, table.name) for table in tables}
        for name in sorted(keyed):  # all pipelines lock in one order
            if there[name]:
                sql_dialect.keep_out(connection, name)
        return known, list(there.values())

    def begin_snapshot(self, connection: Session) -> None:
        """See `Engine`."""
        connection.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def commit(self, connection: Session) -> None:
        """See `Engine`."""
        connection.commit()

    def await_commits(self, connection: Session, pipeline: str) -> None:
        """See `Engine`."""
        connection.begin("ISOLATION LEVEL READ COMMITTED")  # statements after the wait see the state after the wait
        sql_dialect.take_turns(connection, pipeline)

    def view_columns(self, connection: Session, view: str) -> list[tuple[str, bool]]:
        """See `Engine`."""
        found = connection.execute(f'SELECT * FROM "{view}" LIMIT 0').description or ()  # noqa: S608 - a name of ours
        return [(column.name, column.type_code == _INSTANT) for column in found]

    def insert(self, connection: Session, table: str, commit: Commit, files: Sequence[Proven], known: Columns) -> None:
        """See `Engine`."""
        if files:
            with reader(self.staging) as staged:
                target_table.insert(connection, staged, table, commit, files, known)

    def merge(self, connection: Session, batch: KeyedBatch) -> tuple[Commit, dict[Part, Holding]]:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return merge(connection, staged, batch, copy(connection, staged, batch))

    def check_deferred(self, connection: Session) -> None:
        """See `Engine`."""
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def insert_dead_letters(self, connection: Session, commit: Commit, files: Sequence[Proven], events: int) -> int:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return target_table.set_aside(connection, staged, commit, files, events)

    def insert_duplicates(self, connection: Session, commit: Commit, events: int) -> int:
        """See `Engine`."""
        return int(connection.execute(*history_tables.letters(self.dialect, commit, events, f"({DUPLICATES})")).rowcount)

    def violations(
        self, connection: Session, table: str, commit: Commit, files: Sequence[Proven], known: Columns
    ) -> Sequence[Violation]:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return violations(connection, staged, table, commit, files, known)

    def headers(self, stored: Any) -> list[tuple[str, bytes | None]]:
        """See `Engine`: values are in base64."""
        return [(item["name"], None if item["value"] is None else b64decode(item["value"])) for item in stored]
