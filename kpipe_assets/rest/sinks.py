"""Rules of Connect's usual sinks: JDBC, Iceberg, S3 with Parquet, HTTP.

Keys and defaults are those of these sources, read in November 2026. A config that the connector would load into other rows than
kpipe is rejected.

- JDBC: see jdbc_sinks.py.
- Iceberg: IcebergSinkConfig (apache/iceberg).
- Confluent S3: S3SinkConnectorConfig (confluentinc/kafka-connect-storage-cloud), StorageCommonConfig
  (confluentinc/kafka-connect-storage-common); Aiven S3: S3SinkConfigDef, OutputFormatFragment, SinkSchemaBuilder
  (Aiven-Open/cloud-storage-connectors-for-apache-kafka).
- Aiven HTTP: HttpSinkConfig (Aiven-Open/http-connector-for-apache-kafka).
- Confluent HTTP, whose source is closed: request.method and header.separator are those of
  docs.confluent.io/kafka-connectors/http/current/connector_config.html. The defaults of batch.max.size (1) and auth.type (none)
  were not compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from kpipe.definition.references import from_statement
from kpipe.definition.secret_values import problem
from kpipe_assets.rest.jdbc_sinks import AIVEN, CONFLUENT, DEBEZIUM, JDBC_URL
from kpipe_assets.rest.translation import (
    Draft,
    Rule,
    Sink,
    evolution,
    field_of,
    flag,
    needs,
    nothing,
    number,
    one_of,
    refused,
    single_topic,
    together,
    user_name,
)

__all__ = ["SINKS"]

_ICEBERG_COMMIT_MS = 300_000


def _iceberg_table(draft: Draft, key: str, value: str) -> None:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if len(names) != 1 or names[0].count(".") != 1:
        draft.refuse(key, "expected one NAMESPACE.TABLE: a pipeline writes one Iceberg table")
        return
    namespace, _, table = names[0].partition(".")
    draft.put(namespace, "into", "namespace")
    draft.put(table, "into", "table")


def _iceberg_partitions(draft: Draft, _: str, value: str) -> None:
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", value) if part.strip()]
    draft.put([re.sub(r"^(year|month|day|hour)s\(", r"\1(", part) for part in parts], "into", "partition_by")


def _iceberg(draft: Draft) -> None:
    draft.put("iceberg", "into", "type")
    draft.fields.setdefault("batch", {}).setdefault("interval_ms", _ICEBERG_COMMIT_MS)
    needs(draft, "iceberg.tables", "iceberg.catalog.type", "iceberg.catalog.uri", "iceberg.catalog.warehouse")
    evolution(draft, draft.is_on("iceberg.tables.evolve-schema-enabled"), "ignore")
    kind, uri = draft.config.get("iceberg.catalog.type", ""), draft.config.get("iceberg.catalog.uri", "")
    warehouse = draft.config.get("iceberg.catalog.warehouse", "")
    if kind == "jdbc":
        found = JDBC_URL.fullmatch(uri)
        if found is None or found[1] != "postgresql":
            draft.refuse("iceberg.catalog.uri", "expected jdbc:postgresql://host:port/database: others have no counterpart")
        else:
            who = user_name(draft, "iceberg.catalog.jdbc.user")
            draft.key = "iceberg.catalog.uri"
            draft.put(f"postgresql://{who}{found[2]}{found[3] or ''}/{found[4]}", "into", "catalog")
            draft.put(draft.config.get("iceberg.catalog", "iceberg"), "into", "catalog_name")
        draft.key = "iceberg.catalog.warehouse"
        draft.put(warehouse, "into", "database")
    elif kind == "rest":
        if "iceberg.catalog.jdbc.user" in draft.config:
            draft.refuse("iceberg.catalog.jdbc.user", "belongs to iceberg.catalog.type jdbc; the type is rest")
        draft.key = "iceberg.catalog.uri"
        draft.put(uri, "into", "catalog")
        draft.key = "iceberg.catalog.warehouse"
        if "://" in warehouse:
            draft.put(warehouse, "into", "database")
        else:
            draft.refuse("iceberg.catalog.warehouse", "names no location: kpipe writes the files itself, to s3://bucket/key")


def _s3(draft: Draft) -> None:
    draft.put("parquet", "into", "type")
    topic = single_topic(draft, "topics")
    if topic is not None:
        draft.key = "topics"
        draft.put(topic, "into", "table")
    bucket = "s3.bucket.name" if "s3.bucket.name" in draft.config else "aws.s3.bucket.name"
    needs(draft, bucket, *(("format.class",) if bucket == "s3.bucket.name" else _AIVEN_FORMAT))
    prefix = draft.config.get("topics.dir", "topics" if bucket == "s3.bucket.name" else "").strip("/")
    draft.key = bucket
    draft.put(f"s3://{draft.config.get(bucket, '')}" + (f"/{prefix}" if prefix else ""), "into", "database")


_AIVEN_FORMAT = ("format.output.type", "format.output.fields", "format.output.envelope")


def _http(draft: Draft) -> None:
    draft.put("webhook", "into", "type")
    needs(draft, "http.api.url" if "http.url" not in draft.config else "http.url")
    topic = single_topic(draft, "topics")
    if topic is not None:
        draft.key = "topics"
        draft.put(re.sub(r"[^A-Za-z0-9_]", "_", topic)[:63], "into", "table")
    if "http.api.url" in draft.config:
        _bodies(draft)
        if draft.config.get("auth.type", "none").strip().lower() == "none":
            for key in ("connection.user", "connection.password"):
                if key in draft.config:
                    draft.refuse(key, "has no effect in Connect without auth.type: remove it, or set auth.type to basic")
    separator = draft.config.get("header.separator", "|")
    if not separator:
        draft.refuse("header.separator", "is empty")
    elif "headers" in draft.config:
        _headers(draft, draft.config["headers"].split(separator))


def _bodies(draft: Draft) -> None:
    """Set the form of Confluent's requests: both keys are required, as their defaults have no counterpart."""
    needs(draft, "request.body.format", "batch.json.as.array")
    if draft.is_on("batch.json.as.array"):
        draft.key = "batch.json.as.array"
        draft.put("${records}", "into", "envelope")
    elif draft.config.get("batch.max.size", "1").strip() != "1":
        draft.refuse("batch.json.as.array", "several records without a list have no counterpart: set it to true")


def _headers(draft: Draft, items: list[str]) -> None:
    names: set[str] = set()
    draft.key = "headers"
    for item in filter(None, map(str.strip, items)):
        name, colon, value = (part.strip() for part in item.partition(":"))
        if not colon:
            draft.refuse("headers", "expected NAME:VALUE, separated by header.separator")
        elif name.lower() in names:
            draft.refuse("headers", f"{name} has two values: kpipe sends each header once")
        elif name.lower() == "authorization":
            draft.refuse("headers", "Authorization is a secret: write a definition with into.credentials")
        elif problem(("into", "headers", name), value) is not None:
            credential = ("into", "credentials", f"header.{name}")
            if problem(credential, from_statement(value)) is None:
                draft.put(value, *credential)
            else:
                draft.refuse("headers", f"{name} may be a credential: write {name}:${{env:VARIABLE}}")
        elif (name.lower(), value.lower()) != ("content-type", "application/json"):  # kpipe's own
            draft.put(value, "into", "headers", name)
        names.add(name.lower())


def _url(draft: Draft, key: str, value: str) -> None:
    if "${" in value or urlsplit(value).query:
        draft.refuse(key, "an address with parameters or places has no counterpart")
    else:
        draft.put(value, "into", "url")


_ICEBERG: dict[str, Rule] = {
    "iceberg.tables": _iceberg_table,
    "iceberg.tables.dynamic-enabled": flag(on=refused("has no counterpart: a pipeline writes one Iceberg table")),
    "iceberg.tables.route-field": refused("has no counterpart: use where, in a pipeline for each table"),
    "iceberg.tables.default-id-columns": refused("write a definition with into.key and into.on_conflict"),
    "iceberg.tables.upsert-mode-enabled": flag(on=refused("write a definition with into.on_conflict: replace")),
    "iceberg.tables.cdc-field": refused("write a definition with into.key and into.on_null"),
    "iceberg.tables.auto-create-enabled": flag(),
    "iceberg.tables.evolve-schema-enabled": flag(),
    "iceberg.tables.schema-force-optional": flag(),
    "iceberg.tables.default-partition-by": _iceberg_partitions,
    "iceberg.control.topic": nothing,
    "iceberg.control.group-id-prefix": nothing,
    "iceberg.control.commit.interval-ms": number("batch", "interval_ms"),
    "iceberg.control.commit.timeout-ms": nothing,
    "iceberg.control.commit.threads": nothing,
    "iceberg.catalog": together,
    "iceberg.catalog.type": one_of("rest", "jdbc"),
    "iceberg.catalog.uri": together,
    "iceberg.catalog.warehouse": together,
    "iceberg.catalog.jdbc.user": together,
    "iceberg.catalog.jdbc.password": field_of("into", "credentials", "catalog.password"),
    "iceberg.catalog.token": field_of("into", "credentials", "catalog.token"),
    "iceberg.catalog.io-impl": one_of("org.apache.iceberg.aws.s3.s3fileio"),
    "iceberg.catalog.s3.access-key-id": field_of("into", "credentials", "access.key.id"),
    "iceberg.catalog.s3.secret-access-key": field_of("into", "credentials", "secret.access.key"),
}
_S3: dict[str, Rule] = {
    "s3.bucket.name": together,
    "aws.s3.bucket.name": together,
    "topics.dir": together,
    "storage.class": one_of("io.confluent.connect.s3.storage.s3storage"),
    "format.class": one_of("io.confluent.connect.s3.format.parquet.parquetformat"),
    "format.output.type": one_of("parquet"),
    "format.output.fields": one_of("value"),
    "format.output.envelope": one_of("false", why="would nest the columns in one column"),
    "parquet.codec": nothing,
    "flush.size": number("batch", "max_offsets_per_partition"),
    "s3.part.size": nothing,
    "partitioner.class": one_of("io.confluent.connect.storage.partitioner.defaultpartitioner"),
    "schema.compatibility": one_of("none"),
    "aws.access.key.id": field_of("into", "credentials", "access.key.id"),
    "aws.secret.access.key": field_of("into", "credentials", "secret.access.key"),
    "s3.region": refused("has no counterpart: set AWS_REGION where the service runs"),
    "aws.s3.region": refused("has no counterpart: set AWS_REGION where the service runs"),
    "store.url": refused("has no counterpart: set AWS_ENDPOINT_URL where the service runs"),
}
_HTTP: dict[str, Rule] = {
    "http.api.url": _url,
    "http.url": _url,
    "request.method": one_of("post"),
    "headers": together,
    "header.separator": together,
    "auth.type": one_of("none", "basic"),
    "connection.user": field_of("into", "credentials", "username"),
    "connection.password": field_of("into", "credentials", "password"),
    "http.authorization.type": one_of("none"),
    "http.headers.content.type": one_of("application/json"),
    "request.body.format": one_of("json"),
    "batch.max.size": number("into", "max_records"),
    "batch.json.as.array": flag(),
    "batching.enabled": flag(on=refused("has no counterpart: write a definition with into.max_records")),
    "http.timeout": number("into", "timeout_s"),
    "max.retries": refused("has no counterpart: kpipe repeats a request for a time, into.retry_s"),
    "reporter.bootstrap.servers": nothing,
}
_ICEBERG_SINK, _S3_SINK, _HTTP_SINK = Sink(_ICEBERG, _iceberg), Sink(_S3, _s3), Sink(_HTTP, _http)

#: By connector class.
SINKS: Mapping[str, Sink] = {
    "io.confluent.connect.jdbc.JdbcSinkConnector": CONFLUENT,
    "io.aiven.connect.jdbc.JdbcSinkConnector": AIVEN,
    "io.debezium.connector.jdbc.JdbcSinkConnector": DEBEZIUM,
    "org.apache.iceberg.connect.IcebergSinkConnector": _ICEBERG_SINK,
    "io.tabular.iceberg.connect.IcebergSinkConnector": _ICEBERG_SINK,
    "io.confluent.connect.s3.S3SinkConnector": _S3_SINK,
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": _S3_SINK,
    "io.confluent.connect.http.HttpSinkConnector": _HTTP_SINK,
    "io.aiven.kafka.connect.http.HttpSinkConnector": _HTTP_SINK,
}
