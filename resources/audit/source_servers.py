"""Read a table of PostgreSQL or MySQL with one SELECT, in a read-only transaction."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import csv

from kpipe.audit.canonical import FLOAT
from kpipe.audit.coordinates import Column, Coordinates, Fields
from kpipe.errors import DestinationError, InvalidPipeline
from resources import extras
from resources.audit.column_kinds import POSTGRES, mysql_kind
from resources.audit.table_address import TableAddress
from resources.destinations.credentials import rotating
from resources.duckdb_engine.sandbox import quote

__all__ = ["check_mysql", "check_postgres", "open_mysql", "open_postgres"]

_BLOCK = 1 << 20
_ROWS = 50_000
_WHOLE_ROWS = 1000


class _Postgres:
    """A table of PostgreSQL, as its transaction sees it."""

    def __init__(self, session: Any, address: TableAddress, place: str) -> None:
        self._session, self._table = session, quote(*address.table.split("."))
        self.name = f"{place}: {address.table}"
        self.snapshot = str(self._one("SELECT pg_current_snapshot()::text || ', ' || now()::text"))

    def _one(self, statement: str, *parameters: Any) -> Any:
        return self._session.execute(statement, parameters).fetchone()[0]

    def fields(self) -> Fields:
        """See `OpenTable`."""
        described = self._session.execute(f"SELECT * FROM {self._table} WHERE $1::boolean LIMIT 0", [True]).description
        return {column.name: None for column in described}

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self._read([self._expression(item) for item in coordinates.all])

    def kinds(self) -> Mapping[str, str]:
        """See `OpenTable`."""
        described = self._session.execute(f"SELECT * FROM {self._table} WHERE $1::boolean LIMIT 0", [True]).description
        return {column.name: POSTGRES.get(column.type_code, "") for column in described}

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`. Values are PostgreSQL's texts."""
        return self.values(names)

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self._read([quote(name) for name in columns])

    def _read(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        expressions = [f"({column})::text" for column in columns]
        statement = f"COPY (SELECT {', '.join(expressions)} FROM {self._table}) TO STDOUT (FORMAT csv)"
        with closing(self._session.raw.cursor()) as cursor, cursor.copy(statement.encode()) as copy:
            block = io.BytesIO()
            for row in copy:
                block.write(row)
                if block.tell() >= _BLOCK:
                    yield _parsed(block.getvalue(), len(expressions))
                    block = io.BytesIO()
            if block.tell():
                yield _parsed(block.getvalue(), len(expressions))

    def sql(self, coordinates: Coordinates) -> str:
        """See `OpenTable`."""
        columns = ", ".join(f'{self._expression(column)} AS "{name}"' for name, column in coordinates.named.items())
        return f"SELECT {columns} FROM {self._table}"

    def values_sql(self, columns: Sequence[str]) -> str:
        """See `OpenTable`."""
        return f"SELECT {', '.join(map(quote, columns))} FROM {self._table}"

    def _expression(self, column: Column) -> str:
        root = quote(column.root)
        return root if column.field is None else f"{root}::jsonb ->> {self._session.literal(column.field)}"


def _parsed(block: bytes, columns: int) -> list[pa.Array]:
    names = [f"c{at}" for at in range(columns)]
    table = csv.read_csv(
        io.BytesIO(block),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
        # One column: a line without text is NULL. No line is ignored.
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        # PostgreSQL writes NULL as an empty field, and an empty text in quotes.
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def check_postgres(address: TableAddress) -> None:
    """Check the address without connecting.

    Raises:
        InvalidPipeline: it is invalid, or contains a password.
    """
    _postgres_server(address)


def check_mysql(address: TableAddress) -> None:
    """See `check_postgres`."""
    _mysql_server(address)


def _postgres_server(address: TableAddress) -> Any:
    try:
        from resources.destinations.postgres.connection import SECRETS, Server
    except ImportError as error:
        raise extras.missing("--type postgres", "psycopg", "postgres", error=error) from error
    _named(address)
    return Server(address.database, rotating(address.credentials, SECRETS), "kpipe audit")


@contextmanager
def open_postgres(address: TableAddress) -> Iterator[_Postgres]:
    """Open a table of PostgreSQL in a REPEATABLE READ transaction."""
    server = _postgres_server(address)
    import psycopg

    with server.session() as session:
        try:
            session.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # With policies on the table, the server then raises an error instead of hiding rows.
            session.execute("SELECT set_config('row_security', 'off', true)")
            yield _Postgres(session, address, server.place)
        except psycopg.Error as error:
            raise _failed(server.place, address, str(error)) from None


class _MySQL:
    """A table of MariaDB or MySQL, as one SELECT sees it."""

    def __init__(self, session: Any, address: TableAddress, place: str) -> None:
        self._session, self._table = session, quote(*address.table.split("."))
        self.name = f"{place}: {address.table}"
        self.snapshot = str(session.execute("SELECT now(6)").fetchone()[0])

    def fields(self) -> Fields:
        """See `OpenTable`."""
        cursor = self._session.execute(f"SELECT * FROM {self._table} LIMIT 0")
        return {column[0]: None for column in cursor.description}

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self._texts([_mysql_expression(item) for item in coordinates.all])

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`. Values are the bytes of MySQL's texts."""
        for columns in self._read([f"CAST({quote(name)} AS BINARY)" for name in names], _WHOLE_ROWS):
            yield [pa.array(column, pa.binary()) for column in columns]

    def kinds(self) -> Mapping[str, str]:
        """See `OpenTable`."""
        return {name: mysql_kind(kind) for name, kind in self._types().items()}

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        # The text of a FLOAT has six digits only.
        kinds = self.kinds()
        return self._texts([f"CAST({quote(name)} AS DOUBLE)" if kinds[name] == FLOAT else quote(name) for name in columns])

    def _types(self) -> dict[str, str]:
        found = self._session.execute(f"SHOW COLUMNS FROM {self._table}").fetchall()
        return {row[0]: row[1].decode() if isinstance(row[1], bytes) else row[1] for row in found}

    def _texts(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        for found in self._read([f"CAST({column} AS CHAR)" for column in columns], _ROWS):
            yield [pa.array(_as_text(column), pa.string()) for column in found]

    def _read(self, expressions: Sequence[str], at_once: int) -> Iterator[list[Sequence[Any]]]:
        from pymysql.cursors import SSCursor

        with closing(self._session.raw.cursor(SSCursor)) as cursor:
            cursor.execute(f"SELECT {', '.join(expressions)} FROM {self._table}")
            while rows := cursor.fetchmany(at_once):
                yield list(zip(*rows, strict=True))

    def sql(self, coordinates: Coordinates) -> str:
        """See `OpenTable`."""
        columns = ", ".join(f'{_mysql_expression(column)} AS "{name}"' for name, column in coordinates.named.items())
        return f"SELECT {columns} FROM {self._table}"

    def values_sql(self, columns: Sequence[str]) -> str:
        """See `OpenTable`."""
        return f"SELECT {', '.join(map(quote, columns))} FROM {self._table}"


def _mysql_server(address: TableAddress) -> Any:
    try:
        from resources.destinations.mysql.connection import SECRETS, Server
    except ImportError as error:
        raise extras.missing("--type mysql", "PyMySQL", "mysql", error=error) from error
    _named(address)
    return Server(address.database, rotating(address.credentials, SECRETS), "kpipe audit", idle_timeout_s=3600)


def _mysql_expression(column: Column) -> str:
    root = quote(column.root)
    if column.field is None:
        return root
    path = ("$." + json.dumps(column.field)).replace("\\", "\\\\").replace("'", "''")
    return f"JSON_UNQUOTE(JSON_EXTRACT({root}, '{path}'))"


def _as_text(values: Sequence[Any]) -> list[str | None]:
    """Return the texts; invalid UTF-8 becomes a text that no number has."""
    return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]


@contextmanager
def open_mysql(address: TableAddress) -> Iterator[_MySQL]:
    """Open a table of MariaDB or MySQL."""
    server = _mysql_server(address)
    import pymysql

    with server.session() as session:
        try:
            session.begin("REPEATABLE READ", snapshot=True)
            yield _MySQL(session, address, server.place)
        except (pymysql.err.Error, OSError) as error:
            raise _failed(server.place, address, str(error.args[-1] if error.args else error)) from None


def _named(address: TableAddress) -> None:
    if not address.table:
        raise InvalidPipeline("--table is missing", "name the table: --table TABLE or --table SCHEMA.TABLE")


def _failed(place: str, address: TableAddress, why: str) -> DestinationError:
    text = " ".join(why.split())[:300]
    hint = "check --table, the columns and the server"
    if "row-level security" in text:
        hint = "connect as a role that sees all rows: one with BYPASSRLS, or the table's owner"
    return DestinationError(f"{place}: {address.table} cannot be read: {text}", hint)
