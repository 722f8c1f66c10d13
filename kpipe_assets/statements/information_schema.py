"""Questions to SingleStore's views, `information_schema.PIPELINES...`: the names resolved, the rows gathered, the views laid."""

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
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.pipeline_views import BASES, MACROS, SCHEMA, VIEWS
from resources.destinations import open_destination, summary
from resources.destinations.duckdb import DuckDBDestination, sql_dialect
from resources.duckdb_engine.file_connection import Connection, literal, quote
from resources.home import Home

__all__ = ["Asked", "Rows", "gathered", "laid", "resolved"]

_STATES = {"needs_operator": "Error", "waiting": "Stopped"}


@dataclass(frozen=True)
class Asked:
    """A question that names some of the views.

    Attributes:
        text: with the names that DuckDB finds them by.
        views: which.
    """

    text: str
    views: frozenset[str]


@dataclass(frozen=True)
class Rows:
    """What destinations keep beyond the file that is asked.

    Attributes:
        by_base: of `BASES`.
        pipelines: whose rows these are; the file's own rows of them are left out.
    """

    by_base: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()


def resolved(text: str) -> Asked:
    """Return the question as DuckDB reads it; unchanged where it names none of the views.

    Raises:
        InvalidStatement: it names a view of that schema that is not there.
    """
    found, edits, views = list(words(text)), dict[int, tuple[int, str]](), set[str]()
    for at, (one, dot, two) in enumerate(zip(found, found[1:], found[2:], strict=False)):
        if dot.text != "." or _plain(one) != "INFORMATION_SCHEMA" or not _plain(two).startswith("PIPELINES"):
            continue
        name = _plain(two)
        if name not in VIEWS:
            raise InvalidStatement(f"information_schema has no {name} here", f"there are {', '.join(VIEWS)}")
        views.add(name)
        column = found[at + 3].text == "." if at + 3 < len(found) else False  # of a column, the table's name is enough
        edits[one.start] = (two.end, quote(name) if column else f"{SCHEMA}.{quote(name)}")
    if not views:
        return Asked(text, frozenset())
    for word, open_, unit in zip(found, found[1:], found[2:], strict=False):
        if word.kind == "name" and word.text.upper() == "TIMESTAMPDIFF" and open_.text == "(" and unit.kind == "name":
            edits[word.start] = (unit.end, f"date_sub('{unit.text}'")  # whole units, as there
    columns, parts, end = {column for name in views for column in VIEWS[name].columns}, [], 0
    for word in found:
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


def gathered(home: Home, views: Collection[str], switches: Switches, file: Path, everywhere: bool) -> Rows:
    """Read what the views need of destinations that are not the file that is asked, and the state of every pipeline.

    Args:
        home: whose pipelines.
        views: that are asked.
        switches: of the home.
        file: the DuckDB file that is asked, resolved.
        everywhere: whether other destinations count; else only pipelines that write the file.

    Raises:
        KpipeError: a destination cannot be read.
    """
    bases = {base for name in views for base in VIEWS[name].bases}
    rows: dict[str, list[Mapping[str, Any]]] = {base: [] for base in bases}
    elsewhere: set[str] = set()
    on, served = (switches.on(), switches.is_served()) if "pipelines" in bases else (frozenset[str](), False)
    for name in home.names():
        state = _state(home, name, name in on, served) if "pipelines" in bases else ""
        try:
            pipeline = home.pipeline(name)
            destination = open_destination(pipeline, home)
        except KpipeError:  # a definition that cannot be read is told by whoever uses it
            rows.get("pipelines", []).append({"pipeline_name": name, "state": state})
            continue
        own = isinstance(destination, DuckDBDestination) and destination.database.path == file
        if not own and not everywhere:
            continue
        if "pipelines" in bases:
            known: Mapping[str, Any] = next(iter(destination.view("pipelines")), {})
            altered = datetime.fromtimestamp((home.pipelines / f"{name}.yaml").stat().st_mtime, timezone.utc)
            config = {"name": name, "table": pipeline.into.table, **summary(pipeline)}
            rows["pipelines"].append({
                "database_name": known.get("database_name") or (file.stem if own else None),
                "pipeline_name": name, "pipeline_id": known.get("pipeline_id"), "config_json": json.dumps(config),
                "state": state, "skipped_batches": known.get("skipped_batches", 0),
                "created": known.get("created"), "altered": altered,
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
    """While inside, the views are there. The file is not written.

    Args:
        connection: in which the file that is asked is the current database; its tables may not be there.
        views: that are asked.
        rows: what is not in the file.
    """
    if not views:
        yield
        return
    here = sql_dialect.present(connection)
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
    """A view of the file's own rows and of the others, as tables of the columns that are needed."""
    columns = BASES[base]
    listed, made = ", ".join(map(quote, columns)), f"{SCHEMA}.{quote(base + '_elsewhere')}"
    connection.execute(f"CREATE TABLE {made} ({', '.join(f'{quote(name)} {kind}' for name, kind in columns.items())})")
    given = [[row.get(name) for name in columns] for row in rows.by_base.get(base, ())]
    if given:
        sql_dialect.DIALECT.insert(connection, made, columns, given)
    of_file, names = "", ", ".join(map(literal, sorted(rows.pipelines)))
    if here:
        database, schema = connection.execute("SELECT current_database(), current_schema()").fetchall()[0]
        of_file = f" UNION ALL SELECT {listed} FROM {quote(database, schema, f'kpipe_{base}')}"  # noqa: S608
        of_file += f" WHERE pipeline_name NOT IN ({names})" if names else ""
    connection.execute(f"CREATE VIEW {SCHEMA}.kpipe_{base} AS SELECT {listed} FROM {made}{of_file}")  # noqa: S608
