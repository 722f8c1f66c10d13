"""A MariaDB, MySQL or SingleStore database as a destination."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pymysql

from kpipe.batch.batch import Commit
from kpipe.batch.conflicts import applied
from kpipe.errors import DestinationError, NotAvailable
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.mysql import sql_dialect, target_table
from resources.destinations.mysql.connection import Server
from resources.destinations.mysql.constraint_violations import violations
from resources.destinations.mysql.merge_staging import FATES, FOLDED, MET, ROWS, WRITES, copy, duplicates
from resources.destinations.mysql.session import READ, WRITE, Session
from resources.destinations.mysql.sql_dialect import MySQLDialect
from resources.destinations.mysql.upsert import upsert
from resources.destinations.sql import history_tables, ledger_table, multi_table
from resources.destinations.sql.clearing import ClearingDestination
from resources.destinations.sql.column_matching import missing
from resources.destinations.sql.hooks import Verdict
from resources.destinations.sql.staged_reader import reader
from resources.destinations.staged_file_check import Proven, Writes

__all__ = ["MySQLDestination"]

_INSTANT = 12  # DATETIME; the ledger's are all UTC
# Errors by number, as MariaDB and MySQL list them. Deadlock, snapshot too old, a definition that has changed meanwhile.
_CONFLICTS = {1020, 1050, 1060, 1061, 1213, 1412, 1615, 3572}
_TAKEN = {1022, 1062, 1586}
_GONE = {1054, 1146, 1356}  # column, table, what a view needs
# Connection, server going down or coming up, no resources, killed, idle for too long.
_LOST = {
    0,
    1040,
    1053,
    1129,
    1152,
    1158,
    1159,
    1160,
    1161,
    1184,
    1203,
    1226,
    1317,
    1927,
    2002,
    2003,
    2006,
    2013,
    2014,
    2055,
    4031,
}
_RIGHTS = {1044, 1142, 1143, 1227, 1370}
_WAITED = {1205, 3024, 1969}
# Data, constraints, definitions, what the account may not do with the table, triggers.
_REFUSED = {
    1048, 1054, 1059, 1062, 1067, 1071, 1074, 1101, 1103, 1104, 1113, 1117, 1118, 1138, 1142, 1143, 1166, 1169, 1216, 1217, 1264,
    1265, 1292, 1348, 1361, 1364, 1366, 1369, 1406, 1416, 1419, 1426, 1439, 1442, 1451, 1452, 1471, 1526, 1644, 1690, 1748, 1901,
    1906, 1907, 3105, 3140, 3819, 4025, 4078,
}  # fmt: skip
_WHO = "see who: SELECT * FROM information_schema.innodb_trx; SHOW PROCESSLIST; KILL id ends it"


class MySQLDestination(ClearingDestination):
    """One pipeline's table in a database of a MariaDB or MySQL server.

    Args:
        server: where to connect to.
        table: name of the table.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in.
        rule: what happens to rows by their key; None: they have none.
        also: the further tables of the pipeline.
        dialect: MariaDB's, MySQL's, or SingleStore's.

    Raises:
        NotAvailable: there is a rule, and the database knows no keys.
    """

    dialect: MySQLDialect
    failures = (pymysql.err.Error,)
    rescue = "restore a backup of the database; or go on in another database (into.database)"

    def __init__(
        self,
        server: Server,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        rule: KeyRule | None = None,
        also: Sequence[MySQLDestination] = (),
        dialect: MySQLDialect = sql_dialect.DIALECT,
    ) -> None:
        if rule is not None and not dialect.keyed:
            what = f"pipeline {pipeline}: into.key and into.on_conflict are not available for this database"
            raise NotAvailable(what, "leave them out")
        super().__init__(table, pipeline, config_json, staging, rule, also)
        self.server, self.dialect = server, dialect

    def describe(self) -> str:
        """Kind, place and table."""
        return f"{'MySQL' if self.dialect.keyed else 'SingleStore'} {self.server.place}, table {self.table}"

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
        return self._session(READ)

    def _writing(self) -> AbstractContextManager[Session]:
        # Gaps are locked in REPEATABLE READ only, and what a key has not met there must not come meanwhile.
        return self._session(READ if self._keyed() else WRITE)

    def _clearing(self) -> AbstractContextManager[Session]:
        return self._session(WRITE)  # what is deleted is what is there, so the history must be read as it is then, too

    @contextmanager
    def _session(self, mode: str) -> Iterator[Session]:
        with self.server.session(mode) as session:
            for place in self._places():
                place.dialect = sql_dialect.fitting(self.dialect, session)
            yield session

    def _ready(self, connection: Session, commit: Commit, parts: Sequence[Commit], staged: Sequence[Writes]) -> None:
        self._check(connection)
        if not sql_dialect.present(connection):
            sql_dialect.create(connection, self.dialect)
        for place, part, writes in zip(self._places(), parts, staged, strict=False):
            files = (*writes.rows, *writes.deletes)
            if part.columns or files:
                # One that is too late makes nothing; whether it is, the transaction finds out once more.
                applied(ledger_table.read(connection, self.pipeline)[1], commit)
                place._make(connection, part, files)

    def _make(self, connection: Session, commit: Commit, staged: Sequence[Proven]) -> None:
        there = sql_dialect.exists(connection, self.table)
        if not there and self.is_first:
            self._check_gone(connection)
        elif not there and (rows := multi_table.written(connection, self.dialect, self.pipeline, self.table)):
            raise missing(self.pipeline, self.table, rows)
        key = self._key(connection) if self.rule is not None else ()
        target_table.make(connection, self.dialect, self.table, there, target_table.needed_by(commit, staged), key)

    def _places(self) -> list[MySQLDestination]:
        return [place for place in self.tables if isinstance(place, MySQLDestination)]

    def _begin(self, connection: Session) -> tuple[bool, list[bool]]:
        known = sql_dialect.present(connection)
        there = [sql_dialect.exists(connection, place.table) for place in self.tables]
        connection.begin()
        for name in sorted(place.table for place in self.tables if place.rule is not None):  # all pipelines in one order
            sql_dialect.key_alone(connection, name)
        if known:
            sql_dialect.lock(connection, self.pipeline)
        return known, there

    def _snapshot(self, connection: Session) -> None:
        connection.begin(READ, snapshot=True)

    def _present(self, connection: Session) -> bool:
        return sql_dialect.present(connection)

    def _exists(self, connection: Session, name: str) -> bool:
        return sql_dialect.exists(connection, name)

    def _create(self, connection: Session) -> None:
        raise pymysql.err.OperationalError(1412, "the tables of the ledger have just been dropped")

    def _all_columns(self, connection: Session) -> Columns:
        return target_table.columns(connection, self.table)

    def _prepare(self, connection: Session, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
        return target_table.prepare(connection, self.table, exists, target_table.needed_by(commit, staged))

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
            connection.execute(f"DROP TEMPORARY TABLE IF EXISTS {WRITES}, {MET}, {FATES}, {FOLDED}, {ROWS}")
        with reader(self.staging) as files:
            carried = copy(connection, files, self.table, commit, staged, key, known)
            return upsert(connection, self.table, commit, self.rule, ledger, key, carried, known, files)

    def _set_duplicates_aside(self, connection: Session, commit: Commit, events: int) -> None:
        connection.execute(*history_tables.letters(self.dialect, commit, events, f"({duplicates(self.dialect)})"))

    def _headers(self, kept: Any) -> list[tuple[str, bytes | None]]:
        found = json.loads(kept)
        return [(item["name"], None if item["value"] is None else b64decode(item["value"])) for item in found]

    def _violations(self, connection: Session, commit: Commit, staged: Sequence[Proven]) -> Sequence[tuple[int, int | None, str]]:
        known = self._prepare(connection, True, commit, staged)
        with reader(self.staging) as files:
            return violations(connection, files, self.table, commit, staged, known)

    def _set_aside(self, connection: Session, commit: Commit, staged: Sequence[Proven], events: int) -> int:
        with reader(self.staging) as files:
            return target_table.set_aside(connection, self.dialect, files, commit, staged, events)

    def _commit(self, connection: Session) -> None:
        connection.commit()

    def _settle(self, connection: Session) -> None:
        if sql_dialect.present(connection):
            connection.begin()
            sql_dialect.lock(connection, self.pipeline)

    def _described(self, connection: Session, view: str) -> list[tuple[str, bool]]:
        found = connection.execute(f'SELECT * FROM "{view}" LIMIT 0').description or ()  # noqa: S608 - a name of ours
        return [(column[0], column[1] == _INSTANT) for column in found]

    def _check(self, connection: Session) -> None:
        if connection.read_only:
            raise DestinationError(
                f"{self.describe()}: the server is read-only, as a replica is",
                "connect to the primary",
            )

    def _judge(self, error: Exception, step: str) -> Verdict:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if code in _WAITED:
            return Verdict(busy=_WHO)
        if code in _LOST:
            return Verdict(busy="the connection was lost; run it again")
        return Verdict(
            conflict=code in _CONFLICTS,
            refused=code in _REFUSED,
            damage=code in _GONE,
            taken=code in _TAKEN,
            rights=code in _RIGHTS,
        )
