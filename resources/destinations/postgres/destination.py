"""A PostgreSQL database as a destination."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg

from kpipe.batch.batch import Commit
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.postgres import sql_dialect, target_table
from resources.destinations.postgres.connection import Server, Session
from resources.destinations.postgres.constraint_violations import violations
from resources.destinations.postgres.merge_staging import DUPLICATES, FATES, FOLDED, ROWS, WRITES, copy
from resources.destinations.postgres.upsert import upsert
from resources.destinations.sql import history_tables
from resources.destinations.sql.clearing import ClearingDestination
from resources.destinations.sql.hooks import Verdict
from resources.destinations.sql.staged_reader import reader
from resources.destinations.sql.table_definitions import PIPELINES
from resources.destinations.staged_file_check import Proven, Writes

__all__ = ["PostgresDestination"]

_INSTANT = 1184  # oid of timestamptz
# SQLSTATE, appendix A of PostgreSQL's manual. Made, or widened, between the look and the statement; deadlock; serialization.
_CONFLICTS = {"42P07", "42701", "40001", "40P01"}
_REFUSED = ("22", "23", "42", "44", "54", "0A", "P0")  # data, constraints, definitions, views' checks, limits, triggers
_RIGHTS = "42501"  # insufficient_privilege
_LOST = ("08", "57P", "25P03")  # connection, server going down or coming up, idle too long
_LACKS = "53"  # room on a disk, memory, connections
_WHO = (
    "see who: SELECT pid, application_name, state FROM pg_stat_activity WHERE application_name LIKE 'kpipe%';"
    " pg_terminate_backend(pid) ends it"
)


class PostgresDestination(ClearingDestination):
    """One pipeline's table in a PostgreSQL database, in the first schema of the user's search_path.

    Args:
        server: where to connect to.
        table: name of the table.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in.
        rule: what happens to rows by their key; None: they have none.
        also: the further tables of the pipeline.
    """

    dialect = sql_dialect.DIALECT
    failures = (psycopg.Error,)
    rescue = "restore a backup of the database; or go on in another schema or database (into.database)"

    def __init__(
        self,
        server: Server,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        rule: KeyRule | None = None,
        also: Sequence[PostgresDestination] = (),
    ) -> None:
        super().__init__(table, pipeline, config_json, staging, rule, also)
        self.server = server

    def describe(self) -> str:
        """Kind, place and table."""
        return f"PostgreSQL {self.server.place}, table {self.table}"

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for a server that does not answer."""
        self.server.connect_s = seconds

    def required(self) -> Collection[str]:
        """Payload columns that take no NULL; see `Constrained`."""

        def read(connection: Any) -> Collection[str]:
            return target_table.required(connection, self.table) if sql_dialect.exists(connection, self.table) else ()

        nothing: Collection[str] = ()
        return self._read(read, nothing)

    def _there(self) -> bool:
        return True

    def _reading(self) -> AbstractContextManager[Session]:
        # All statements see one state: the pipeline's row and its lanes would else be those of two commits.
        return self.server.session("ISOLATION LEVEL REPEATABLE READ")

    def _writing(self) -> AbstractContextManager[Session]:
        return self.server.session()

    def _begin(self, connection: Session) -> tuple[bool, list[bool]]:
        connection.begin("ISOLATION LEVEL READ COMMITTED" if self._keyed() else "")
        sql_dialect.take_turns(connection, self.pipeline)
        known = sql_dialect.present(connection)
        if known:  # two commits of a pipeline never run side by side, whoever else has forgotten to take turns
            lock = f"SELECT 1 FROM {PIPELINES.sql} WHERE pipeline_name = $1 FOR UPDATE"  # noqa: S608 - a name of ours
            connection.execute(lock, [self.pipeline])
        there = {place.table: sql_dialect.exists(connection, place.table) for place in self.tables}
        for name in sorted(place.table for place in self.tables if place.rule is not None):  # all pipelines in one order
            if there[name]:
                sql_dialect.keep_out(connection, name)
        return known, list(there.values())

    def _snapshot(self, connection: Session) -> None:
        connection.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _present(self, connection: Session) -> bool:
        return sql_dialect.present(connection)

    def _exists(self, connection: Session, name: str) -> bool:
        return sql_dialect.exists(connection, name)

    def _create(self, connection: Session) -> None:
        sql_dialect.create(connection)

    def _all_columns(self, connection: Session) -> Columns:
        return target_table.columns(connection, self.table)

    def _prepare(self, connection: Session, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
        return target_table.prepare(connection, self.table, exists, commit, staged)

    def _insert(self, connection: Session, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
        if staged:
            with reader(self.staging) as files:
                target_table.insert(connection, files, self.table, commit, staged, known)

    def _primary_key(self, connection: Session) -> tuple[str, ...]:
        return target_table.primary_key(connection, self.table)

    def _upsert(
        self, connection: Session, commit: Commit, ledger: Ledger, staged: Writes, key: tuple[str, ...], known: Columns
    ) -> tuple[Commit, dict[Part, Holding]]:
        assert self.rule is not None
        if not self.is_first:  # those of another table of the same commit
            connection.execute(f"DROP TABLE IF EXISTS {WRITES}, {FATES}, {FOLDED}, {ROWS}")
        with reader(self.staging) as files:
            carried = copy(connection, files, self.table, commit, staged, key, known, bool(self.rule.update))
            return upsert(connection, self.table, commit, self.rule, ledger, key, carried, known, files)

    def _set_duplicates_aside(self, connection: Session, commit: Commit, events: int) -> None:
        connection.execute(*history_tables.letters(sql_dialect.DIALECT, commit, events, f"({DUPLICATES})"))

    def _headers(self, kept: Any) -> list[tuple[str, bytes | None]]:
        return [(item["name"], None if item["value"] is None else b64decode(item["value"])) for item in kept]

    def _violations(self, connection: Session, commit: Commit, staged: Sequence[Proven]) -> Sequence[tuple[int, int | None, str]]:
        known = self._prepare(connection, True, commit, staged)
        with reader(self.staging) as files:
            return violations(connection, files, self.table, commit, staged, known)

    def _set_aside(self, connection: Session, commit: Commit, staged: Sequence[Proven], events: int) -> int:
        with reader(self.staging) as files:
            return target_table.set_aside(connection, files, commit, staged, events)

    def _commit(self, connection: Session) -> None:
        connection.commit()

    def _settle(self, connection: Session) -> None:
        connection.begin("ISOLATION LEVEL READ COMMITTED")  # what is seen then is what is there after the wait
        sql_dialect.take_turns(connection, self.pipeline)

    def _described(self, connection: Session, view: str) -> list[tuple[str, bool]]:
        found = connection.execute(f'SELECT * FROM "{view}" LIMIT 0').description or ()  # noqa: S608 - a name of ours
        return [(column.name, column.type_code == _INSTANT) for column in found]

    def _judge(self, error: Exception, step: str) -> Verdict:
        state = getattr(error, "sqlstate", None) or ""
        text = str(error)
        if state == "55P03":
            return Verdict(busy=_WHO)
        if state.startswith(_LACKS):
            return Verdict(busy="the server lacks room, memory or connections: free some, then run it again")
        if state.startswith(_LOST) or (isinstance(error, psycopg.OperationalError) and not state):
            return Verdict(busy="the connection was lost; run it again")
        catalogue = state == "23505" and 'constraint "pg_' in text  # two that make the same table
        return Verdict(
            conflict=state in _CONFLICTS or catalogue,
            refused=state.startswith(_REFUSED),
            rights=state == _RIGHTS,
            damage=state in ("42P01", "42703") and not catalogue,
            taken=state == "23505",
        )
