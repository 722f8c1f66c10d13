"""Destinations: a table, its dead letters and its ledger, in one place that changes all three at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.keys import KeyRule
from kpipe.notation import resolve
from kpipe.pipeline import Pipeline
from kpipe.ports import Constrained, Destination
from resources.kafka.secret import MASK, Secret

__all__ = ["WITHOUT_NUL", "Home", "open_destination", "required_columns", "summary"]


#: Types of destinations whose texts cannot hold the character NUL.
WITHOUT_NUL = frozenset({"postgres"})


class Home(Protocol):
    """The folders that a destination needs of `KPIPE_HOME` (resources/home.py)."""

    @property
    def data(self) -> Path:
        """Where the default database lies."""

    @property
    def staging(self) -> Path:
        """Where tasks leave finished files."""


def open_destination(pipeline: Pipeline, home: Home) -> Destination:
    """The destination that the pipeline's `into` names. Opens nothing yet.

    Raises:
        NotAvailable: no such destination, or it cannot do what `into` asks for.
    """
    kind = pipeline.into.type
    if kind not in _TYPES:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type {kind!r} is not available", f"use one of: {', '.join(sorted(_TYPES))}"
        )
    return _TYPES[kind](pipeline, home)


def required_columns(pipeline: Pipeline, home: Home) -> Collection[str]:
    """Columns of the table that take no NULL, as far as its destination can tell. Asked through a connection of its own."""
    place = open_destination(pipeline, home)
    return place.required() if isinstance(place, Constrained) else ()


def _duckdb(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.duckdb import DuckDBDestination  # an engine is loaded when it is used

    into = pipeline.into
    if into.credentials:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.credentials: a DuckDB file has none", "remove them")
    if into.database == ":memory:":
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database :memory: would forget its ledger", "name a file")
    path = Path(into.database) if into.database is not None else home.data / "kpipe.duckdb"
    return DuckDBDestination(path, into.table, pipeline.name, summary(pipeline), (home.staging,), rule=KeyRule.of(pipeline))


def _postgres(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.postgres import PostgresDestination
        from resources.destinations.postgres.connection import SECRETS, Server
    except ImportError as error:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type postgres needs psycopg, which cannot be loaded: {error}",
            "pip install 'kpipe[postgres]'",
        ) from error
    into = pipeline.into
    if into.database is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "postgresql://user@host:5432/database")
    if into.table.lower().startswith("pg_"):
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.table {into.table}: pg_ is PostgreSQL's own", "name another")
    server = Server(into.database, _secrets(into.credentials, SECRETS), f"kpipe {pipeline.name}")
    return PostgresDestination(server, into.table, pipeline.name, summary(pipeline), (home.staging,), KeyRule.of(pipeline))


def _no_key(pipeline: Pipeline) -> None:
    if KeyRule.of(pipeline) is not None:
        fields = "into.key, into.on_conflict, into.on_null and errors.duplicate_key"
        raise NotAvailable(
            f"pipeline {pipeline.name}: {fields} are not available for {pipeline.into.type}",
            "leave them out, and pick the latest row of each key in a view over the table",
        )


def _secrets(given: Mapping[str, str], known: Collection[str]) -> dict[str, Secret]:
    """What the templates of `into.credentials` stand for, read when the destination is opened.

    Raises:
        InvalidPipeline: one is not known, or its variable is not set.
    """
    found: dict[str, Secret] = {}
    for key, template in given.items():
        if key not in known:
            raise InvalidPipeline(f"into.credentials: {key} is not a credential", f"credentials are {', '.join(known)}")
        try:
            found[key] = Secret(resolve(template))
        except InvalidPipeline as error:
            # From None: what is chained shows up in tracebacks, and the template itself may be the secret.
            raise InvalidPipeline(f"into.credentials: {key}: {error.what}", error.hint) from None
        if not found[key].strip():
            raise InvalidPipeline(f"into.credentials: {key} is empty", "set the variable that it names")
    return found


def _delta(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.delta import DeltaLake
    except ImportError as error:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type delta needs the package deltalake ({error})", "pip install 'kpipe[delta]'"
        ) from error
    from resources.destinations.lake import LakeDestination

    return LakeDestination(
        DeltaLake(_folder(pipeline, home) / pipeline.into.table),
        pipeline.into.table,
        pipeline.name,
        summary(pipeline),
        (home.staging,),
    )


def _iceberg(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.iceberg import IcebergLake
    except ImportError as error:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type iceberg needs the package pyiceberg ({error})", "pip install 'kpipe[iceberg]'"
        ) from error
    from resources.destinations.lake import LakeDestination

    table = pipeline.into.table
    return LakeDestination(IcebergLake(_folder(pipeline, home), table), table, pipeline.name, summary(pipeline), (home.staging,))


def _folder(pipeline: Pipeline, home: Home) -> Path:
    """The folder that `into.database` names, for tables that are folders in it.

    Raises:
        NotAvailable: rows of a key would have to be replaced, or the folder is not on this machine's disks.
    """
    into = pipeline.into
    _no_key(pipeline)
    if into.database is None:
        return home.data / into.type
    scheme, found, rest = into.database.partition("://")
    if found and scheme != "file":
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.database {scheme}:// is not available in this version", "name a folder"
        )
    return Path(rest if found else into.database).expanduser()


_TYPES: dict[str, Callable[[Pipeline, Home], Destination]] = {
    "duckdb": _duckdb,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
}


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """What `config_json` shows of a pipeline: SingleStore's words first, then the definition with credentials masked."""
    source = pipeline.source
    topics = source.topic or ",".join(source.topics or ()) or source.topic_pattern
    definition = pipeline.to_dict()
    for part, given in (("source", source.credentials), ("into", pipeline.into.credentials)):
        if given:
            definition[part]["credentials"] = dict.fromkeys(given, MASK)
    return {
        "source_type": "KAFKA",
        "connection_string": f"{source.bootstrap}/{topics}",
        "batch_interval": pipeline.batch.interval_ms,
        "max_partitions_per_batch": pipeline.batch.max_partitions,
        "stop_on_error": pipeline.errors.parse == "fail",
        "definition": definition,
    }
