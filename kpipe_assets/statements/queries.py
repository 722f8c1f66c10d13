"""Every other statement: questions to the home's database, its views among it, and CREATE TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import duckdb

from kpipe.errors import DestinationError, InvalidStatement
from kpipe.sql.create_table import Made, made
from kpipe.sql.parser import nearest
from kpipe.sql.source_positions import pointed
from kpipe.sql.statements import Query
from kpipe.sql.unsupported_clauses import elsewhere
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.information_schema import Rows, gathered, laid, resolved
from kpipe_assets.statements.result import Result
from resources.destinations.duckdb import sql_dialect
from resources.duckdb_engine.error_messages import in_words, place_of
from resources.duckdb_engine.file_connection import Connection, Database
from resources.home import Home

__all__ = ["query"]

_AT_ONCE = 1000
_CREATE = re.compile(r"\s*CREATE\b", re.IGNORECASE)
_ONE_DATABASE = re.compile(r"\s*(?:USE\s+[\w`\"-]+\s*\Z|CREATE\s+DATABASE\b)", re.IGNORECASE)
_IF_EXISTS = re.compile(r"\s*DROP\s+(TABLE|DATABASE)\s+IF\s+EXISTS\s+[`\"]?([\w-]+)[`\"]?\s*\Z", re.IGNORECASE)
_TABLE = re.compile(r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b(?!.*\bkpipe_)", re.IGNORECASE | re.DOTALL)


def query(home: Home, switches: Switches, statement: Query, database: str | None = None) -> Iterator[Result]:
    """Rows of a query, through a connection that cannot write and reaches nothing but the database; or a table made.

    The rows must be taken before the next result is asked for: they are read as they are taken.

    Args:
        home: whose database it is.
        switches: of the home.
        statement: in DuckDB's SQL.
        database: path of another DuckDB file that a pipeline writes.

    Raises:
        InvalidStatement: it is wrong, or does something else than to ask.
        DestinationBusy, DestinationError: the file cannot be had.
    """
    place = Database(Path(database) if database else home.data / "kpipe.duckdb", (home.staging,))
    if _ONE_DATABASE.match(statement.text):
        yield Result("a home has one database, and it is used: nothing was done")
        return
    dropped = _IF_EXISTS.match(statement.text)
    if dropped is not None and not _exists(place, dropped[1].upper(), dropped[2]):
        yield Result(f"there is no {dropped[1].lower()} {dropped[2]}")
        return
    table = made(statement.text) if _CREATE.match(statement.text) else None
    asked = resolved(statement.text)
    question = statement if asked.text == statement.text else Query(asked.text)
    if _kind(Query(table.statements[-1]) if table and table.statements != [statement.text] else question) == "CREATE":
        yield _made(home, place, statement, table or Made([statement.text]))
        return
    views = asked.views
    rows = gathered(home, views, switches, place.path, everywhere=database is None) if views else Rows()
    if place.exists():
        with place.read() as connection, laid(connection, views, rows):
            yield _asked(connection, question)
    elif database:
        raise DestinationError(f"there is no {place.path}", "name a file that a pipeline writes")
    else:
        with duckdb.connect(":memory:") as connection:  # nothing was ever committed: the views are there, and empty
            sql_dialect.create(connection)
            connection.execute("SET enable_external_access = false")
            with laid(connection, views, rows):
                yield _asked(connection, question)


def _exists(place: Database, kind: str, name: str) -> bool:
    """Whether there is something to drop: a file, a table in it."""
    if not place.exists() or kind == "DATABASE":
        return place.exists()
    with place.read() as connection:
        query = "SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower($1)"
        return connection.execute(query, [name]).fetchone() is not None


def _kind(statement: Query) -> str:
    """SELECT, EXPLAIN or CREATE.

    Raises:
        InvalidStatement: DuckDB cannot read it, or it is something else.
    """
    text = statement.text
    try:
        found = duckdb.extract_statements(text)
    except duckdb.Error as error:
        _explained(text)
        raise _wrong(error, statement) from error
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


def _asked(connection: Connection, statement: Query) -> Result:
    try:
        found = connection.execute(statement.text)
    except duckdb.Error as error:
        raise _wrong(error, statement) from error
    return Result(columns=[column[0] for column in found.description or ()], rows=_rows(found, statement))


def _rows(found: Connection, statement: Query) -> Iterator[Sequence[Any]]:
    try:
        while rows := found.fetchmany(_AT_ONCE):
            yield from rows
    except duckdb.Error as error:
        raise _wrong(error, statement) from error


def _made(home: Home, place: Database, statement: Query, table: Made) -> Result:
    home.make()
    try:
        with place.write() as connection:
            for text in table.statements:
                connection.execute(text)
    except duckdb.Error as error:
        raise _wrong(error, statement if table.statements == [statement.text] else Query(table.statements[-1])) from error
    return Result("\n".join([f"table made in {place.path}", *(f"note: {note}" for note in table.notes)]))


def _wrong(error: duckdb.Error, statement: Query) -> InvalidStatement:
    """What DuckDB says, in plain words, with the place in the statement."""
    said, found = str(error), place_of(str(error), statement.text)
    hint = _meant(statement.text) or _similar(said)
    places = statement.places
    if found is None or places is None:
        return InvalidStatement(in_words(said), hint)
    return pointed(places.text, places.spans[()][0] + found[0], found[1], places.file, in_words(said), hint)


def _similar(said: str) -> str:
    """The names that DuckDB takes for the nearest, if they are near at all."""
    match = re.search(r'(?:Did you mean|Candidate bindings:) ((?:"[^"\n]+"(?:, )?)+)', said)
    missing = re.search(r"(\S+) does not exist", in_words(said))
    names = re.findall(r'"([^"]+)"', match[1]) if match is not None else []
    near = get_close_matches(missing[1], names, n=3) if missing is not None else []
    return f"did you mean {' or '.join(near)}?" if near else ""


def _meant(text: str) -> str:
    """What a statement that DuckDB cannot read may have been meant for."""
    near = nearest(text)
    if near:
        return f"did you mean {near}?"
    if text[:4].upper() == "SHOW":
        return "of pipelines there are SHOW PIPELINES and SHOW CREATE PIPELINE name, of the database SHOW TABLES"
    return ""
