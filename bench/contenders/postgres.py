"""Measure PostgreSQL: as kpipe's destination, and with a plain COPY of the same rows, which is the upper limit.

The server is that of the tests, from Debian, with its defaults: a commit is durable.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from bench.child import usage
from bench.contenders.pipelines import TABLE
from bench.meter import Meter
from bench.peers import Unavailable
from bench.verify import Found
from tests.servers.postgres import PASSWORD, ROLE, PostgresServer, programs

__all__ = ["Postgres"]

_PASSWORD_VARIABLE = "BENCH_POSTGRES_PASSWORD"
_BLOCK = 1 << 20


class Postgres:
    """A server; leaving the context ends it.

    Args:
        folder: for the rows that COPY copies.

    Raises:
        Unavailable: PostgreSQL is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if programs() is None:
            raise Unavailable("PostgreSQL is not installed -> make postgres")
        self._lines = folder.with_suffix(".copy")
        self._server, self._bare, self._shared = PostgresServer(durable=True), "", ""

    def __enter__(self) -> Postgres:
        self._server.__enter__()
        self._shared = self._server.schema()
        return self

    def __exit__(self, *failed: Any) -> None:
        self._lines.unlink(missing_ok=True)
        self._server.__exit__(*failed)

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._server.process is not None
        return self._server.process.pid

    environment: ClassVar[dict[str, str]] = {_PASSWORD_VARIABLE: PASSWORD}
    """What a process that loads needs."""

    def into(self) -> dict[str, Any]:
        """Return the fields of `into` for a new schema."""
        credentials = {"password": f"{{{{ env('{_PASSWORD_VARIABLE}') }}}}"}
        return {"type": "postgres", "database": self._server.address(self._server.schema()), "credentials": credentials}

    def found(self, into: dict[str, Any]) -> Found:
        """Count the rows in that schema and empty it; rows of the first call are kept for COPY."""
        with psycopg.connect(into["database"], password=PASSWORD) as connection:
            found = _found(connection, sql.Identifier(TABLE))
            if not self._lines.exists():
                self._bare = self._server.schema()
                connection.execute(sql.SQL("CREATE TABLE {} (LIKE {})").format(self._table, sql.Identifier(TABLE)))
                everything = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(TABLE))
                with self._lines.open("wb") as file, connection.cursor().copy(everything) as rows:
                    for block in rows:
                        file.write(block)
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(TABLE)))
        self._server.sql("CHECKPOINT")
        return found

    def create(self, table: str, columns: str) -> None:
        """Create a table of another loader, in a schema that all of them share."""
        with self._connected() as connection:
            statement = sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), sql.SQL(columns))  # type: ignore[arg-type]
            connection.execute(statement)

    def jdbc(self) -> dict[str, str]:
        """Return the fields with which a JDBC sink connects to that schema."""
        address = self._server.address("").partition("@")[2].partition("?")[0]
        # Several rows a statement; and the server, not the sink, reads a timestamp from its text.
        options = f"currentSchema={self._shared}&reWriteBatchedInserts=true&stringtype=unspecified"
        url = f"jdbc:postgresql://{address}?{options}"
        return {"connection.url": url, "connection.username": ROLE, "connection.password": PASSWORD}

    def holds(self, table: str, keys: Sequence[tuple[str, int, int]]) -> bool:
        """Return whether the table of a Connect sink has a row of each topic, partition and offset."""
        key = "(__connect_topic, __connect_partition, __connect_offset) = (%s, %s, %s)"
        query = sql.SQL("SELECT 1 FROM {} WHERE {}").format(sql.Identifier(table), sql.SQL(key))
        with self._connected() as connection:
            return all(connection.execute(query, one).fetchone() for one in keys)

    def counted(self, table: str) -> Found:
        """Count the rows of a table of another loader, and drop it."""
        with self._connected() as connection:
            found = _found(connection, sql.Identifier(table))
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))
        self._server.sql("CHECKPOINT")
        return found

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(self._server.address(self._shared), password=PASSWORD)

    @property
    def filled(self) -> bool:
        """Return whether there are rows to copy."""
        return self._lines.exists()

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self._bare, "bare")

    def copy(self) -> dict[str, Any]:
        """Return the seconds of one transaction that copies those rows, in PostgreSQL's text format, to a table like kpipe's."""
        with psycopg.connect(self._server.address(self._bare), password=PASSWORD) as connection:
            connection.execute(sql.SQL("TRUNCATE {}").format(self._table))
            connection.commit()
            self._server.sql("CHECKPOINT")
            with Meter(self.pid) as meter:
                began = time.monotonic()
                everything = sql.SQL("COPY {} FROM STDIN").format(self._table)
                with self._lines.open("rb") as file, connection.cursor().copy(everything) as rows:
                    while block := file.read(_BLOCK):
                        rows.write(block)
                connection.commit()
                seconds = time.monotonic() - began
            found = _found(connection, self._table)
        return {"seconds": seconds, "found": found, **usage(meter)}


def _found(connection: psycopg.Connection, table: sql.Identifier) -> Found:
    what = "count(*), count(DISTINCT id), min(id), max(id), sum(retweets)::bigint, count(score)"
    numbers = connection.execute(sql.SQL(f"SELECT {what} FROM {{}}").format(table)).fetchone()
    assert numbers is not None
    return Found(*numbers)
