"""Rules of Connect's usual sinks: JDBC, Iceberg, S3 with Parquet, HTTP.

The connectors are those of Confluent, Aiven, Debezium and Apache Iceberg. The defaults of their keys were not compared with the
connectors' sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from kpipe_assets.rest.translation import Draft, Rule, Sink, field_of, flag, nothing, number, one_of, refused

__all__ = ["SINKS"]

_JDBC = re.compile(r"jdbc:(postgresql|mysql|mariadb)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/([A-Za-z0-9_$-]+)")
_SCHEMES = {"postgresql": ("postgres", "postgresql"), "mysql": ("mysql", "mysql"), "mariadb": ("mysql", "mysql")}
_DIALECTS = ("postgresqldatabasedialect", "mysqldatabasedialect")


def _single_topic(draft: Draft, key: str) -> str | None:
    names = [name.strip() for name in draft.config.get("topics", "").split(",") if name.strip()]
    if len(names) == 1:
        return names[0]
    draft.refuse(key, "needs one topic: kpipe writes one table for each pipeline, not one for each topic")
    return None


def _table(draft: Draft, key: str, default: str) -> None:
    """Set the table from a format such as `${topic}`."""
    given = draft.config.get(key, default)
    topic = _single_topic(draft, key) if "${topic}" in given else ""
    if topic is not None:
        draft.put(given.replace("${topic}", topic), "into", "table")


def _keys(draft: Draft, mode_key: str, mode_default: str, fields_key: str) -> None:
    """Set key and conflict from the modes of insert and primary key."""
    insert = draft.config.get("insert.mode", "insert").strip().lower()
    mode = draft.config.get(mode_key, mode_default).strip().lower()
    fields = [name.strip() for name in draft.config.get(fields_key, "").split(",") if name.strip()]
    if insert not in ("insert", "upsert"):
        draft.refuse("insert.mode", f"{insert!r} has no counterpart: a row with a new key is inserted")
    if mode == "record_key" or draft.is_on("delete.enabled"):
        draft.refuse(mode_key, "'record_key' has no counterpart here: write a definition with key_format and into.key")
    elif mode == "record_value":
        if not fields:
            draft.refuse(fields_key, "missing: kpipe needs the names of the key's columns")
        draft.put(fields, "into", "key")
    elif mode not in ("none", "kafka"):
        draft.refuse(mode_key, f"{mode!r} has no counterpart")
    elif insert == "upsert":
        draft.refuse(mode_key, f"{mode!r} with upsert has no counterpart: set record_value and {fields_key}")
    if mode == "kafka":
        draft.refuse(mode_key, "'kafka' has no counterpart: kpipe writes _kafka_partition and _kafka_offset without it")
    if insert == "upsert":
        draft.put("replace", "into", "on_conflict")


def _jdbc(user_key: str) -> Rule:
    """Return the rule of `connection.url`, which also reads the user."""

    def rule(draft: Draft, key: str, value: str) -> None:
        found = _JDBC.fullmatch(value.strip())
        if found is None:
            draft.refuse(
                key,
                "expected jdbc:postgresql://host:port/database, or mysql or mariadb, without options: others have no counterpart",
            )
            return
        kind, scheme = _SCHEMES[found[1]]
        user = draft.config.get(user_key)
        draft.put(kind, "into", "type")
        who = f"{quote(user, safe='')}@" if user else ""
        draft.put(f"{scheme}://{who}{found[2]}{found[3] or ''}/{found[4]}", "into", "database")

    return rule


def _evolution(draft: Draft, on: bool, otherwise: str) -> None:
    draft.put("evolve" if on else otherwise, "schema")


def _confluent_jdbc(draft: Draft) -> None:
    _table(draft, "table.name.format", "${topic}")
    _keys(draft, "pk.mode", "none", "pk.fields")
    _evolution(draft, draft.is_on("auto.evolve"), "fail")
    _needs(draft, "connection.url")


def _debezium_jdbc(draft: Draft) -> None:
    _table(draft, "table.name.format" if "table.name.format" in draft.config else "collection.name.format", "${topic}")
    _keys(draft, "primary.key.mode", "none", "primary.key.fields")
    _evolution(draft, draft.config.get("schema.evolution", "none").lower() == "basic", "fail")
    _needs(draft, "connection.url")


def _needs(draft: Draft, *keys: str) -> None:
    for key in keys:
        if not draft.config.get(key, "").strip():
            draft.refuse(key, "missing")


def _upright(draft: Draft, _: str, __: str) -> None:
    draft.put(False, "batch", "exponential")


def _retries(*path: str) -> Rule:
    """Return a rule of tries with a constant wait, as in Connect."""

    def rule(draft: Draft, key: str, value: str) -> None:
        number(*path)(draft, key, value)
        _upright(draft, key, value)

    return rule


_BOTH_JDBC: dict[str, Rule] = {
    "connection.password": field_of("into", "credentials", "password"),
    "insert.mode": nothing,
    "delete.enabled": flag(on=refused("needs the record's key: write a definition with key_format and into.on_null: delete")),
    "table.name.format": nothing,
    "batch.size": number("batch", "max_offsets_per_partition"),
    "max.retries": _retries("batch", "max_retries"),
    "connection.attempts": nothing,
    "connection.backoff.ms": nothing,
}
_CONFLUENT: dict[str, Rule] = {
    **_BOTH_JDBC,
    "connection.url": _jdbc("connection.user"),
    "connection.user": nothing,
    "dialect.name": one_of(*_DIALECTS),
    "pk.mode": nothing,
    "pk.fields": nothing,
    "auto.create": flag(),
    "auto.evolve": flag(),
    "retry.backoff.ms": _retries("batch", "retry_interval_ms"),
    "table.types": one_of("table"),
    "db.timezone": one_of("utc", why="has no counterpart: timestamps are UTC"),
    "quote.sql.identifiers": one_of("always"),
}
_DEBEZIUM: dict[str, Rule] = {
    **_BOTH_JDBC,
    "connection.url": _jdbc("connection.username"),
    "connection.username": nothing,
    "primary.key.mode": nothing,
    "primary.key.fields": nothing,
    "collection.name.format": nothing,
    "schema.evolution": one_of("none", "basic"),
    "flush.max.retries": _retries("batch", "max_retries"),
    "flush.retry.delay.ms": _retries("batch", "retry_interval_ms"),
    "hibernate.connection.provider_class": nothing,
    "connection.pool.min_size": nothing,
    "connection.pool.max_size": nothing,
    "connection.pool.timeout": nothing,
    "use.time.zone": one_of("utc", why="has no counterpart: timestamps are UTC"),
    "database.time_zone": one_of("utc", why="has no counterpart: timestamps are UTC"),
    "truncate.enabled": flag(on=refused("has no counterpart")),
}


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
    _needs(draft, "iceberg.tables", "iceberg.catalog.type", "iceberg.catalog.uri", "iceberg.catalog.warehouse")
    _evolution(draft, draft.is_on("iceberg.tables.evolve-schema-enabled"), "ignore")
    kind, uri = draft.config.get("iceberg.catalog.type", ""), draft.config.get("iceberg.catalog.uri", "")
    warehouse = draft.config.get("iceberg.catalog.warehouse", "")
    if kind == "jdbc":
        found = _JDBC.fullmatch(uri)
        if found is None or found[1] != "postgresql":
            draft.refuse("iceberg.catalog.uri", "expected jdbc:postgresql://host:port/database: others have no counterpart")
        else:
            user = draft.config.get("iceberg.catalog.jdbc.user")
            who = f"{quote(user, safe='')}@" if user else ""
            draft.put(f"postgresql://{who}{found[2]}{found[3] or ''}/{found[4]}", "into", "catalog")
            draft.put(draft.config.get("iceberg.catalog", "iceberg"), "into", "catalog_name")
        draft.put(warehouse, "into", "database")
    elif kind == "rest":
        draft.put(uri, "into", "catalog")
        if "://" in warehouse:
            draft.put(warehouse, "into", "database")
        else:
            draft.refuse("iceberg.catalog.warehouse", "names no location: kpipe writes the files itself, to s3://bucket/key")


def _s3(draft: Draft) -> None:
    draft.put("parquet", "into", "type")
    _table(draft, "topics", "${topic}")
    bucket = "s3.bucket.name" if "s3.bucket.name" in draft.config else "aws.s3.bucket.name"
    _needs(draft, bucket, "format.class" if bucket == "s3.bucket.name" else "format.output.type")
    prefix = draft.config.get("topics.dir", "topics" if bucket == "s3.bucket.name" else "").strip("/")
    draft.put(f"s3://{draft.config.get(bucket, '')}" + (f"/{prefix}" if prefix else ""), "into", "database")


def _http(draft: Draft) -> None:
    draft.put("webhook", "into", "type")
    _needs(draft, "http.api.url" if "http.url" not in draft.config else "http.url")
    topic = _single_topic(draft, "topics")
    if topic is not None:
        draft.put(re.sub(r"[^A-Za-z0-9_]", "_", topic)[:63], "into", "table")
    if "http.api.url" in draft.config:
        _bodies(draft)
    if "headers" in draft.config:
        _headers(draft, draft.config["headers"].split(draft.config.get("header.separator", "|")))


def _bodies(draft: Draft) -> None:
    """Set the form of Confluent's requests: both keys are required, as their defaults have no counterpart."""
    _needs(draft, "request.body.format", "batch.json.as.array")
    if draft.is_on("batch.json.as.array"):
        draft.put("${records}", "into", "envelope")
    elif draft.config.get("batch.max.size", "1").strip() != "1":
        draft.refuse("batch.json.as.array", "several records without a list have no counterpart: set it to true")


def _headers(draft: Draft, items: list[str]) -> None:
    for item in filter(None, map(str.strip, items)):
        name, colon, value = item.partition(":")
        if not colon:
            draft.refuse("headers", "expected NAME:VALUE, separated by header.separator")
        elif name.strip().lower() == "authorization":
            draft.refuse("headers", "Authorization is a secret: write a definition with into.credentials")
        elif name.strip().lower() != "content-type":  # kpipe sends JSON
            draft.put(value.strip(), "into", "headers", name.strip())


def _url(draft: Draft, key: str, value: str) -> None:
    if "${" in value or urlsplit(value).query:
        draft.refuse(key, "an address with parameters or places has no counterpart")
    else:
        draft.put(value, "into", "url")


_ICEBERG: dict[str, Rule] = {
    "iceberg.tables": _iceberg_table,
    "iceberg.tables.dynamic-enabled": flag(on=refused("has no counterpart: a pipeline writes one Iceberg table")),
    "iceberg.tables.route-field": refused("has no counterpart: use where, in a pipeline for each table"),
    "iceberg.tables.default-id-columns": refused("has no counterpart: into.key is not available for iceberg"),
    "iceberg.tables.upsert-mode-enabled": flag(on=refused("has no counterpart: upserts are not available for iceberg")),
    "iceberg.tables.cdc-field": refused("has no counterpart: upserts are not available for iceberg"),
    "iceberg.tables.auto-create-enabled": flag(),
    "iceberg.tables.evolve-schema-enabled": flag(),
    "iceberg.tables.schema-force-optional": flag(),
    "iceberg.tables.default-partition-by": _iceberg_partitions,
    "iceberg.control.topic": nothing,
    "iceberg.control.group-id-prefix": nothing,
    "iceberg.control.commit.interval-ms": number("batch", "interval_ms"),
    "iceberg.control.commit.timeout-ms": nothing,
    "iceberg.control.commit.threads": nothing,
    "iceberg.catalog": nothing,
    "iceberg.catalog.type": one_of("rest", "jdbc"),
    "iceberg.catalog.uri": nothing,
    "iceberg.catalog.warehouse": nothing,
    "iceberg.catalog.jdbc.user": nothing,
    "iceberg.catalog.jdbc.password": field_of("into", "credentials", "catalog.password"),
    "iceberg.catalog.token": field_of("into", "credentials", "catalog.token"),
    "iceberg.catalog.io-impl": one_of("org.apache.iceberg.aws.s3.s3fileio"),
    "iceberg.catalog.s3.access-key-id": field_of("into", "credentials", "access.key.id"),
    "iceberg.catalog.s3.secret-access-key": field_of("into", "credentials", "secret.access.key"),
}
_S3: dict[str, Rule] = {
    "s3.bucket.name": nothing,
    "aws.s3.bucket.name": nothing,
    "topics.dir": nothing,
    "storage.class": one_of("io.confluent.connect.s3.storage.s3storage"),
    "format.class": one_of("io.confluent.connect.s3.format.parquet.parquetformat"),
    "format.output.type": one_of("parquet"),
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
    "headers": nothing,
    "header.separator": nothing,
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
_CONFLUENT_SINK = Sink(_CONFLUENT, _confluent_jdbc)
_ICEBERG_SINK, _S3_SINK, _HTTP_SINK = Sink(_ICEBERG, _iceberg), Sink(_S3, _s3), Sink(_HTTP, _http)

#: By connector class.
SINKS: Mapping[str, Sink] = {
    "io.confluent.connect.jdbc.JdbcSinkConnector": _CONFLUENT_SINK,
    "io.aiven.connect.jdbc.JdbcSinkConnector": _CONFLUENT_SINK,
    "io.debezium.connector.jdbc.JdbcSinkConnector": Sink(_DEBEZIUM, _debezium_jdbc),
    "org.apache.iceberg.connect.IcebergSinkConnector": _ICEBERG_SINK,
    "io.tabular.iceberg.connect.IcebergSinkConnector": _ICEBERG_SINK,
    "io.confluent.connect.s3.S3SinkConnector": _S3_SINK,
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": _S3_SINK,
    "io.confluent.connect.http.HttpSinkConnector": _HTTP_SINK,
    "io.aiven.kafka.connect.http.HttpSinkConnector": _HTTP_SINK,
}
