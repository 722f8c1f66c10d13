"""Read lookups from the destination: a table, or a SELECT of the user, through read-only connections."""

# ruff: noqa: S608 - names are quoted, and a query is the user's own, checked to be one SELECT
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.definition.lookups import Lookup
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, LookupFailed, NotAvailable
from kpipe.schema.columns import BLOB, VARCHAR, Columns, Type
from resources.destinations import Home, open_destination
from resources.destinations.sql.sql_dialect import quote
from resources.lookups.file_source import chosen, read_texts, too_large

__all__ = ["Asking", "asking", "check_query"]

#: Returns the requested columns of a lookup.
Asking = Callable[[str, Lookup, Sequence[str]], pa.Table]

# Rows read at once: few at first, then as many as have these bytes by the mean size of those before, at most twice as many.
_FIRST, _MOST, _BYTES = 100, 10_000, 1 << 22
_BATCH = 500  # DuckDB has 2,048 rows in memory at once, whose texts a batch copies


def asking(pipeline: Pipeline, home: Home) -> Asking:
    """Return a function that queries the pipeline's destination. Opens nothing yet."""

    def ask(name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
        destination: Any = open_destination(pipeline, home)
        return _READERS[pipeline.into.type](destination.engine, name, lookup, wanted)

    return ask


def check_query(pipeline: Pipeline, name: str, lookup: Lookup) -> None:
    """Check that the destination can be queried, as far as possible without a connection.

    Raises:
        NotAvailable: the destination does not support it.
        InvalidPipeline: the query is not one SELECT.
    """
    if lookup.kind not in ("table", "query"):
        return
    if pipeline.into.type not in _READERS:
        raise NotAvailable(
            f"pipeline {pipeline.name}: lookups.{name}: a {lookup.kind} of a destination of type {pipeline.into.type} cannot be"
            " queried",
            "name a file: path: dim.parquet",
        )
    if lookup.query is None or pipeline.into.type != "duckdb":  # PostgreSQL checks its own grammar
        return
    try:
        statements = duckdb.extract_statements(lookup.query)
    except duckdb.Error as error:
        raise InvalidPipeline(f"lookups.{name}.query: {_first(error)}") from None
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        raise InvalidPipeline(f"lookups.{name}.query: not one SELECT", "use one SELECT; create tables beforehand")


def _duckdb(engine: Any, name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
    where = f"lookups.{name}: {lookup.describe()}"
    if not engine.database.exists():
        raise InvalidPipeline(
            f"{where}: {engine.database.path} does not exist yet", "create the table first: kpipe sql 'CREATE TABLE ...'"
        )
    with engine.database.read() as connection, _errors(where, duckdb.Error):
        source = quote(lookup.table) if lookup.table is not None else f"({_bare(lookup.query)}\n)"
        described = connection.sql(f"SELECT * FROM {source} AS q LIMIT 0")
        picked = chosen(where, list(described.columns), wanted)
        parts, size = [], 0
        with connection.sql(f"SELECT {', '.join(map(quote, picked))} FROM {source} AS q").to_arrow_reader(_BATCH) as reader:
            for batch in reader:
                size += batch.nbytes
                if size > lookup.max_mb << 20:
                    raise too_large(name, lookup)
                parts.append(batch)
            return pa.Table.from_batches(parts, reader.schema)


def _postgres(engine: Any, name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
    """Read each value as PostgreSQL's text, which loses nothing and needs no type support of the driver."""
    import psycopg

    from resources.destinations.postgres.types import text

    where = f"lookups.{name}: {lookup.describe()}"
    with _errors(where, psycopg.Error), engine.server.session() as session:
        session.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session.execute("SELECT set_config('statement_timeout', $1, true)", [f"{max(1, int(lookup.timeout_s * 1000))}ms"])
        source = quote(lookup.table) if lookup.table is not None else f"({_bare(lookup.query)}\n)"
        # With a parameter, the server accepts one statement only, so that the query cannot end the read-only transaction.
        found = session.execute(f"SELECT * FROM {source} AS q WHERE $1::boolean LIMIT 0", [True]).pgresult
        names = [found.fname(at).decode() for at in range(found.nfields)]
        picked = chosen(where, names, wanted)
        kinds = Columns(tuple((item, _kind(session, where, item, found, names.index(item))) for item in picked))
        texts = ", ".join(text(quote(item), kind) for item, kind in kinds)
        session.execute(f"DECLARE kpipe_lookup NO SCROLL CURSOR FOR SELECT {texts} FROM {source} AS q WHERE $1::boolean", [True])
        schema = pa.schema([(item, pa.string()) for item in picked])
        parts, size, step = [schema.empty_table()], 0, _FIRST
        while rows := session.execute(f"FETCH {step} FROM kpipe_lookup").fetchall():
            parts.append(pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema))
            size += parts[-1].nbytes
            if size > lookup.max_mb << 20:
                raise too_large(name, lookup)
            step = max(1, min(2 * step, _MOST, _BYTES * len(rows) // max(1, parts[-1].nbytes)))
    return read_texts(where, pa.concat_tables(parts), kinds, "change it, or CAST the column in a query: to text, for instance")


def _kind(session: Any, where: str, name: str, found: Any, at: int) -> Type:
    from resources.destinations.postgres.types import kpipe_type

    type_name = str(session.execute("SELECT format_type($1::oid, $2::int)", [found.ftype(at), found.fmod(at)]).fetchone()[0])
    kind = VARCHAR if type_name.startswith("character") else kpipe_type(type_name, None)
    if kind is None or kind == BLOB:
        raise InvalidPipeline(
            f"{where}: {name} has type {type_name}", "CAST it in a query: to numeric(38,9), to text, for instance"
        )
    return kind


def _bare(query: str | None) -> str:
    """Return the query without a trailing semicolon."""
    return str(query).rstrip().removesuffix(";")


@contextmanager
def _errors(where: str, errors: type[Exception]) -> Iterator[None]:
    """Convert a database's errors to kpipe's, in one sentence."""
    try:
        yield
    except errors as error:
        state = str(getattr(error, "sqlstate", None) or "")
        if state in ("57014", "") and "timeout" in str(error):
            raise LookupFailed(f"{where} took too long", "read less, or raise its timeout_s") from None
        if state.startswith(("08", "57", "53")) or state == "40001":
            raise LookupFailed(f"{where}: {_first(error)}", "check that the server runs") from None
        raise InvalidPipeline(f"{where} cannot be read: {_first(error)}", "try it in a client of the database") from None


def _first(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


_READERS = {"duckdb": _duckdb, "postgres": _postgres}
