"""Open tables of table formats: location and credentials by the fields of `into`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.destinations.credentials import rotating, secrets
from resources.destinations.object_store_factory import open_bucket
from resources.extras import missing
from resources.object_store.uri import FORMS, is_remote, kind
from resources.schema_registry.config import is_local

# Folder of the lists of topics, beside the tables: no table has such a name.
_TOPICS = "_kpipe-topics"
# Credentials of a REST catalogue: a token, or the client id and secret to obtain one.
_REST = ("catalog.token", "catalog.client.id", "catalog.client.secret")

#: Characters of local paths that libraries decode as those of URLs. They would write elsewhere.
_SIGNS = {"delta": "%", "iceberg": "%#?"}

__all__ = ["open_catalogue", "open_delta", "open_folder", "open_iceberg", "open_parquet"]


class Home(Protocol):
    """The folders of `KPIPE_HOME` that such a table needs."""

    @property
    def data(self) -> Path:
        """Default folder of tables."""

    @property
    def cache(self) -> Path:
        """Folder of files that may be removed at any time."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders of staged files."""


def open_delta(pipeline: Pipeline, home: Home, config: Mapping[str, Any]) -> Destination:
    """Open a Delta table, in a folder or in an object store.

    Raises:
        NotAvailable, InvalidPipeline: a package is missing, or a field of `into` is invalid or not supported.
    """
    try:
        from resources.destinations.delta import DeltaLake
    except ImportError as error:
        raise _missing(pipeline, "deltalake", "delta", error=error) from error
    from resources.destinations.lakehouse import LakeDestination

    folder = _folder(pipeline, home)

    def opened(part: Pipeline) -> Any:
        return _opened(LakeDestination, DeltaLake(folder.below(part.into.table), part.into.parts), part, home, config)

    return _tables(pipeline, folder.below(_TOPICS), opened, home)


def open_iceberg(pipeline: Pipeline, home: Home, config: Mapping[str, Any]) -> Destination:
    """Open an Iceberg table and its catalogue.

    Raises:
        NotAvailable, InvalidPipeline: a package is missing, or a field of `into` is invalid or not supported.
    """
    try:
        from resources.destinations.iceberg import NAMESPACE, Audit, AuditedDestination, IcebergLake, Shared
    except ImportError as error:
        raise _missing(pipeline, "pyiceberg", "iceberg", error=error) from error
    from resources.destinations.lakehouse import LakeDestination

    into = pipeline.into
    if into.database is not None and is_remote(into.database) and kind(into.database) != "s3":
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.database: {into.database.partition('://')[0]}:// is not available for iceberg",
            "use into.type delta or parquet; or a folder or s3://bucket/key for iceberg",
        )
    folder = _folder(pipeline, home, _of_catalogue(into.catalog))
    audit = Audit(into.audit) if into.audit else None
    catalogue = Shared(_catalogue(pipeline, folder))
    base = LakeDestination if audit is None else AuditedDestination

    def opened(part: Pipeline) -> Any:
        lake = IcebergLake(folder, part.into.table, catalogue, into.namespace, audit, into.parts)
        return _opened(base, lake, part, home, config)

    topics = folder.below(_TOPICS)
    return _tables(pipeline, topics if into.namespace == NAMESPACE else topics.below(into.namespace), opened, home)


def _tables(pipeline: Pipeline, topics: Any, opened: Callable[[Pipeline], Any], home: Home) -> Destination:
    """Return the destination of the pipeline's table, or of its tables by topic.

    Args:
        pipeline: the definition.
        topics: folder of the lists of topics.
        opened: opens the destination of a table, from a definition that names it.
        home: contains the folders of staged files.
    """
    found: Destination
    if not pipeline.into.by_topic:
        found = opened(pipeline)
        return found
    from resources.destinations.lakehouse.topics import KeyedTopicLakes, TopicLakes, TopicRegistry

    def of(table: str) -> Any:
        return opened(pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"table": table})}))

    arguments = (of, TopicRegistry(topics, pipeline.name), pipeline.into.table, pipeline.name, home.roots)
    rule = KeyRule.of(pipeline)
    found = TopicLakes(*arguments) if rule is None else KeyedTopicLakes(*arguments, rule=rule)
    return found


def _opened(base: Any, lake: Any, pipeline: Pipeline, home: Home, config: Mapping[str, Any]) -> Destination:
    """Return the destination of a table: of the class `base`, with keys if the definition has a rule."""
    into, rule = pipeline.into, KeyRule.of(pipeline)
    found: Destination
    if rule is None:
        found = base(lake, into.table, pipeline.name, config, home.roots)
        return found
    from resources.destinations.lakehouse.keyed import keyed  # imported late: it loads DuckDB

    cache = home.cache / "keys" / sha256(f"{lake.place} {into.key}".encode()).hexdigest()[:32]
    found = keyed(base)(lake, into.table, pipeline.name, config, home.roots, rule=rule, cache=cache)
    return found


def _of_catalogue(address: str | None) -> tuple[str, ...]:
    """Return the names of the catalogue's credentials."""
    if address is None:
        return ()
    return ("catalog.password",) if address.startswith("postgresql:") else _REST


def _catalogue(pipeline: Pipeline, folder: Any) -> Any:
    """Open the catalogue of `into.catalog`.

    Raises:
        NotAvailable: a package is missing.
        InvalidPipeline: the address is invalid, or its credentials do not match.
    """
    from resources.destinations.iceberg import Postgres, Rest, SQLite

    into = pipeline.into
    if into.catalog is None:
        if is_remote(folder.place):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: into.catalog is missing: a table in an object store needs a catalogue server",
                "set into.catalog to postgresql://user@host:5432/database, or to the URL of a REST catalogue",
            )
        if into.catalog_name is not None:
            raise InvalidPipeline(f"pipeline {pipeline.name}: into.catalog_name needs into.catalog", "remove into.catalog_name")
        return SQLite(folder.path)
    known = _of_catalogue(into.catalog)
    mine = {name.removeprefix("catalog."): given for name, given in into.credentials.items() if name in known}
    names = [name.removeprefix("catalog.") for name in known]
    if not into.catalog.startswith("postgresql:"):
        given = secrets(mine, names)
        if given and {*given} not in ({"token"}, {"client.id", "client.secret"}):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: into.credentials: expected those of a REST catalogue, found others",
                f"set {_REST[0]}, or {_REST[1]} and {_REST[2]}",
            )
        place = urlsplit(into.catalog)
        if given and place.scheme == "http" and not is_local(place.hostname or ""):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: into.catalog: credentials would go to {place.hostname} unencrypted", "use https://"
            )
        return Rest(into.catalog, given, into.catalog_name)
    try:
        from resources.destinations.postgres.connection import Server
    except ImportError as error:
        raise _missing(pipeline, "psycopg", "iceberg", "postgres", error=error) from error
    return Postgres(Server(into.catalog, rotating(mine, names), f"kpipe {pipeline.name}"), into.catalog_name)


def open_parquet(pipeline: Pipeline, home: Home, config: Mapping[str, Any]) -> Destination:
    """Open a folder of Parquet files, on a local disk or in an object store.

    Raises:
        NotAvailable, InvalidPipeline: a package is missing, or a field of `into` is invalid or not supported.
    """
    from resources.destinations.lakehouse import LakeDestination
    from resources.destinations.parquet import ParquetFolder

    _no_key(pipeline)
    folder = _folder(pipeline, home)

    def opened(part: Pipeline) -> Any:
        lake = ParquetFolder(folder.below(part.into.table))
        return LakeDestination(lake, part.into.table, part.name, config, home.roots)

    return _tables(pipeline, folder.below(_TOPICS), opened, home)


def open_folder(pipeline: Pipeline, home: Home) -> Any:
    """Open the folder of `into.database`, for readers of its tables.

    Raises:
        NotAvailable, InvalidPipeline: see `open_delta`.
    """
    return _folder(pipeline, home)


def open_catalogue(pipeline: Pipeline, home: Home) -> tuple[Any, Any]:
    """Open the folder and the catalogue of an Iceberg table, for readers.

    Raises:
        NotAvailable, InvalidPipeline: see `open_iceberg`.
    """
    folder = _folder(pipeline, home, _of_catalogue(pipeline.into.catalog))
    return folder, _catalogue(pipeline, folder)


def _no_key(pipeline: Pipeline) -> None:
    if KeyRule.of(pipeline) is not None:
        fields = "into.key, into.on_conflict, into.on_null and errors.duplicate_key"
        raise NotAvailable(
            f"pipeline {pipeline.name}: {fields} are not available for {pipeline.into.type}",
            "set into.type: iceberg or delta; or remove these fields, and select the latest row of each key in a view",
        )


def _missing(pipeline: Pipeline, library: str, *extra: str, error: ImportError) -> NotAvailable:
    return missing(f"pipeline {pipeline.name}: into.type {pipeline.into.type}", library, *extra, error=error)


def _folder(pipeline: Pipeline, home: Home, others: Collection[str] = ()) -> Any:
    """Open the folder of `into.database`; each table is a folder in it.

    Args:
        pipeline: the pipeline of the table.
        home: contains the default folder.
        others: names of credentials that are not the folder's.

    Raises:
        NotAvailable: the store is not supported, or files are staged where its tables cannot copy them from.
        InvalidPipeline: the URL is invalid, or credentials are not used.
    """
    from resources.destinations.lakehouse.folder import LocalFolder

    into = pipeline.into
    if pipeline.also:
        raise NotAvailable(
            f"pipeline {pipeline.name}: also is not available for {into.type}: no commit changes two of its tables at once",
            "use into.type duckdb, postgres or mysql, or a pipeline for each table",
        )
    given = into.database if into.database is not None else str(home.data / into.type)
    mine = {name: template for name, template in into.credentials.items() if name not in others}
    if is_remote(given):
        return open_bucket(pipeline, given, mine, home.roots)
    scheme, found, rest = given.partition("://")
    if found and scheme != "file":
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.database {scheme}:// is not available in this version",
            f"set into.database to a folder, or to {FORMS}",
        )
    if mine:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.credentials: {next(iter(mine))}: a local folder needs no credentials", "remove it"
        )
    if any(map(is_remote, home.roots)):
        raise NotAvailable(
            f"pipeline {pipeline.name}: KPIPE_STAGING is an object store, but into.database is a local folder",
            "set into.database to the object store, or unset KPIPE_STAGING",
        )
    path = Path(rest if found else given).expanduser().resolve()
    if unfit := [sign for sign in _SIGNS.get(into.type, "") if sign in str(path)]:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.database: {path} contains {' and '.join(unfit)}, which programs for {into.type}"
            " decode in paths",
            "choose another folder; the default is in KPIPE_HOME",
        )
    return LocalFolder(path)
