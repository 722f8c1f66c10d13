"""Load a MariaDB, MySQL or SingleStore database: the engine of `SqlDestination`."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pymysql

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from kpipe.schema.columns import Columns
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.mysql import sql_dialect, target_table
from resources.destinations.mysql.connection import Server
from resources.destinations.mysql.constraint_violations import violations
from resources.destinations.mysql.merge_staging import copy, duplicates
from resources.destinations.mysql.session import CHANGING, READ, RIGHTS, WRITE, Session
from resources.destinations.mysql.sql_dialect import MySQLDialect
from resources.destinations.mysql.upsert import merge
from resources.destinations.sql.batch_commit import key_columns
from resources.destinations.sql.column_matching import missing
from resources.destinations.sql.engine import Engine, ErrorClass, StagedTable, TargetTable, Violation
from resources.destinations.sql.ledger import format_table, history_tables, ledger_table, multi_table
from resources.destinations.sql.ledger.table_definitions import FORMAT
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.staged_reader import reader
from resources.destinations.staged_file_check import Proven

__all__ = ["MySQLEngine"]

_INSTANT = 12  # DATETIME; all of the ledger's are UTC
# Errors by number, as MariaDB and MySQL list them. Deadlock, snapshot too old, a definition that has changed since.
_CONFLICTS = {1020, 1050, 1060, 1061, 1213, 1412, 1615, 3572}
_TAKEN = {1022, 1062, 1586}
_GONE = {1054, 1146, 1356}  # column, table, base of a view
# Connection, shutdown or start of the server, no resources, killed, idle for too long.
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
_WAITED = {1205, 3024, 1969, CHANGING}
# Data, constraints, definitions, missing rights on the table, triggers.
_REFUSED = {
    1048, 1054, 1059, 1062, 1067, 1071, 1074, 1101, 1103, 1104, 1113, 1117, 1118, 1138, 1142, 1143, 1166, 1169, 1216, 1217, 1264,
    1265, 1292, 1348, 1361, 1364, 1366, 1369, 1406, 1416, 1419, 1426, 1439, 1442, 1451, 1452, 1471, 1526, 1644, 1690, 1748, 1901,
    1906, 1907, 3105, 3140, 3819, 4025, 4078,
}  # fmt: skip
_WHO = "find the blocking session: SELECT * FROM information_schema.innodb_trx; SHOW PROCESSLIST; KILL id ends it"


class MySQLEngine(Engine):
    """A database of a MariaDB, MySQL or SingleStore server.

    Args:
        server: where to connect to.
        staging: folders of staged files.
        dialect: MariaDB's and MySQL's, or SingleStore's.
    """

    dialect: MySQLDialect = sql_dialect.DIALECT
    errors = (pymysql.err.Error,)
    recovery_hint = "restore a backup of the database; or continue in another database (into.database)"
    staging: tuple[Path, ...] = ()
    is_keyed = True
    exchange_refusal = "MySQL commits each RENAME TABLE at once, without the ledger"

    def __init__(self, server: Server, staging: Sequence[Path] = (), dialect: MySQLDialect = sql_dialect.DIALECT) -> None:
        self.server, self.staging, self.dialect, self.is_keyed = server, tuple(staging), dialect, dialect.keyed

    # Functions that use no state of the engine.
    ledger_exists = staticmethod(sql_dialect.present)
    table_exists = staticmethod(sql_dialect.exists)
    columns = staticmethod(target_table.columns)
    required = staticmethod(target_table.required)
    primary_key = staticmethod(target_table.primary_key)

    def describe(self) -> str:
        """See `Engine`."""
        return f"{'MySQL' if self.dialect.keyed else 'SingleStore'} {self.server.place}"

    def hurry(self, seconds: float) -> None:
        """See `Engine`."""
        self.server.timeout.hurry(seconds)

    def exists(self) -> bool:
        """See `Engine`."""
        return True

    def reading(self) -> AbstractContextManager[Session]:
        """See `Engine`."""
        return self.session(READ)

    def reading_fresh(self) -> AbstractContextManager[Session]:
        """See `Engine`."""
        return self.session(READ, fresh=True)

    def writing(self, keyed: bool, row_bytes: int = 0) -> AbstractContextManager[Session]:
        """See `Engine`. Only REPEATABLE READ locks gaps: no other session may insert a missing key before the commit."""
        return self.session(READ if keyed else WRITE)

    @contextmanager
    def session(self, mode: str, fresh: bool = False) -> Iterator[Session]:
        """Use a connection, and adapt the dialect to the server's version."""
        with self.server.session(mode, fresh) as session:
            self.dialect = sql_dialect.fitting(self.dialect, session)
            yield session

    def classify(self, error: Exception, step: str) -> ErrorClass:
        """See `Engine`."""
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if code in _WAITED:
            return ErrorClass(busy=_WHO)
        if code in _LOST:
            return ErrorClass(busy="the connection was lost; run it again")
        return ErrorClass(
            conflict=code in _CONFLICTS,
            refused=code in _REFUSED,
            damage=code in _GONE,
            taken=code in _TAKEN,
            rights=code in RIGHTS,
        )

    def define(self, connection: Session, pipeline: str, commit: Commit, parts: Sequence[StagedTable]) -> None:
        """See `Engine`.

        Raises:
            DestinationError: the server is read-only.
            Fenced: a lane has moved already. The transaction checks it again.
            LedgerMismatch: a table is missing although the ledger records rows of it.
        """
        if connection.read_only:
            raise DestinationError(
                f"{self.describe()}: the server is read-only, like a replica",
                "connect to the primary",
            )
        if not self.ledger_exists(connection):
            sql_dialect.create(connection, self.dialect)
        written = [part for part in parts if part.is_written]
        if written:
            ledger_table.read(connection, pipeline)[1].after(commit.changes, commit.id)
        for part in written:
            table = part.table.name
            there = self.table_exists(connection, table)
            if not there and (rows := multi_table.written(connection, self.dialect, pipeline, table, net=False)):
                raise missing(pipeline, table, rows)
            key = key_columns(self, connection, part.table)
            needed = target_table.needed_by(part.commit, part.all_files)
            target_table.make(connection, self.dialect, table, there, needed, key)

    def begin(self, connection: Session, pipeline: str, tables: Sequence[TargetTable]) -> tuple[bool, list[bool]]:
        """See `Engine`. The tables are looked for behind the lock, as a commit before it may have created them."""
        known = self.ledger_exists(connection)
        if known and not self.table_exists(connection, FORMAT.name):
            connection.define(FORMAT.ddl(self.dialect))  # commits at once; an empty table counts as missing
        connection.begin()
        if known:
            format_table.upgrade(connection, self.dialect)
        for name in sorted(table.name for table in tables if table.rule is not None):  # all pipelines lock in one order
            sql_dialect.key_alone(connection, name)
        if known:
            sql_dialect.lock(connection, pipeline)
        return known, [self.table_exists(connection, table.name) for table in tables]

    def begin_snapshot(self, connection: Session) -> None:
        """See `Engine`."""
        connection.begin(READ, snapshot=True)

    def commit(self, connection: Session) -> None:
        """See `Engine`."""
        connection.commit()

    def await_commits(self, connection: Session, pipeline: str) -> None:
        """See `Engine`."""
        if self.ledger_exists(connection):
            connection.begin()
            sql_dialect.lock(connection, pipeline)

    def create_ledger(self, connection: Session) -> None:
        """See `Engine`: `define` created it before the transaction.

        Raises:
            pymysql.err.OperationalError: another session has dropped it since.
        """
        raise pymysql.err.OperationalError(1412, "the tables of the ledger have just been dropped")

    def view_columns(self, connection: Session, view: str) -> list[tuple[str, bool]]:
        """See `Engine`."""
        found = connection.execute(f'SELECT * FROM "{view}" LIMIT 0').description or ()  # noqa: S608 - a name of ours
        return [(column[0], column[1] == _INSTANT) for column in found]

    def prepare(self, connection: Session, table: str, exists: bool, commit: Commit, files: Sequence[Proven]) -> Columns:
        """See `Engine`: `define` created and widened the table before the transaction."""
        return target_table.prepare(connection, table, exists, target_table.needed_by(commit, files))

    def insert(self, connection: Session, table: str, commit: Commit, files: Sequence[Proven], known: Columns) -> None:
        """See `Engine`."""
        if files:
            with reader(self.staging) as staged:
                target_table.insert(connection, staged, table, commit, files, known)

    def merge(self, connection: Session, batch: KeyedBatch) -> tuple[Commit, dict[Part, Holding]]:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return merge(connection, staged, batch, copy(connection, staged, batch))

    def insert_dead_letters(self, connection: Session, commit: Commit, files: Sequence[Proven], events: int) -> int:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return target_table.set_aside(connection, self.dialect, staged, commit, files, events)

    def insert_duplicates(self, connection: Session, commit: Commit, events: int) -> int:
        """See `Engine`."""
        return int(
            connection.execute(*history_tables.letters(self.dialect, commit, events, f"({duplicates(self.dialect)})")).rowcount
        )

    def violations(
        self, connection: Session, table: str, commit: Commit, files: Sequence[Proven], known: Columns
    ) -> Sequence[Violation]:
        """See `Engine`."""
        with reader(self.staging) as staged:
            return violations(connection, staged, table, commit, files, known)

    def headers(self, stored: Any) -> list[tuple[str, bytes | None]]:
        """See `Engine`: the column is a JSON text with values in base64."""
        found = json.loads(stored)
        return [(item["name"], None if item["value"] is None else b64decode(item["value"])) for item in found]
