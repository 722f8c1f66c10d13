"""PostgreSQL and MariaDB as places for examples, read with SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tests.combinations.definition import Definition
from tests.combinations.found import Found, Letter, Row
from tests.combinations.sites import Plain, create
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer

__all__ = ["MySQLSite", "PostgresSite"]

_LETTERS = "topic, {0}partition{0}, {0}offset{0}, {0}key{0}, load_data_line, stage, error_message"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class PostgresSite(Plain):
    """A schema of its own on a real server."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self._address = server.address(server.schema())

    def into(self, definition: Definition) -> dict[str, Any]:
        """Where the server is."""
        return {"database": self._address, "credentials": {"password": "{{ env('KPIPE_MIX_PASSWORD', '" + PASSWORD + "') }}"}}

    def prepare(self, definition: Definition) -> None:
        """The table, if the definition wants one."""
        if definition.prepared:
            with self._connected() as connection:
                connection.execute(create(definition))

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._address, password=PASSWORD, autocommit=True)

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """Times as numbers: the server's own arithmetic has no year 9999."""
        found = Found()
        with self._connected() as connection:
            for table in tables:
                columns = connection.execute(
                    "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
                    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                    [table],
                ).fetchall()
                chosen = ", ".join(f"{_number(name, kind)} AS {name}" for name, kind in columns)
                rows = connection.execute(f"SELECT {chosen} FROM {table}").fetchall() if columns else []
                found.rows[table] = [_row(dict(zip([name for name, _ in columns], row, strict=True))) for row in rows]
            if connection.execute("SELECT to_regclass('kpipe_errors')").fetchone() != (None,):
                letters = connection.execute(f"SELECT {_LETTERS.format(chr(34))} FROM kpipe_errors WHERE dead_letter").fetchall()
                found.letters = [Letter(*letter) for letter in letters]
        return found


def _number(name: str, kind: str) -> str:
    if kind.startswith("timestamp"):
        limits = f"WHEN {name} = 'infinity' THEN 9223372036854775807 WHEN {name} = '-infinity' THEN -9223372036854775807"
        return f"CASE {limits} ELSE (extract(epoch FROM {name}) * 1000000)::bigint END"
    if kind == "date":
        limits = f"WHEN {name} = 'infinity' THEN 2147483647 WHEN {name} = '-infinity' THEN -2147483647"
        return f"CASE {limits} ELSE {name} - DATE '1970-01-01' END"
    return f"{name}::text" if kind in ("json", "jsonb", "uuid") else name


class MySQLSite(Plain):
    """A database of its own on a real server."""

    def __init__(self, folder: Path, server: MariaServer) -> None:
        super().__init__(folder)
        self._server, self._database = server, server.database()

    def into(self, definition: Definition) -> dict[str, Any]:
        """Where the server is."""
        password = "{{ env('KPIPE_MIX_PASSWORD', '" + MARIADB_PASSWORD + "') }}"
        return {"database": self._server.address(self._database), "credentials": {"password": password}}

    def prepare(self, definition: Definition) -> None:
        """The table, if the definition wants one."""
        if definition.prepared:
            with self._connected() as connection, connection.cursor() as cursor:
                cursor.execute(create(definition, VARCHAR="VARCHAR(200)"))

    def _connected(self) -> pymysql.Connection[Any]:
        return self._server.admin(database=self._database)

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """By SQL."""
        found = Found()
        with self._connected() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute("SHOW TABLES")
            there = {name for (name,) in cursor.fetchall()}
            for table in tables:
                if table in there:
                    cursor.execute(f"SELECT * FROM `{table}`")
                    names = [column[0] for column in cursor.description]
                    found.rows[table] = [_row(dict(zip(names, map(_plain, row), strict=True))) for row in cursor.fetchall()]
                else:
                    found.rows[table] = []
            if "kpipe_errors" in there:
                cursor.execute(f"SELECT {_LETTERS.format('`')} FROM kpipe_errors WHERE dead_letter")
                found.letters = [Letter(*letter) for letter in cursor.fetchall()]
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        since = value.replace(tzinfo=timezone.utc) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def _row(values: dict[str, Any]) -> Row:
    own = {name: value for name, value in values.items() if not name.startswith("_kafka_")}
    return Row(
        values.get("_kafka_topic"), values["_kafka_partition"], values["_kafka_offset"], values.get("_kafka_timestamp"), own
    )
