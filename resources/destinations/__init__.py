"""Destinations: a table, its dead letters and its ledger, in one place that changes all three at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Constrained, Destination
from kpipe.tables.multi_table import targets
from kpipe.tables.upsert import KeyRule
from resources.destinations.credentials import secrets
from resources.destinations.lakehouse_factory import open_delta, open_iceberg, open_parquet
from resources.destinations.plugins import names, open_installed
from resources.object_store.uri import is_remote
from resources.secrets import MASK

__all__ = ["WITHOUT_NUL", "Home", "open_destination", "required_columns", "summary"]


#: Types of destinations whose texts cannot hold the character NUL.
WITHOUT_NUL = frozenset({"postgres"})


class Home(Protocol):
    """The folders that a destination needs of `KPIPE_HOME` (resources/home.py)."""

    @property
    def data(self) -> Path:
        """Where the default database lies."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Where tasks leave finished files: folders, or beginnings of objects' names."""


def open_destination(pipeline: Pipeline, home: Home) -> Destination:
    """The destination that the pipeline's `into` names. Opens nothing yet.

    Raises:
        NotAvailable: no such destination, or it cannot do what `into` asks for.
    """
    kind = pipeline.into.type
    if kind in _TYPES:
        return _TYPES[kind](pipeline, home)
    found = open_installed(pipeline, home)
    if found is None:
        known = ", ".join(sorted({*_TYPES, *names()}))
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type {kind!r} is not available", f"use one of: {known}; or install a package for it"
        )
    return found


def required_columns(pipeline: Pipeline, home: Home) -> Collection[str]:
    """Columns of the table that take no NULL, as far as its destination can tell. Asked through a connection of its own."""
    place = open_destination(pipeline, home)
    return place.required() if isinstance(place, Constrained) else ()


def _duckdb(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.duckdb import DuckDBDestination  # an engine is loaded when it is used

    into = pipeline.into
    if into.credentials:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.credentials: a DuckDB file has none", "remove them")
    path = _file(pipeline, home)

    def made(part: Pipeline, also: Sequence[DuckDBDestination] = ()) -> DuckDBDestination:
        shown, rule = summary(pipeline), KeyRule.of(part)
        return DuckDBDestination(path, part.into.table, part.name, shown, _folders(pipeline, home), rule=rule, also=also)

    first, *more = targets(pipeline)
    return made(first, [made(part) for part in more])


def _file(pipeline: Pipeline, home: Home) -> Path:
    """The DuckDB file that holds the ledger."""
    name = pipeline.into.database
    if name == ":memory:":
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database :memory: would forget its ledger", "name a file")
    return Path(name) if name is not None else home.data / "kpipe.duckdb"


def _webhook(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.webhook_factory import open_webhook  # a client is loaded when it is used

    return open_webhook(pipeline, _file(pipeline, home), summary(pipeline), _folders(pipeline, home))


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
    parts = targets(pipeline)
    for name in (part.into.table for part in parts):
        if name.lower().startswith("pg_"):
            raise InvalidPipeline(f"pipeline {pipeline.name}: into.table {name}: pg_ is PostgreSQL's own", "name another")
    server = Server(into.database, secrets(into.credentials, SECRETS), f"kpipe {pipeline.name}")

    def made(part: Pipeline, also: Sequence[PostgresDestination] = ()) -> PostgresDestination:
        return PostgresDestination(
            server, part.into.table, part.name, summary(pipeline), _folders(pipeline, home), KeyRule.of(part), also
        )  # fmt: skip

    return made(parts[0], [made(part) for part in parts[1:]])


def _mysql(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.mysql import MySQLDestination
        from resources.destinations.mysql.connection import SECRETS, Server
        from resources.destinations.mysql.sql_dialect import DIALECT, SINGLESTORE
    except ImportError as error:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type {pipeline.into.type} needs PyMySQL, which cannot be loaded: {error}",
            "pip install 'kpipe[mysql]'",
        ) from error
    into = pipeline.into
    if into.database is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "mysql://user@host:3306/database")
    parts = targets(pipeline)
    server = Server(into.database, secrets(into.credentials, SECRETS), f"kpipe {pipeline.name}")
    dialect = SINGLESTORE if into.type == "singlestore" else DIALECT

    def made(part: Pipeline, also: Sequence[MySQLDestination] = ()) -> MySQLDestination:
        return MySQLDestination(
            server, part.into.table, part.name, summary(pipeline), _folders(pipeline, home), KeyRule.of(part), also, dialect
        )  # fmt: skip

    return made(parts[0], [made(part) for part in parts[1:]])


def _folders(pipeline: Pipeline, home: Home) -> tuple[Path, ...]:
    """Staging of a destination that reads files of this machine.

    Raises:
        NotAvailable: tasks leave them in an object store.
    """
    if any(map(is_remote, home.roots)):
        raise NotAvailable(
            f"pipeline {pipeline.name}: KPIPE_STAGING is an object store, and {pipeline.into.type} loads files of this machine",
            "name a folder there, or leave it out",
        )
    return tuple(map(Path, home.roots))


def _kafka(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.kafka_sink import KafkaDestination  # a client is loaded when it is used

    into, rule = pipeline.into, KeyRule.of(pipeline)
    if into.database is not None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database: a topic is in no database", "write into.brokers")
    if into.on_conflict != "error" or (rule is not None and rule.duplicates != "fail"):
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.on_conflict and errors.duplicate_key: a topic holds every record that is written",
            "leave them out; into.key is the record's key, and cleanup.policy=compact keeps the latest of each",
        )
    if into.on_null == "delete" and into.key is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.on_null: delete needs into.key", "name the columns of the key")
    place = sha256(f"{into.brokers} {into.ledger or pipeline.name}".encode()).hexdigest()[:16]
    notes = home.data / "kafka" / place
    return KafkaDestination(into, pipeline.name, summary(pipeline), _folders(pipeline, home), notes, rule)


_TYPES: dict[str, Callable[[Pipeline, Home], Destination]] = {
    "duckdb": _duckdb,
    "delta": lambda pipeline, home: open_delta(pipeline, home, summary(pipeline)),
    "iceberg": lambda pipeline, home: open_iceberg(pipeline, home, summary(pipeline)),
    "kafka": _kafka,
    "parquet": lambda pipeline, home: open_parquet(pipeline, home, summary(pipeline)),
    "mysql": _mysql,
    "postgres": _postgres,
    "singlestore": _mysql,
    "webhook": _webhook,
}


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """What `config_json` shows of a pipeline: SingleStore's words first, then the definition with credentials masked."""
    source = pipeline.source
    topics = source.topic or ",".join(source.topics or ()) or source.topic_pattern
    definition = pipeline.to_dict()
    for part, given in (("source", source.credentials), ("into", pipeline.into.credentials)):
        if given:
            definition[part]["credentials"] = dict.fromkeys(given, MASK)
    for name, lookup in pipeline.lookups.items():
        if lookup.credentials:
            definition["lookups"][name]["credentials"] = dict.fromkeys(lookup.credentials, MASK)
    return {
        "source_type": "KAFKA",
        "connection_string": f"{source.bootstrap}/{topics}",
        "batch_interval": pipeline.batch.interval_ms,
        "max_partitions_per_batch": pipeline.batch.max_partitions,
        "stop_on_error": pipeline.errors.batch == "fail",
        "definition": definition,
    }
