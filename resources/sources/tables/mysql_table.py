"""A table of MySQL or MariaDB as a source.

A transaction takes a value of AUTO_INCREMENT before it commits, so rows may appear below values that are visible. An INSERT
takes a metadata lock (MDL) of its table before its value, and keeps it until its transaction has ended. So the locks show which
transactions may still add rows, as `pg_locks` does in PostgreSQL.
"""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import FIELD_TYPE, FLAG
from pymysql.cursors import SSCursor

from kpipe.definition.source import SourceTable
from kpipe.errors import DestinationBusy, DestinationError, ReadFailed, ReadStalled
from kpipe.offsets import Range
from kpipe.schema.columns import DOUBLE, Columns, Scalar, Type
from resources.destinations.mysql.connection import Server
from resources.destinations.mysql.session import Session, literal
from resources.destinations.sql.sql_dialect import quote
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.block_size import BYTES, ROWS
from resources.sources.exact_numbers import decimal
from resources.sources.json_rows import json_records
from resources.sources.tables.mysql_rows import documents
from resources.sources.tables.open_table import OpenSource, TableState

__all__ = ["open_mysql"]

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_SIGNED_BITS = 63  # of a BIGINT
#: Errors of a connection that was lost.
_LOST = {2006, 2013, 1053, 1205, 1317}
#: Locks that only read, in the words of performance_schema and of MariaDB's plugin (without its prefix).
_READS = {"SHARED", "SHARED_HIGH_PRIO", "SHARED_READ", "SHARED_READ_ONLY", "INTENTION_EXCLUSIVE"}
_SEES_LOCKS = (
    "MariaDB: INSTALL SONAME 'metadata_lock_info'. MySQL: performance_schema with the instrument wait/lock/metadata/sql/mdl, and"
    " GRANT SELECT ON performance_schema.metadata_locks"
)


class _Table:
    def __init__(self, session: Session, table: SourceTable) -> None:
        self._session, self._table = session, table
        schema, _, name = table.name.rpartition(".")
        self._schema, self._plain = schema or session.database, name
        self._name, self._column = ".".join(map(quote, (self._schema, name))), quote(table.column)

    def _all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return list(self._session.execute(statement, parameters).fetchall())

    def state(self) -> TableState:
        """See `OpenSource`. The highest value is read before the locks: a later writer gets a higher value."""
        self._check_server()
        following = self._check_table()
        lowest, highest = self._all(f"SELECT min({self._column}), max({self._column}) FROM {self._name}")[0]
        if lowest is not None and lowest < 0:
            raise self._failed(f"column {self._table.column}: expected values of 0 or more, found {lowest}", "change the column")
        end = max(-1 if highest is None else int(highest), following - 1) + 1
        return TableState("", end, self._writers())

    def _check_server(self) -> None:
        """Check that this server is where the rows are written: another one shows neither open transactions nor their order."""
        replica = "SHOW ALL SLAVES STATUS" if self._session.maria else "SHOW REPLICA STATUS"
        cluster = {name: value for name, value in self._all("SHOW VARIABLES LIKE 'wsrep_on'") if value == "ON"}
        group = self._all("SHOW VARIABLES LIKE 'group_replication_single_primary_mode'")
        multi = bool(group) and group[0][1] == "OFF"
        if self._session.read_only or cluster or multi or self._all(replica):
            raise self._failed(
                "the server is a replica, read-only, or one of several that are written: it does not show which transactions"
                " are open elsewhere",
                "name the only server that is written: source.table.database",
            )
        if self._all("XA RECOVER"):
            raise ReadStalled(f"table {self._table.name}: the server has prepared transactions (XA)", "commit or roll them back")

    def _check_table(self) -> int:
        """Check table and column, and return the next value that AUTO_INCREMENT gives this column; 0 if it gives none."""
        found = self._all(
            "SELECT TABLE_TYPE, ENGINE, AUTO_INCREMENT, TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = $1 AND TABLE_NAME = $2",
            self._schema,
            self._plain,
        )
        if not found:
            raise self._failed("the table does not exist, or the account has no rights on it", "change source.table.name")
        kind, engine, following, self._schema, self._plain = found[0]
        if kind != "BASE TABLE" or engine != "InnoDB":
            raise self._failed(f"expected a table of InnoDB, found {kind} {engine}", "name a table: source.table.name")
        columns = self._all(
            "SELECT DATA_TYPE, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = $1 AND TABLE_NAME = $2"
            " AND COLUMN_NAME = $3",
            self._schema, self._plain, self._table.column,
        )  # fmt: skip
        if not columns:
            raise self._failed(f"column {self._table.column} does not exist", "change source.table.column")
        unique = self._all(
            "SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = $1 AND TABLE_NAME = $2 GROUP BY INDEX_NAME"
            " HAVING max(NON_UNIQUE) = 0 AND count(*) = 1 AND max(COLUMN_NAME) = $3 AND max(SUB_PART) IS NULL",
            self._schema, self._plain, self._table.column,
        )  # fmt: skip
        type, nullable, extra = columns[0]
        checks = (
            (type in _INTEGERS, "an integer"),
            (nullable == "NO", "NOT NULL"),
            (unique, "unique, by a primary key or an index"),
        )
        for fits, wanted in checks:
            if not fits:
                what = f"column {self._table.column}: expected {wanted}, found {type}"
                raise self._failed(what, "choose another column: source.table.column")
        return int(following or 0) if "auto_increment" in extra.lower() else 0

    def _writers(self) -> frozenset[str]:
        """Return the locks of transactions that may write the table.

        Raises:
            ReadFailed: the server does not show them: not even this transaction's, which has read the table.
        """
        locks = self._locks_of_schema() or (self._locks_of_plugin() if self._session.maria else [])
        lost = self._all("SHOW GLOBAL STATUS LIKE 'Performance_schema_metadata_locks_lost'")
        if not any(mode in _READS for mode, _ in locks) or any(int(count) for _, count in lost):
            raise self._failed("the server does not show all metadata locks: expected this transaction's own", _SEES_LOCKS)
        return frozenset(holder for mode, holder in locks if mode not in _READS)

    def _locks_of_schema(self) -> list[tuple[str, str]]:
        """Return mode and holder of each lock in performance_schema; none if it is off, or the account may not read it.

        A transaction keeps the object of its lock. A later one may get the same memory: it is only waited for, too.
        """
        try:
            found = self._all(
                "SELECT LOCK_TYPE, OWNER_THREAD_ID, OBJECT_INSTANCE_BEGIN FROM performance_schema.metadata_locks"
                " WHERE OBJECT_TYPE = 'TABLE' AND OBJECT_SCHEMA = $1 AND OBJECT_NAME = $2",
                self._schema, self._plain,
            )  # fmt: skip
        except pymysql.err.Error as error:
            if error.args[0] not in (1142, 1146):  # no right; no such table
                raise
            return []
        return [(mode, f"{thread}/{lock}") for mode, thread, lock in found]

    def _locks_of_plugin(self) -> list[tuple[str, str]]:
        """Return mode and holder of each lock in MariaDB's plugin METADATA_LOCK_INFO; none without it."""
        try:
            found = self._all(
                "SELECT LOCK_MODE, THREAD_ID FROM information_schema.METADATA_LOCK_INFO"
                " WHERE LOCK_TYPE = 'Table metadata lock' AND TABLE_SCHEMA = $1 AND TABLE_NAME = $2",
                self._schema, self._plain,
            )  # fmt: skip
        except pymysql.err.Error as error:
            if error.args[0] != 1109:  # no such table
                raise
            return []
        return [(mode.removeprefix("MDL_"), str(thread)) for mode, thread in found]

    @property
    def _rows(self) -> str:
        return f"({self._table.query or f'SELECT * FROM {self._name}'}\n) AS q"

    def columns(self) -> Columns:
        """See `OpenSource`. The protocol gives the length of a DECIMAL with point and sign."""
        fields = self._session.execute(f"SELECT * FROM {self._rows} LIMIT 0")._result.fields
        found: list[tuple[str, Type]] = []
        for item in fields:
            is_unsigned = bool(item.flags & FLAG.UNSIGNED)
            if item.type_code == FIELD_TYPE.NEWDECIMAL:
                found.append((item.name, decimal(item.length - (item.scale > 0) - (not is_unsigned), item.scale)))
            elif (item.type_code == FIELD_TYPE.LONGLONG and is_unsigned) or (
                item.type_code == FIELD_TYPE.BIT and item.length > _SIGNED_BITS
            ):
                found.append((item.name, Scalar("UBIGINT")))
            elif item.type_code in (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE):
                found.append((item.name, DOUBLE))
        return Columns(tuple(found))

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """See `OpenSource`."""
        rows = self._rows
        raw = self._session.raw
        raw.decoders = {}  # values as the server writes them
        self._session.execute("SET SESSION net_write_timeout = 600")  # a task may take its time between two blocks
        described = self._session.execute(f"SELECT * FROM {rows} LIMIT 0").description
        names, types = [part[0] for part in described], [part[1] for part in described]
        if self._table.column.lower() not in {name.lower() for name in names}:
            raise self._failed(
                f"source.table.query: its result has no column {self._table.column}", "add the column to the query"
            )
        # The protocol writes a FLOAT with 6 digits, but a DOUBLE exactly.
        listed = [
            f"q.{quote(name)}" + (" + 0e0" if type == FIELD_TYPE.FLOAT else "") for name, type in zip(names, types, strict=True)
        ]
        cursor = SSCursor(raw)
        try:
            cursor.execute(
                f"SELECT q.{self._column}, {', '.join(listed)} FROM {rows} WHERE q.{self._column} >= {literal(span.start)}"
                f" AND q.{self._column} < {literal(span.end)} ORDER BY q.{self._column}"
            )
            while found := _block(cursor):
                offsets = pa.array([int(row[0]) for row in found], pa.int64())
                yield json_records(documents(names, types, [row[1:] for row in found]), offsets)
        finally:
            cursor.close()

    def _failed(self, what: str, hint: str) -> ReadFailed:
        return ReadFailed(f"table {self._table.name}: {what}", hint)


def _block(cursor: SSCursor) -> list[tuple[Any, ...]]:
    """Fetch rows up to a number and a size."""
    found, size = list[tuple[Any, ...]](), 0
    while len(found) < ROWS and size < BYTES and (row := cursor.fetchone()) is not None:
        found.append(row)
        size += sum(len(value) for value in row if value is not None)
    return found


@contextmanager
def open_mysql(table: SourceTable, secrets: dict[str, Secret]) -> Iterator[OpenSource]:
    """Open a table in a transaction. Each of its statements sees what is committed then.

    Raises:
        ReadFailed: the server rejects a statement or the connection.
        ReadStalled: the server did not answer in time.
    """
    try:
        server = Server(table.database, secrets, "kpipe source")
        with server.session(fresh=True) as session:
            session.begin("READ COMMITTED, READ ONLY")
            if not session.maria:  # otherwise AUTO_INCREMENT in information_schema may be a day old
                session.execute("SET SESSION information_schema_stats_expiry = 0")
            yield _Table(session, table)
    except pymysql.err.Error as error:
        text = " ".join(str(error.args[-1] if error.args else error).split())
        kind = ReadStalled if error.args and error.args[0] in _LOST else ReadFailed
        raise kind(f"table {table.name}: the server: {text}", "check the account's rights; run it again") from None
    except DestinationBusy as error:
        raise ReadStalled(f"table {table.name}: {error.what}", "check the server; run it again") from None
    except DestinationError as error:
        raise ReadFailed(f"table {table.name}: {error.what}", "check source.table.database and source.credentials") from None
