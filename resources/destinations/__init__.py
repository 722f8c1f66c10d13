"""Destinations: a table, its dead letters and its ledger in one place, where they are changed together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kpipe.definition.pipeline import Pipeline, Source
from kpipe.definition.secret_values import MASK, is_credential, replaced, shown
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Constrained, Destination
from kpipe.tables.multi_table import table_pipelines
from kpipe.tables.upsert import KeyRule
from resources import extras
from resources.destinations.credentials import rotating
from resources.destinations.ducklake_factory import open_ducklake
from resources.destinations.lakehouse_factory import open_delta, open_iceberg, open_parquet
from resources.destinations.plugins import names, open_installed
from resources.object_store.uri import is_remote, kind

if TYPE_CHECKING:
    from resources.destinations.sql.engine import Engine

__all__ = ["Home", "database_file", "open_destination", "required_columns", "summary"]


class Home(Protocol):
    """The folders that a destination needs of `KPIPE_HOME` (resources/home.py)."""

    @property
    def data(self) -> Path:
        """Folder of the default database."""

    @property
    def cache(self) -> Path:
        """Folder of files that may be removed at any time."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Locations of staged files: folders, or prefixes of object names."""


def open_destination(pipeline: Pipeline, home: Home) -> Destination:
    """Open the destination of the pipeline's `into`. Connects to nothing yet.

    Raises:
        NotAvailable: the type does not exist, or does not support a field of `into`.
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
    """Return the NOT NULL columns of the table, as far as the destination can read them; opens a connection."""
    place = open_destination(pipeline, home)
    return place.required() if isinstance(place, Constrained) else ()


def _duckdb(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.duckdb import DuckDBEngine  # imported late: it loads DuckDB

    if pipeline.into.credentials:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.credentials: a DuckDB file needs no credentials", "remove into.credentials"
        )
    return _sql(pipeline, DuckDBEngine(database_file(pipeline, home), _folders(pipeline, home)))


def _sql(pipeline: Pipeline, engine: Engine) -> Destination:
    from resources.destinations.sql.destination import SqlDestination
    from resources.destinations.sql.engine import TargetTable

    tables = [TargetTable(part.into.table, KeyRule.of(part)) for part in table_pipelines(pipeline)]
    return SqlDestination(engine, pipeline.name, tables, summary(pipeline))


def database_file(pipeline: Pipeline, home: Home) -> Path:
    """Return the DuckDB file of the ledger.

    Raises:
        InvalidPipeline: the database is in memory.
    """
    name = pipeline.into.database
    if name == ":memory:":
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.database: expected a file, found :memory:, which would forget the ledger",
            "set into.database to a file",
        )
    return Path(name) if name is not None else home.data / "kpipe.duckdb"


def _webhook(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.webhook_factory import open_webhook  # imported late: it loads an HTTP client

    return open_webhook(pipeline, database_file(pipeline, home), summary(pipeline), _folders(pipeline, home))


def _postgres(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.postgres import PostgresEngine
        from resources.destinations.postgres.connection import SECRETS, Server
    except ImportError as error:
        raise extras.missing(f"pipeline {pipeline.name}: into.type postgres", "psycopg", "postgres", error=error) from error
    into = pipeline.into
    if into.database is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "postgresql://user@host:5432/database")
    for name in (part.into.table for part in table_pipelines(pipeline)):
        if name.lower().startswith("pg_"):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: into.table {name}: names with pg_ are reserved by PostgreSQL", "choose another name"
            )
    server = Server(into.database, rotating(into.credentials, SECRETS), f"kpipe {pipeline.name}")
    return _sql(pipeline, PostgresEngine(server, _folders(pipeline, home)))


def _mysql(pipeline: Pipeline, home: Home) -> Destination:
    try:
        from resources.destinations.mysql import MySQLEngine
        from resources.destinations.mysql.connection import SECRETS, Server
        from resources.destinations.mysql.sql_dialect import DIALECT, SINGLESTORE
    except ImportError as error:
        subject = f"pipeline {pipeline.name}: into.type {pipeline.into.type}"
        raise extras.missing(subject, "PyMySQL", "mysql", error=error) from error
    into = pipeline.into
    if into.database is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "mysql://user@host:3306/database")
    server = Server(into.database, rotating(into.credentials, SECRETS), f"kpipe {pipeline.name}")
    dialect = SINGLESTORE if into.type == "singlestore" else DIALECT
    return _sql(pipeline, MySQLEngine(server, _folders(pipeline, home), dialect))


def _folders(pipeline: Pipeline, home: Home) -> tuple[Path, ...]:
    """Return the staging folders of a destination that reads local files.

    Raises:
        NotAvailable: files are staged in an object store.
    """
    if any(map(is_remote, home.roots)):
        raise NotAvailable(
            f"pipeline {pipeline.name}: KPIPE_STAGING is an object store, but {pipeline.into.type} loads local files",
            "set KPIPE_STAGING to a folder, or unset it",
        )
    return tuple(map(Path, home.roots))


def _kafka(pipeline: Pipeline, home: Home) -> Destination:
    from resources.destinations.kafka_sink import KafkaDestination  # imported late: it loads the Kafka client

    into, rule = pipeline.into, KeyRule.of(pipeline)
    if into.database is not None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.database: does not apply to a topic", "set into.brokers instead")
    if into.on_conflict != "error" or (rule is not None and rule.duplicates != "fail"):
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.on_conflict and errors.duplicate_key: a topic keeps every record",
            "remove them; into.key is the record's key, and cleanup.policy=compact keeps the latest of each",
        )
    if into.on_null == "delete" and into.key is None:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.on_null: delete needs into.key", "set into.key to the key's columns"
        )
    place = sha256(f"{into.brokers} {into.ledger or pipeline.name}".encode()).hexdigest()[:16]
    notes = home.data / "kafka" / place
    return KafkaDestination(into, pipeline.name, summary(pipeline), _folders(pipeline, home), notes, rule)


_TYPES: dict[str, Callable[[Pipeline, Home], Destination]] = {
    "duckdb": _duckdb,
    "delta": lambda pipeline, home: open_delta(pipeline, home, summary(pipeline)),
    "ducklake": lambda pipeline, home: _sql(pipeline, open_ducklake(pipeline, home, _folders(pipeline, home))),
    "iceberg": lambda pipeline, home: open_iceberg(pipeline, home, summary(pipeline)),
    "kafka": _kafka,
    "parquet": lambda pipeline, home: open_parquet(pipeline, home, summary(pipeline)),
    "mysql": _mysql,
    "postgres": _postgres,
    "singlestore": _mysql,
    "webhook": _webhook,
}


def _source_type(source: Source) -> str:
    """Return the type of a source by SingleStore's names."""
    if source.table is not None:
        return source.table.type.upper()
    if source.http is not None:
        return "HTTP"
    if source.lake is not None:
        return source.lake.type.upper()
    if source.files is None:
        return "KAFKA"
    return kind(source.files.path).upper() if source.files.remote else "FS"


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """Return the `config_json` of a pipeline: SingleStore's field names first, then the definition with masked credentials."""
    source = pipeline.source
    topics = source.topic or ",".join(source.topics or ()) or source.topic_pattern
    return {
        "source_type": _source_type(source),
        "connection_string": f"{source.bootstrap}/{topics}" if source.reads_topics else str(source),
        "batch_interval": pipeline.batch.interval_ms,
        "max_partitions_per_batch": pipeline.batch.max_partitions,
        "stop_on_error": pipeline.errors.batch == "fail",
        "definition": replaced(pipeline.to_dict(), lambda path, value: MASK if is_credential(path) else shown(path, value)),
    }
