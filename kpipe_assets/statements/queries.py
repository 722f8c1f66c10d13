"""Every other statement: questions to the home's database, its views among it, and CREATE TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kpipe.errors import DestinationError, InvalidStatement
from kpipe.sql.reader import nearest
from kpipe.sql.refused import elsewhere
from kpipe.sql.statements import Query
from kpipe_assets.statements.result import Result
from resources.destinations.duckdb import layout
from resources.destinations.duckdb.connection import Connection, Database
from resources.home import Home

__all__ = ["query"]

_AT_ONCE = 1000
_TABLE = re.compile(r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b(?!.*\bkpipe_)", re.IGNORECASE | re.DOTALL)

_VIEW = re.compile(r"\binformation_schema\.(pipelines\w*)", re.IGNORECASE)
#: SingleStore's views, and ours.
_VIEWS = {
    "pipelines": "kpipe_pipelines", "pipelines_batches": "kpipe_batches", "pipelines_batches_summary": "kpipe_batches_summary",
    "pipelines_errors": "kpipe_errors", "pipelines_cursors": "kpipe_cursors", "pipelines_offsets": "kpipe_cursors",
}  # fmt: skip


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
        _explained(text)
        raise _wrong(error, text) from error
    if len(found) != 1:
        raise InvalidStatement(f"{len(found)} statements where one is expected")
    kind = found[0].type.name
    # EXPLAIN ANALYZE runs what it explains; the connection cannot write, but says so less clearly.
    if kind in ("SELECT", "EXPLAIN") or (kind == "CREATE" and _TABLE.match(text)):
        return str(kind)
    _explained(text)
    raise InvalidStatement(
        f"{text.split()[0].upper()}: kpipe sql asks questions, makes tables, and takes the statements of pipelines",
        "anything else is for a client of the database: the ledger's own tables must not be written",
    )


def _explained(text: str) -> None:
    """Raise what is known of a statement that works in SingleStore only."""
    found = elsewhere(text)
    if found is not None:
        begin = " ".join(text.split()[:3])
        raise InvalidStatement(f"{begin[:40]}: {found[0]}", found[1])


def _asked(connection: Connection, text: str) -> Result:
    try:
        found = connection.execute(text)
    except duckdb.Error as error:
        raise _wrong(error, text) from error
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


def _wrong(error: duckdb.Error, text: str = "") -> InvalidStatement:
    """DuckDB's message in one line; its own lines point at the place, and are kept below."""
    first, _, rest = str(error).strip().partition("\n")
    return InvalidStatement(first.strip(), _meant(text), rest.strip("\n"))


def _meant(text: str) -> str:
    """What a statement that DuckDB cannot read may have been meant for."""
    view = _VIEW.search(text)
    if view is not None and view[1].lower() in _VIEWS:
        return f"what SingleStore calls {view[0]} is {_VIEWS[view[1].lower()]} here"
    near = nearest(text)
    if near:
        return f"did you mean {near}?"
    if text[:4].upper() == "SHOW":
        return "of pipelines there are SHOW PIPELINES and SHOW CREATE PIPELINE name, of the database SHOW TABLES"
    return ""
