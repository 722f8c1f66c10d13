"""Open the source of a definition: Kafka's topics, or a connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Topics
from resources.extras import missing
from resources.object_store.clients import load
from resources.object_store.config import CREDENTIALS, PACKAGES, StoreAccess
from resources.object_store.uri import kind
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
    if files is None:
        return None
    from resources.sources.files.connector import FileConnector

    access = None
    if files.remote:
        check_connector(pipeline, environ)
        secrets = _secrets(pipeline, environ)
        access = StoreAccess(None, "", tuple(sorted(secrets.items())), kind(files.path))
    return FileConnector(files, access, pipeline.format.skip_lines, pipeline.format.delimiter)


def check_connector(pipeline: Pipeline, environ: Mapping[str, str] | None = None) -> None:
    """Check the settings of a source without a connection, and without reading files and commands of credentials.

    Raises:
        InvalidPipeline, NotAvailable: see `topics_of`.
    """
    source, files, table = pipeline.source, pipeline.source.files, pipeline.source.table
    if source.reads_topics:
        return
    allowed: Sequence[str] = CREDENTIALS[kind(files.path)] if files is not None and files.remote else ()
    if table is not None and table.type == "postgres":
        try:
            from resources.destinations.postgres.connection import SECRETS, Server
        except ImportError as error:
            raise missing(f"pipeline {pipeline.name}: source.table", "psycopg", "postgres", error=error) from error
        allowed = SECRETS
        try:
            Server(table.database, {}, "")
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


def without_first_lines(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline as its decoders see it: for files, `format.skip_lines` is the connector's, not that of each record."""
    if pipeline.source.files is None or not pipeline.format.skip_lines:
        return pipeline
    return pipeline.model_copy(update={"format": pipeline.format.model_copy(update={"skip_lines": 0})})


def _secrets(pipeline: Pipeline, environ: Mapping[str, str] | None, read: bool = True) -> dict[str, Secret]:
    given = pipeline.source.credentials
    return {name: Secret(credential(f"source.credentials: {name}", text, environ, read)) for name, text in given.items()}
