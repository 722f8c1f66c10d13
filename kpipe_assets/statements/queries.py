"""Execute queries of the home's database and its views, and CREATE TABLE."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import duckdb

from kpipe.errors import DestinationError, InvalidStatement
from kpipe.sql.create_table import Made, made
from kpipe.sql.masking import masked
from kpipe.sql.parser import nearest
from kpipe.sql.source_positions import pointed
from kpipe.sql.statements import Query
from kpipe.sql.unsupported_clauses import elsewhere
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.information_schema import Rows, gathered, laid, resolved
from kpipe_assets.statements.result import Result
from resources.destinations.sql.ledger import duckdb_dialect
from resources.duckdb_engine.error_messages import in_words, place_of
from resources.duckdb_engine.file_connection import Connection, Database
from resources.home import Home

__all__ = ["query"]

_AT_ONCE = 100
_CREATE = re.compile(r"\s*CREATE\b", re.IGNORECASE)
_ONE_DATABASE = re.compile(r"\s*(?:USE\s+[\w`\"-]+\s*\Z|CREATE\s+DATABASE\b)", re.IGNORECASE)
_IF_EXISTS = re.compile(r"\s*DROP\s+(TABLE|DATABASE)\s+IF\s+EXISTS\s+[`\"]?([\w-]+)[`\"]?\s*\Z", re.IGNORECASE)
_INTERRUPTED = "the query took too long and was ended, because commits wait for it"
_TABLE = re.compile(r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b(?!.*\bkpipe_)", re.IGNORECASE | re.DOTALL)


def query(
    home: Home, sensor_states: SensorStates, statement: Query, database: str | None = None, limit_s: float | None = None
) -> Iterator[Result]:
    """Execute a query through a read-only connection without access to other files, or execute CREATE TABLE.

    Rows are read lazily: read all rows of a result before you request the next one.

    Args:
        home: KPIPE_HOME.
        sensor_states: sensor states of the home.
        statement: in DuckDB's SQL.
        database: path of another DuckDB file that a pipeline writes.
        limit_s: time after which the query is interrupted, in seconds; None: never.

    Raises:
        InvalidStatement: the statement is invalid, neither a query nor CREATE TABLE, or takes longer than the limit.
        DestinationBusy, DestinationError: the file is locked or cannot be opened.
    """
    place = Database(Path(database) if database else home.data / "kpipe.duckdb", (home.staging,))
    if _ONE_DATABASE.match(statement.text):
        yield Result("a home has one database, which is always selected: no change")
        return
    dropped = _IF_EXISTS.match(statement.text)
    if dropped is not None and not _exists(place, dropped[1].upper(), dropped[2]):
        yield Result(f"{dropped[1].lower()} {dropped[2]} does not exist")
        return
    table = made(statement.text) if _CREATE.match(statement.text) else None
    rewritten = resolved(statement.text)
    question = statement if rewritten.text == statement.text else Query(rewritten.text)
    if _statement_type(Query(table.statements[-1]) if table and table.statements != [statement.text] else question) == "CREATE":
        yield _made(home, place, statement, table or Made([statement.text]))
        return
    views = rewritten.views
    rows = gathered(home, views, sensor_states, place.path, everywhere=database is None) if views else Rows()
    if place.exists():
        with place.read() as connection, laid(connection, views, rows), _limited(connection, limit_s):
            yield _result(connection, question)
    elif database:
        raise DestinationError(f"{place.path}: file does not exist", "name a DuckDB file that a pipeline writes")
    else:
        with duckdb.connect(":memory:") as connection:  # before the first commit: empty views
            duckdb_dialect.create(connection)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_external_access = false")
            with laid(connection, views, rows), _limited(connection, limit_s):
                yield _result(connection, question)


@contextmanager
def _limited(connection: Connection, seconds: float | None) -> Iterator[None]:
    """Interrupt the connection's queries after a time."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exists(place: Database, kind: str, name: str) -> bool:
    """Return whether the database or table to drop exists."""
    if not place.exists() or kind == "DATABASE":
        return place.exists()
    with place.read() as connection:
        query = "SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower($1)"
        return connection.execute(query, [name]).fetchone() is not None


def _statement_type(statement: Query) -> str:
    """Return SELECT, EXPLAIN or CREATE.

    Raises:
        InvalidStatement: DuckDB cannot parse the statement, or it has another type.
    """
    text = statement.text
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        _explained(text)
        raise _wrong(error, statement) from error
    if len(statements) != 1:
        raise InvalidStatement(f"expected one statement, found {len(statements)}")
    kind = statements[0].type.name
    # EXPLAIN ANALYZE executes its statement. The read-only connection rejects writes, but with a less clear message.
    if kind in ("SELECT", "EXPLAIN") or (kind == "CREATE" and _TABLE.match(text)):
        return str(kind)
    _explained(text)
    raise InvalidStatement(
        f"{text.split()[0].upper()}: expected a query, CREATE TABLE or a pipeline statement",
        "use a client of the database for other statements; never write to the ledger's tables",
    )


def _explained(text: str) -> None:
    """Raise a specific error for a statement that only SingleStore supports."""
    explanation = elsewhere(text)
    if explanation is not None:
        begin = " ".join(text.split()[:3])
        raise InvalidStatement(f"{begin[:40]}: {explanation[0]}", explanation[1])


def _result(connection: Connection, statement: Query) -> Result:
    try:
        cursor = connection.execute(statement.text)
    except duckdb.Error as error:
        raise _wrong(error, statement) from error
    return Result(columns=[column[0] for column in cursor.description or ()], rows=_rows(cursor, statement))


def _rows(cursor: Connection, statement: Query) -> Iterator[Sequence[Any]]:
    most = 1  # the first rows may be large, and the last ones that are wanted
    try:
        while rows := cursor.fetchmany(most):
            yield from rows
            most = min(2 * most, _AT_ONCE)
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
    return Result("\n".join([f"table created in {place.path}", *(f"note: {note}" for note in table.notes)]))


def _wrong(error: duckdb.Error, statement: Query) -> InvalidStatement:
    """Convert DuckDB's error to a plain message with the position in the statement."""
    if isinstance(error, duckdb.InterruptException):
        return InvalidStatement(_INTERRUPTED, "add a WHERE clause or a LIMIT, or use kpipe sql")
    message, position = str(error), place_of(str(error), statement.text)
    hint = _meant(statement.text) or _similar(message)
    places = statement.places
    if position is None or places is None:
        return InvalidStatement(in_words(message), hint)
    start, length = places.spans[()][0] + position[0], position[1]
    word, shown = (text[start : start + length] for text in (places.text, masked(places.text)))
    return pointed(places.text, start, length, places.file, in_words(message.replace(f'"{word}"', f'"{shown}"')), hint)


def _similar(message: str) -> str:
    """Return a hint with the similar names among those that DuckDB lists, or an empty string."""
    match = re.search(r'(?:Did you mean|Candidate bindings:) ((?:"[^"\n]+"(?:, )?)+)', message)
    missing = re.search(r"(\S+) does not exist", in_words(message))
    names = re.findall(r'"([^"]+)"', match[1]) if match is not None else []
    near = get_close_matches(missing[1], names, n=3) if missing is not None else []
    return f"did you mean {' or '.join(near)}?" if near else ""


def _meant(text: str) -> str:
    """Return a hint with the kpipe statement that is similar to the text, or an empty string."""
    near = nearest(text)
    if near:
        return f"did you mean {near}?"
    if text[:4].upper() == "SHOW":
        return "use SHOW PIPELINES, SHOW CREATE PIPELINE name, or SHOW TABLES"
    return ""
