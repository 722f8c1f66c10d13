"""Every other statement: questions to the home's database, its views among it, and CREATE TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kpipe.errors import DestinationError, InvalidStatement
from kpipe.sql.statements import Query
from kpipe_assets.statements.result import Result
from resources.destinations.duckdb import layout
from resources.destinations.duckdb.connection import Connection, Database
from resources.home import Home

__all__ = ["query"]

_AT_ONCE = 1000
_TABLE = re.compile(r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b(?!.*\bkpipe_)", re.IGNORECASE | re.DOTALL)


def query(home: Home, statement: Query, database: str | None = None) -> Iterator[Result]:
    """Rows of a query, through a connection that cannot write and reaches nothing but the database; or a table made.

    The rows must be taken before the next result is asked for: they are read as they are taken.

    Args:
        home: whose database it is.
        statement: in DuckDB's SQL.
        database: path of another DuckDB file that a pipeline writes.

    Raises:
        InvalidStatement: it is wrong, or does something else than to ask.
        DestinationBusy, DestinationError: the file cannot be had.
    """
    place = Database(Path(database) if database else home.data / "kpipe.duckdb", (home.staging,))
    if _kind(statement.text) == "CREATE":
        yield _made(home, place, statement.text)
    elif place.exists():
        with place.read() as connection:
            yield _asked(connection, statement.text)
    elif database:
        raise DestinationError(f"there is no {place.path}", "name a file that a pipeline writes")
    else:
        with duckdb.connect(":memory:") as connection:  # nothing was ever committed: the views are there, and empty
            layout.create(connection)
            connection.execute("SET enable_external_access = false")
            yield _asked(connection, statement.text)


def _kind(text: str) -> str:
    """SELECT, EXPLAIN or CREATE.

    Raises:
        InvalidStatement: DuckDB cannot read it, or it is something else.
    """
    try:
        found = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise _wrong(error) from error
    if len(found) != 1:
        raise InvalidStatement(f"{len(found)} statements where one is expected")
    kind = found[0].type.name
    # EXPLAIN ANALYZE runs what it explains; the connection cannot write, but says so less clearly.
    if kind in ("SELECT", "EXPLAIN") or (kind == "CREATE" and _TABLE.match(text)):
        return str(kind)
    raise InvalidStatement(
        f"{text.split()[0].upper()}: kpipe sql asks questions, makes tables, and takes the statements of pipelines",
        "anything else is for a client of the database: the ledger's own tables must not be written",
    )


def _asked(connection: Connection, text: str) -> Result:
    try:
        found = connection.execute(text)
    except duckdb.Error as error:
        raise _wrong(error) from error
    return Result(columns=[column[0] for column in found.description or ()], rows=_rows(found))


def _rows(found: Connection) -> Iterator[Sequence[Any]]:
    try:
        while rows := found.fetchmany(_AT_ONCE):
            yield from rows
    except duckdb.Error as error:
        raise _wrong(error) from error


def _made(home: Home, place: Database, text: str) -> Result:
    home.make()
    try:
        with place.write() as connection:
            connection.execute(text)
    except duckdb.Error as error:
        raise _wrong(error) from error
    return Result(f"table made in {place.path}")


def _wrong(error: duckdb.Error) -> InvalidStatement:
    """DuckDB's message in one line; its own lines point at the place, and are kept below."""
    text = str(error).strip()
    first, _, rest = text.partition("\n")
    return InvalidStatement(first.strip(), "", rest.strip("\n"))
