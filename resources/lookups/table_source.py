"""Lookups that are asked of the destination: a table, or the user's own SELECT, through connections that cannot write."""

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
from resources.duckdb_engine import in_memory
from resources.lookups.file_source import chosen, too_large

__all__ = ["Asking", "asking", "check_query"]

#: Gives the columns that are asked for, of a lookup of that name.
Asking = Callable[[str, Lookup, Sequence[str]], pa.Table]

_AT_ONCE = 10_000


def asking(pipeline: Pipeline, home: Home) -> Asking:
    """What asks the pipeline's destination. Opens nothing yet."""

    def ask(name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
        place = open_destination(pipeline, home)
        return _READERS[pipeline.into.type](place, name, lookup, wanted)

    return ask


def check_query(pipeline: Pipeline, name: str, lookup: Lookup) -> None:
    """Whether the destination can be asked, as far as can be told without it.

    Raises:
        NotAvailable: not this destination.
        InvalidPipeline: the query is not one SELECT.
    """
    if lookup.kind not in ("table", "query"):
        return
    if pipeline.into.type not in _READERS:
        raise NotAvailable(
            f"pipeline {pipeline.name}: lookups.{name}: a {lookup.kind} of a destination of type {pipeline.into.type} cannot be"
            " asked",
            "name a file: path: dim.parquet",
        )
    if lookup.query is None or pipeline.into.type != "duckdb":  # PostgreSQL has its own grammar, and is asked itself
        return
    try:
        found = duckdb.extract_statements(lookup.query)
    except duckdb.Error as error:
        raise InvalidPipeline(f"lookups.{name}.query: {_first(error)}") from None
    if len(found) != 1 or found[0].type.name != "SELECT":
        raise InvalidPipeline(f"lookups.{name}.query is not one SELECT", "a lookup only asks; make tables beforehand")


def _duckdb(place: Any, name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
    where = f"lookups.{name}: {lookup.describe()}"
    if not place.database.exists():
        raise InvalidPipeline(
            f"{where}: there is no {place.database.path} yet", "make the table first: kpipe sql 'CREATE TABLE ...'"
        )
    with place.database.read() as connection, _told(where, duckdb.Error):
        source = quote(lookup.table) if lookup.table is not None else f"({_bare(lookup.query)}\n)"
        described = connection.sql(f"SELECT * FROM {source} AS q LIMIT 0")
        picked = chosen(where, list(described.columns), wanted)
        parts, size = [], 0
        with connection.sql(f"SELECT {', '.join(map(quote, picked))} FROM {source} AS q").to_arrow_reader(_AT_ONCE) as reader:
            for batch in reader:
                size += batch.nbytes
                if size > lookup.max_mb << 20:
                    raise too_large(name, lookup)
                parts.append(batch)
            return pa.Table.from_batches(parts, reader.schema)


def _postgres(place: Any, name: str, lookup: Lookup, wanted: Sequence[str]) -> pa.Table:
    """Every value as PostgreSQL's own text, read as its type: nothing is lost on the way, and no type needs a driver's help."""
    import psycopg

    where = f"lookups.{name}: {lookup.describe()}"
    with _told(where, psycopg.Error), place.server.session() as session:
        session.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session.execute("SELECT set_config('statement_timeout', $1, true)", [f"{max(1, int(lookup.timeout_s * 1000))}ms"])
        source = quote(lookup.table) if lookup.table is not None else f"({_bare(lookup.query)}\n)"
        # With a parameter the server takes one statement only: nothing can end the transaction that cannot write.
        found = session.execute(f"SELECT * FROM {source} AS q WHERE $1::boolean LIMIT 0", [True]).pgresult
        names = [found.fname(at).decode() for at in range(found.nfields)]
        picked = chosen(where, names, wanted)
        kinds = Columns(tuple((item, _kind(session, where, item, found, names.index(item))) for item in picked))
        texts = ", ".join(f"{quote(item)}::text" for item in picked)
        session.execute(f"DECLARE kpipe_lookup NO SCROLL CURSOR FOR SELECT {texts} FROM {source} AS q WHERE $1::boolean", [True])
        schema = pa.schema([(item, pa.string()) for item in picked])
        parts, size = [schema.empty_table()], 0
        while rows := session.execute(f"FETCH {_AT_ONCE} FROM kpipe_lookup").fetchall():
            parts.append(pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema))
            size += parts[-1].nbytes
            if size > lookup.max_mb << 20:
                raise too_large(name, lookup)
    return in_memory.parsed(pa.concat_tables(parts), kinds)


def _kind(session: Any, where: str, name: str, found: Any, at: int) -> Type:
    from resources.destinations.postgres.types import kpipe_type

    said = str(session.execute("SELECT format_type($1::oid, $2::int)", [found.ftype(at), found.fmod(at)]).fetchone()[0])
    kind = VARCHAR if said.startswith("character") else kpipe_type(said, None)
    if kind is None or kind == BLOB:
        raise InvalidPipeline(f"{where}: {name} has type {said}", "CAST it in a query: to numeric(38,9), to text, for instance")
    return kind


def _bare(query: str | None) -> str:
    """The query without the semicolon that people write behind it."""
    return str(query).rstrip().removesuffix(";")


@contextmanager
def _told(where: str, errors: type[Exception]) -> Iterator[None]:
    """What a database has against the question, in one sentence."""
    try:
        yield
    except errors as error:
        state = str(getattr(error, "sqlstate", None) or "")
        if state in ("57014", "") and "timeout" in str(error):
            raise LookupFailed(f"{where} took too long", "ask for less, or raise its timeout_s") from None
        if state.startswith(("08", "57", "53")) or state == "40001":
            raise LookupFailed(f"{where}: {_first(error)}", "see that the server runs") from None
        raise InvalidPipeline(f"{where} cannot be read: {_first(error)}", "try it in a client of the database") from None


def _first(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


_READERS = {"duckdb": _duckdb, "postgres": _postgres}
