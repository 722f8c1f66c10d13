"""Queries of SingleStore's views `information_schema.PIPELINES...`: resolve names, collect rows, create the views."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.expressions.tokens import Word, words
from kpipe_assets.runs.status import state_of
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.pipeline_views import BASES, MACROS, SCHEMA, VIEWS
from resources.destinations import database_file, open_destination, summary
from resources.destinations.sql.ledger import duckdb_dialect
from resources.duckdb_engine.file_connection import Connection, literal, quote
from resources.home import Home

__all__ = ["Asked", "Rows", "gathered", "laid", "resolved"]

_STATES = {"needs_operator": "Error", "waiting": "Stopped"}


@dataclass(frozen=True)
class Asked:
    """A query with resolved view names.

    Attributes:
        text: SQL with the names of the views in DuckDB.
        views: names of the views in the query.
    """

    text: str
    views: frozenset[str]


@dataclass(frozen=True)
class Rows:
    """Rows of the views from destinations other than the queried file.

    Attributes:
        by_base: rows by name in `BASES`.
        pipelines: pipelines of these rows; the queried file's rows of them are excluded.
    """

    by_base: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()


def resolved(text: str) -> Asked:
    """Return the query in DuckDB's SQL, unchanged if it names none of the views.

    Raises:
        InvalidStatement: it names a PIPELINES view that does not exist.
    """
    tokens, edits, views = list(words(text)), dict[int, tuple[int, str]](), set[str]()
    for at, (one, dot, two) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if dot.text != "." or _plain(one) != "INFORMATION_SCHEMA" or not _plain(two).startswith("PIPELINES"):
            continue
        name = _plain(two)
        if name not in VIEWS:
            raise InvalidStatement(f"information_schema: expected one of {', '.join(VIEWS)}, found {name}")
        views.add(name)
        column = tokens[at + 3].text == "." if at + 3 < len(tokens) else False  # a column: the table's name is enough
        edits[one.start] = (two.end, quote(name) if column else f"{SCHEMA}.{quote(name)}")
    if not views:
        return Asked(text, frozenset())
    for word, open_, unit in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word.kind == "name" and word.text.upper() == "TIMESTAMPDIFF" and open_.text == "(" and unit.kind == "name":
            edits[word.start] = (unit.end, f"date_sub('{unit.text}'")  # whole units, as in SingleStore
    columns, parts, end = {column for name in views for column in VIEWS[name].columns}, [], 0
    for word in tokens:
        if word.start < end:
            continue
        becomes = quote(_name(word)) if word.kind == "backticked" else word.text
        if word.kind == "quoted" and _plain(word) not in columns and (end == 0 or text[end - 1] != "."):
            becomes = literal(_name(word))  # as in MySQL, unless it names a column
        stop, becomes = edits.get(word.start, (word.end, becomes))
        parts += [text[end : word.start], becomes]
        end = stop
    return Asked("".join([*parts, text[end:]]), frozenset(views))


def _name(word: Word) -> str:
    mark = word.text[0]
    return word.text[1:-1].replace(mark * 2, mark) if word.kind in ("backticked", "quoted") else word.text


def _plain(word: Word) -> str:
    return _name(word).upper() if word.kind in ("name", "backticked", "quoted") else ""


def gathered(home: Home, views: Collection[str], sensor_states: SensorStates, file: Path, everywhere: bool) -> Rows:
    """Read the rows of the views from destinations other than the queried file, and the state of every pipeline.

    Args:
        home: KPIPE_HOME.
        views: names of the queried views.
        sensor_states: sensor states of the home.
        file: the queried DuckDB file, resolved.
        everywhere: whether to include other destinations; else only pipelines that write the file.

    Raises:
        KpipeError: a destination cannot be read.
    """
    bases = {base for name in views for base in VIEWS[name].bases}
    rows: dict[str, list[Mapping[str, Any]]] = {base: [] for base in bases}
    elsewhere: set[str] = set()
    on, unserved = (
        (sensor_states.on(), sensor_states.unserved()) if "pipelines" in bases else (frozenset[str](), dict[str, str]())
    )
    for name in home.names():
        state = _state(home, name, name in on, name not in unserved) if "pipelines" in bases else ""
        try:
            pipeline = home.pipeline(name)
            destination = open_destination(pipeline, home)
        except KpipeError:  # an unreadable definition is reported by the commands that use it
            rows.get("pipelines", []).append({"pipeline_name": name, "state": state})
            continue
        own = pipeline.into.type == "duckdb" and database_file(pipeline, home).expanduser().resolve() == file
        if not own and not everywhere:
            continue
        if "pipelines" in bases:
            row: Mapping[str, Any] = next(iter(destination.view("pipelines")), {})
            altered = datetime.fromtimestamp((home.pipelines / f"{name}.yaml").stat().st_mtime, timezone.utc)
            config = {"name": name, "table": pipeline.into.table, **summary(pipeline)}
            rows["pipelines"].append({
                "database_name": row.get("database_name") or (file.stem if own else None),
                "pipeline_name": name, "pipeline_id": row.get("pipeline_id"), "config_json": json.dumps(config),
                "state": state, "skipped_batches": row.get("skipped_batches", 0),
                "created": row.get("created"), "altered": altered,
            })  # fmt: skip
        if not own:
            elsewhere.add(name)
            for base in bases - {"pipelines"}:
                rows[base] += destination.view(base)
    return Rows(rows, frozenset(elsewhere))


def _state(home: Home, name: str, on: bool, served: bool) -> str:
    state = state_of(home, name, on, served)
    return _STATES.get(state, state.capitalize())


@contextmanager
def laid(connection: Connection, views: Collection[str], rows: Rows) -> Iterator[None]:
    """Create the views in memory while inside. The file is not written.

    Args:
        connection: its current database is the queried file, which may lack kpipe's tables.
        views: names of the queried views.
        rows: rows of other destinations.
    """
    if not views:
        yield
        return
    here = duckdb_dialect.present(connection)
    connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    try:
        for base in {base for name in views for base in VIEWS[name].bases}:
            _lay(connection, base, rows, here and base != "pipelines")
        for name in views:
            connection.execute(VIEWS[name].sql(name))
        for macro in MACROS:
            connection.execute(f"CREATE OR REPLACE TEMP MACRO {macro}")
        yield
    finally:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def _lay(connection: Connection, base: str, rows: Rows, here: bool) -> None:
    """Create the view of a base: the file's own rows and those of other destinations."""
    columns = BASES[base]
    listed, table = ", ".join(map(quote, columns)), f"{SCHEMA}.{quote(base + '_elsewhere')}"
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'{quote(name)} {kind}' for name, kind in columns.items())})")
    values = [[row.get(name) for name in columns] for row in rows.by_base.get(base, ())]
    if values:
        duckdb_dialect.DIALECT.insert(connection, table, columns, values)
    of_file, names = "", ", ".join(map(literal, sorted(rows.pipelines)))
    if here:
        database, schema = connection.execute("SELECT current_database(), current_schema()").fetchall()[0]
        of_file = f" UNION ALL SELECT {listed} FROM {quote(database, schema, f'kpipe_{base}')}"  # noqa: S608
        of_file += f" WHERE pipeline_name NOT IN ({names})" if names else ""
    connection.execute(f"CREATE VIEW {SCHEMA}.kpipe_{base} AS SELECT {listed} FROM {table}{of_file}")  # noqa: S608
