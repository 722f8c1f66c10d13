"""Open the source of a definition: Kafka's topics, or a connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.sink_options import check_header
from kpipe.definition.source import SourceHttp, SourceLake
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Topics
from resources.extras import missing
from resources.object_store.clients import load
from resources.object_store.config import CREDENTIALS, PACKAGES, StoreAccess
from resources.object_store.uri import is_remote, kind
from resources.secret_references import credential
from resources.secrets import Secret
from resources.sources.connector import Connector

__all__ = ["check_connector", "connector_of", "topics_of", "without_first_lines"]


def topics_of(pipeline: Pipeline, environ: Mapping[str, str] | None = None, timeout_s: float | None = None) -> Topics:
    """Return the topics of a pipeline, or the splits of its connector in their form.

    Args:
        pipeline: the definition.
        environ: variables for the templates of credentials; None: this process's environment.
        timeout_s: for a request to brokers; None: the pipeline's setting.

    Raises:
        InvalidPipeline: a setting of the source is invalid.
        NotAvailable: a package that the source needs is not installed.
    """
    connector = connector_of(pipeline, environ)
    if connector is not None:
        from resources.sources.splits import SplitTopics

        return SplitTopics(connector)
    if pipeline.batch.cut == "transaction":
        from resources.sources.transaction_topics import TransactionTopics

        return TransactionTopics(pipeline.source, environ, timeout_s, pipeline.format)
    from resources.kafka.topic_metadata import KafkaTopics

    return KafkaTopics(pipeline.source, environ, timeout_s)


def connector_of(pipeline: Pipeline, environ: Mapping[str, str] | None = None) -> Connector | None:
    """Return the connector of a pipeline; None: it reads topics.

    Raises:
        InvalidPipeline, NotAvailable: see `topics_of`.
    """
    files, table = pipeline.source.files, pipeline.source.table
    if table is not None:
        from resources.sources.tables.connector import TableConnector

        check_connector(pipeline, environ)
        return TableConnector(table, _secrets(pipeline, environ))
    if pipeline.source.lake is not None:
        return _lake(pipeline, pipeline.source.lake, environ)
    if pipeline.source.http is not None:
        from resources.sources.http.connector import HttpConnector

        check_connector(pipeline, environ)
        return HttpConnector(pipeline.source.http, _secrets(pipeline, environ))
    if files is None:
        return None
    from resources.sources.files.connector import FileConnector

    access = None
    if files.remote:
        check_connector(pipeline, environ)
        secrets = _secrets(pipeline, environ)
        access = StoreAccess(None, "", tuple(sorted(secrets.items())), kind(files.path))
    return FileConnector(files, access, pipeline.format.skip_lines, pipeline.format.delimiter)


def _lake(pipeline: Pipeline, lake: SourceLake, environ: Mapping[str, str] | None) -> Connector:
    from resources.sources.lakes.connector import LakeConnector

    check_connector(pipeline, environ)
    given = _secrets(pipeline, environ)
    access = None
    if is_remote(lake.database):
        own = {name: value for name, value in given.items() if not name.startswith("catalog.")}
        access = StoreAccess(None, "", tuple(sorted(own.items())), kind(lake.database))
    return LakeConnector(lake, given, access)


def _check_lake(pipeline: Pipeline, lake: SourceLake, environ: Mapping[str, str] | None) -> None:
    """Check location, catalog and names of credentials with the code of the destination, and that its packages are there."""
    from resources.destinations.lakehouse_factory import open_catalogue, open_folder
    from resources.sources.lakes.opening import NoHome, as_destination, translated

    package = "deltalake" if lake.type == "delta" else "pyiceberg"
    try:
        import_module(package)
    except ImportError as error:
        raise missing(f"pipeline {pipeline.name}: source.lake", package, lake.type, error=error) from error
    given = _secrets(pipeline, environ, read=False)
    with translated(lake, given):
        definition = as_destination(lake, dict(given))
        (open_folder if lake.type == "delta" else open_catalogue)(definition, NoHome())


def _check_http(pipeline: Pipeline, http: SourceHttp, environ: Mapping[str, str] | None) -> None:
    """Check the address, and names of credentials."""
    from resources.sources.http.requests import CREDENTIALS as LOGIN
    from resources.sources.http.requests import HEADER, checked

    checked(http)
    given = pipeline.source.credentials
    for name in given:
        try:
            if name.startswith(HEADER):
                check_header(name.removeprefix(HEADER), "")
        except ValueError as error:
            raise InvalidPipeline(
                f"source.credentials: {error}", f"use token, or username and password, or {HEADER}NAME"
            ) from None
        if not name.startswith(HEADER) and name not in LOGIN:
            hint = f"credentials are {', '.join(LOGIN)} and {HEADER}NAME"
            raise InvalidPipeline(f"source.credentials: {name} is not a credential of the source", hint).about(
                "source", "credentials"
            )
    if ("username" in given) != ("password" in given) or {"token", "username"} <= given.keys():
        raise InvalidPipeline("source.credentials: expected token, or username and password", "set one of the two")
    for name, value in _secrets(pipeline, environ, read=False).items():
        if not (value.isascii() and value.isprintable()) and value:
            raise InvalidPipeline(
                f"source.credentials: {name}: expected printable ASCII, found other characters", "check its value"
            )


def check_connector(pipeline: Pipeline, environ: Mapping[str, str] | None = None) -> None:
    """Check the settings of a source without a connection, and without reading files and commands of credentials.

    Raises:
        InvalidPipeline, NotAvailable: see `topics_of`.
    """
    source, files, table = pipeline.source, pipeline.source.files, pipeline.source.table
    if source.reads_topics:
        return
    if source.lake is not None:
        _check_lake(pipeline, source.lake, environ)
        return
    if source.http is not None:
        _check_http(pipeline, source.http, environ)
        return
    allowed: Sequence[str] = CREDENTIALS[kind(files.path)] if files is not None and files.remote else ()
    if table is not None and table.type != "duckdb":
        server, allowed = _server(table.type, f"pipeline {pipeline.name}: source.table")
        try:
            server(table.database, {}, "")
        except InvalidPipeline as error:
            what = error.what.replace("into.database", "source.table.database")
            raise InvalidPipeline(what, error.hint.replace("into.", "source.")).about("source", "table", "database") from None
    unknown = sorted(source.credentials.keys() - set(allowed))
    if unknown:
        known = f"credentials are {', '.join(allowed)}" if allowed else "remove it: the source needs no credentials"
        raise InvalidPipeline(f"source.credentials: {unknown[0]} is not a credential of the source", known).about(
            "source", "credentials"
        )
    _secrets(pipeline, environ, read=False)
    if files is not None and files.remote:
        which = kind(files.path)
        try:
            load(which)
        except ImportError as error:
            raise missing(f"pipeline {pipeline.name}: source.files", *PACKAGES[which], error=error) from error


def _server(type: str, where: str) -> tuple[Callable[..., object], Sequence[str]]:
    """Return the class of a server's connections, and the names of its credentials."""
    try:
        if type == "mysql":
            from resources.destinations.mysql import connection as mysql

            return mysql.Server, mysql.SECRETS
        from resources.destinations.postgres import connection as postgres

        return postgres.Server, postgres.SECRETS
    except ImportError as error:
        raise missing(where, *(("PyMySQL", "mysql") if type == "mysql" else ("psycopg", "postgres")), error=error) from error


def without_first_lines(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline as its decoders see it: for files, `format.skip_lines` is the connector's, not that of each record."""
    if pipeline.source.files is None or not pipeline.format.skip_lines:
        return pipeline
    return pipeline.model_copy(update={"format": pipeline.format.model_copy(update={"skip_lines": 0})})


def _secrets(pipeline: Pipeline, environ: Mapping[str, str] | None, read: bool = True) -> dict[str, Secret]:
    given = pipeline.source.credentials
    return {name: Secret(credential(f"source.credentials: {name}", text, environ, read)) for name, text in given.items()}
