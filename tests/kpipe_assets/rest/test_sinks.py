"""Configs of Connect's sinks, key by key: the field that a key becomes, or the error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.rest.configs import references
from kpipe_assets.rest.sinks import SINKS
from kpipe_assets.rest.translation import COMMON, translate

BASE = {
    "name": "orders",
    "topics": "orders",
    "consumer.override.bootstrap.servers": "b:9092",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
CONFLUENT, DEBEZIUM = "io.confluent.connect.jdbc.JdbcSinkConnector", "io.debezium.connector.jdbc.JdbcSinkConnector"
ICEBERG, S3 = "org.apache.iceberg.connect.IcebergSinkConnector", "io.confluent.connect.s3.S3SinkConnector"
AIVEN_S3 = "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector"
AIVEN, AVRO = "io.aiven.connect.jdbc.JdbcSinkConnector", "io.confluent.connect.avro.AvroConverter"
HTTP, AIVEN_HTTP = "io.confluent.connect.http.HttpSinkConnector", "io.aiven.kafka.connect.http.HttpSinkConnector"
OWN: Mapping[str, Mapping[str, str]] = {
    CONFLUENT: {
        "connection.url": "jdbc:postgresql://db:5432/shop",
        "connection.user": "loader",
        "connection.password": "${env:PW}",
    },
    DEBEZIUM: {"connection.url": "jdbc:mysql://db/shop", "connection.username": "loader", "connection.password": "${env:PW}"},
    ICEBERG: {
        "iceberg.tables": "shop.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "https://catalog/",
        "iceberg.catalog.warehouse": "s3://lake/wh",
    },
    S3: {"s3.bucket.name": "lake", "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat"},
    AIVEN_S3: {
        "aws.s3.bucket.name": "lake",
        "format.output.type": "parquet",
        "format.output.fields": "value",
        "format.output.envelope": "false",
    },
    AIVEN: {"connection.url": "jdbc:postgresql://db:5432/shop", "connection.user": "loader", "connection.password": "${env:PW}"},
    HTTP: {"http.api.url": "https://h/orders", "request.body.format": "json", "batch.json.as.array": "false"},
    AIVEN_HTTP: {"http.url": "https://h/orders", "http.authorization.type": "none"},
}


def fields(kind: str, **more: str) -> dict[str, Any]:
    """Return the fields that a config gives, as a definition without its defaults."""
    config = {key: value for key, value in {**BASE, **OWN[kind], **more}.items() if value != "-"}
    draft = translate(SINKS[kind], config)
    assert not draft.errors, draft.errors
    return Pipeline.model_validate(references(draft.fields, {})).to_dict()


def errors(kind: str, **more: str) -> dict[str, list[str]]:
    config = {key: value for key, value in {**BASE, **OWN[kind], **more}.items() if value != "-"}
    return translate(SINKS[kind], config).errors


def at(found: Mapping[str, Any], path: str) -> Any:
    for name in path.split("|"):
        found = found.get(name) if isinstance(found, Mapping) else None  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("kind", "into"),
    [
        (
            CONFLUENT,
            {
                "type": "postgres",
                "database": "postgresql://loader@db:5432/shop",
                "credentials": {"password": "{{ env('PW') }}"},
                "table": "orders",
            },
        ),
        (
            DEBEZIUM,
            {
                "type": "mysql",
                "database": "mysql://loader@db/shop",
                "credentials": {"password": "{{ env('PW') }}"},
                "table": "orders",
            },
        ),
        (
            ICEBERG,
            {
                "type": "iceberg",
                "catalog": "https://catalog/",
                "namespace": "shop",
                "table": "orders",
                "database": "s3://lake/wh",
            },
        ),
        (S3, {"type": "parquet", "database": "s3://lake/topics", "table": "orders"}),
        (AIVEN_S3, {"type": "parquet", "database": "s3://lake", "table": "orders"}),
        (HTTP, {"type": "webhook", "url": "https://h/orders", "table": "orders"}),
        (AIVEN_HTTP, {"type": "webhook", "url": "https://h/orders", "table": "orders"}),
    ],
)
def test_the_smallest_config_of_each_sink(kind: str, into: dict[str, Any]) -> None:
    found = fields(kind)
    assert found["into"] == into
    assert found["source"] == {"brokers": "b:9092", "topic": "orders"}
    assert found["errors"] == {"parse": "fail"}, "Connect stops at a bad record unless errors.tolerance says otherwise"


JDBC_UPSERT = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id, at"}


@pytest.mark.parametrize(
    ("kind", "config", "path", "value"),
    [
        (CONFLUENT, {"topics": "a", "table.name.format": "t_${topic}"}, "into|table", "t_a"),
        (CONFLUENT, {"topics": "a,b", "table.name.format": "t"}, "source|topics", ["a", "b"]),
        (CONFLUENT, {"topics": "-", "topics.regex": "shop.*", "table.name.format": "t"}, "source|topic_pattern", "^(?:shop.*)$"),
        (CONFLUENT, {"consumer.override.auto.offset.reset": "latest"}, "source|start", "latest"),
        (CONFLUENT, {"consumer.override.security.protocol": "SSL"}, "source|config|security.protocol", "SSL"),
        (CONFLUENT, {"consumer.override.max.poll.records": "50"}, "batch|max_offsets_per_partition", 50),
        (CONFLUENT, {"consumer.override.group.id": "g"}, "source|group", "g"),
        (CONFLUENT, {"errors.tolerance": "all"}, "errors|parse", "skip"),
        (CONFLUENT, {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "d"}, "errors|constraint", "dead_letter"),
        (CONFLUENT, {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "d"}, "errors|topic", "d"),
        (ICEBERG, {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "d"}, "errors|topic", "d"),
        (HTTP, {"errors.deadletterqueue.topic.name": "d"}, "errors|topic", None),
        (CONFLUENT, {"errors.retry.delay.max.ms": "900"}, "batch|max_retry_interval_ms", 900),
        (
            CONFLUENT,
            {
                "value.converter": AVRO,
                "value.converter.schema.registry.url": "https://r",
                "replace.null.with.default": "false",
            },
            "format|registry",
            "https://r",
        ),
        (CONFLUENT, {"value.converter": AVRO, "replace.null.with.default": "false"}, "format|type", "avro"),
        (DEBEZIUM, {"value.converter": AVRO}, "format|type", "avro"),
        (AIVEN, {"insert.mode": "multi"}, "into|on_conflict", None),
        (AIVEN, {"insert.mode": "multi"}, "into|table", "orders"),
        (DEBEZIUM, {"topics": "shop.public.orders"}, "into|table", "shop_public_orders"),
        (DEBEZIUM, {"topics": "Orders"}, "into|table", "Orders"),
        (
            DEBEZIUM,
            {"topics": "Orders", "quote.identifiers": "true", "connection.url": "jdbc:postgresql://db/shop"},
            "into|table",
            "Orders",
        ),
        (ICEBERG, {}, "batch|interval_ms", 300000),
        (CONFLUENT, JDBC_UPSERT, "into|key", ["id", "at"]),
        (CONFLUENT, JDBC_UPSERT, "into|on_conflict", "replace"),
        (CONFLUENT, {"auto.evolve": "true", "auto.create": "true"}, "schema", None),
        (CONFLUENT, {"auto.evolve": "false"}, "schema", "fail"),
        (CONFLUENT, {"batch.size": "3000"}, "batch|max_offsets_per_partition", 3000),
        (CONFLUENT, {"max.retries": "7"}, "batch|max_retries", 7),
        (CONFLUENT, {"retry.backoff.ms": "70"}, "batch|retry_interval_ms", 70),
        (CONFLUENT, {"retry.backoff.ms": "70"}, "batch|exponential", False),
        (
            CONFLUENT,
            {"connection.url": "jdbc:mariadb://h:3306/d", "connection.user": "a@b"},
            "into|database",
            "mysql://a%40b@h:3306/d",
        ),
        (DEBEZIUM, {"insert.mode": "upsert", "primary.key.mode": "record_value", "primary.key.fields": "id"}, "into|key", ["id"]),
        (DEBEZIUM, {"collection.name.format": "t_${topic}"}, "into|table", "t_orders"),
        (DEBEZIUM, {"table.name.format": "u"}, "into|table", "u"),
        (DEBEZIUM, {"schema.evolution": "none"}, "schema", "fail"),
        (DEBEZIUM, {"schema.evolution": "basic"}, "schema", None),
        (DEBEZIUM, {"flush.max.retries": "3"}, "batch|max_retries", 3),
        (DEBEZIUM, {"flush.retry.delay.ms": "300"}, "batch|retry_interval_ms", 300),
        (ICEBERG, {"iceberg.tables.default-partition-by": "days(at), id"}, "into|partition_by", ["day(at)", "id"]),
        (ICEBERG, {"iceberg.tables.evolve-schema-enabled": "true"}, "schema", None),
        (ICEBERG, {}, "schema", "ignore"),
        (ICEBERG, {"iceberg.control.commit.interval-ms": "60000"}, "batch|interval_ms", 60000),
        (ICEBERG, {"iceberg.catalog.token": "${env:T}"}, "into|credentials|catalog.token", "{{ env('T') }}"),
        (ICEBERG, {"iceberg.catalog.s3.access-key-id": "${env:K}"}, "into|credentials|access.key.id", "{{ env('K') }}"),
        (ICEBERG, {"iceberg.catalog.s3.secret-access-key": "${env:S}"}, "into|credentials|secret.access.key", "{{ env('S') }}"),
        (
            ICEBERG,
            {"iceberg.catalog.type": "jdbc", "iceberg.catalog.uri": "jdbc:postgresql://h/d", "iceberg.catalog.jdbc.user": "u"},
            "into|catalog",
            "postgresql://u@h/d",
        ),
        (
            ICEBERG,
            {"iceberg.catalog.type": "jdbc", "iceberg.catalog.uri": "jdbc:postgresql://h/d", "iceberg.catalog": "lake"},
            "into|catalog_name",
            "lake",
        ),
        (
            ICEBERG,
            {
                "iceberg.catalog.type": "jdbc",
                "iceberg.catalog.uri": "jdbc:postgresql://h/d",
                "iceberg.catalog.jdbc.password": "${env:P}",
            },
            "into|credentials|catalog.password",
            "{{ env('P') }}",
        ),
        (S3, {"topics.dir": "a/b"}, "into|database", "s3://lake/a/b"),
        (S3, {"flush.size": "900"}, "batch|max_offsets_per_partition", 900),
        (S3, {"aws.access.key.id": "${env:K}"}, "into|credentials|access.key.id", "{{ env('K') }}"),
        (S3, {"aws.secret.access.key": "${env:S}"}, "into|credentials|secret.access.key", "{{ env('S') }}"),
        (HTTP, {"batch.max.size": "20", "batch.json.as.array": "true"}, "into|max_records", 20),
        (HTTP, {"batch.json.as.array": "true"}, "into|envelope", "${records}"),
        (CONFLUENT, {"errors.tolerance": "all"}, "errors|constraint", None),
        (HTTP, {"headers": "X-A:1|Content-Type:application/json|X-B: 2:3"}, "into|headers", {"X-A": "1", "X-B": "2:3"}),
        (HTTP, {"headers": "Content-Type: text/plain"}, "into|headers", {"Content-Type": "text/plain"}),
        (HTTP, {"headers": "X-A:1|Api-Token: ${env:T}"}, "into|credentials", {"header.Api-Token": "{{ env('T') }}"}),
        (HTTP, {"headers": "X-A:1;X-B:2", "header.separator": ";"}, "into|headers", {"X-A": "1", "X-B": "2"}),
        (
            HTTP,
            {"auth.type": "BASIC", "connection.user": "${env:U}", "connection.password": "${env:P}"},
            "into|credentials|password",
            "{{ env('P') }}",
        ),
        (
            HTTP,
            {"auth.type": "BASIC", "connection.user": "${env:U}", "connection.password": "${env:P}"},
            "into|credentials|username",
            "{{ env('U') }}",
        ),
        (AIVEN_HTTP, {"http.timeout": "9"}, "into|timeout_s", 9),
        (HTTP, {"topics": "shop.orders"}, "into|table", "shop_orders"),
    ],
)
def test_a_key_becomes_a_field(kind: str, config: dict[str, str], path: str, value: Any) -> None:
    assert at(fields(kind, **config), path) == value


@pytest.mark.parametrize(
    ("kind", "config", "key"),
    [
        (CONFLUENT, {"no.such.key": "1"}, "no.such.key"),
        (CONFLUENT, {"value.converter": AVRO}, "replace.null.with.default"),
        (CONFLUENT, {"value.converter": AVRO, "replace.null.with.default": "true"}, "replace.null.with.default"),
        (
            CONFLUENT,
            {"value.converter": "io.confluent.connect.json.JsonSchemaConverter", "value.converter.schemas.enable": "-"},
            "replace.null.with.default",
        ),
        (AIVEN, {"value.converter": AVRO}, "value.converter"),
        (AIVEN, {"replace.null.with.default": "false"}, "replace.null.with.default"),
        (CONFLUENT, {"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}, "value.converter"),
        (HTTP, {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}, "value.converter"),
        (DEBEZIUM, {"topics": "Orders", "connection.url": "jdbc:postgresql://db/shop"}, "quote.identifiers"),
        (
            DEBEZIUM,
            {"table.name.format": "T", "quote.identifiers": "false", "connection.url": "jdbc:postgresql://db/shop"},
            "quote.identifiers",
        ),
        (DEBEZIUM, {"table.naming.strategy": "x.Y"}, "table.naming.strategy"),
        (AIVEN_S3, {"format.output.envelope": "-"}, "format.output.envelope"),
        (AIVEN_S3, {"format.output.envelope": "true"}, "format.output.envelope"),
        (AIVEN_S3, {"format.output.fields": "-"}, "format.output.fields"),
        (AIVEN_S3, {"format.output.fields": "key,value"}, "format.output.fields"),
        (CONFLUENT, {"transforms": "a"}, "transforms"),
        (CONFLUENT, {"transforms.a.type": "x"}, "transforms.a.type"),
        (CONFLUENT, {"predicates": "a"}, "predicates"),
        (CONFLUENT, {"topics": "-"}, "topics"),
        (CONFLUENT, {"topics": " , "}, "topics"),
        (CONFLUENT, {"topics": "a,b"}, "table.name.format"),
        (CONFLUENT, {"value.converter": "-"}, "value.converter"),
        (CONFLUENT, {"value.converter": "x.Y"}, "value.converter"),
        (CONFLUENT, {"value.converter.schemas.enable": "-"}, "value.converter.schemas.enable"),
        (CONFLUENT, {"value.converter.basic.auth.user.info": "a:b"}, "value.converter.basic.auth.user.info"),
        (CONFLUENT, {"errors.tolerance": "some"}, "errors.tolerance"),
        (CONFLUENT, {"errors.retry.timeout": "1"}, "errors.retry.timeout"),
        (CONFLUENT, {"consumer.override.sasl.jaas.config": "x"}, "consumer.override.sasl.jaas.config"),
        (CONFLUENT, {"consumer.override.isolation.level": "read_uncommitted"}, "consumer.override.isolation.level"),
        (CONFLUENT, {"consumer.override.auto.offset.reset": "none"}, "consumer.override.auto.offset.reset"),
        (CONFLUENT, {"consumer.override.x": "1"}, "consumer.override.x"),
        (CONFLUENT, {"connection.url": "jdbc:oracle:thin:@h:1/x"}, "connection.url"),
        (CONFLUENT, {"connection.url": "jdbc:postgresql://h/d?user=x&password=y"}, "connection.url"),
        (CONFLUENT, {"connection.url": "-"}, "connection.url"),
        (CONFLUENT, {"insert.mode": "update"}, "insert.mode"),
        (CONFLUENT, {"insert.mode": "upsert"}, "pk.mode"),
        (CONFLUENT, {"pk.mode": "kafka"}, "pk.mode"),
        (CONFLUENT, {"pk.mode": "record_key"}, "pk.mode"),
        (CONFLUENT, {"pk.mode": "record_value"}, "pk.fields"),
        (CONFLUENT, {"pk.mode": "other"}, "pk.mode"),
        (CONFLUENT, {"delete.enabled": "true"}, "delete.enabled"),
        (CONFLUENT, {"auto.evolve": "perhaps"}, "auto.evolve"),
        (CONFLUENT, {"fields.whitelist": "a"}, "fields.whitelist"),
        (CONFLUENT, {"batch.size": "many"}, "batch.size"),
        (CONFLUENT, {"dialect.name": "OracleDatabaseDialect"}, "dialect.name"),
        (CONFLUENT, {"db.timezone": "Europe/Berlin"}, "db.timezone"),
        (CONFLUENT, {"quote.sql.identifiers": "never"}, "quote.sql.identifiers"),
        (CONFLUENT, {"table.types": "VIEW"}, "table.types"),
        (DEBEZIUM, {"truncate.enabled": "true"}, "truncate.enabled"),
        (DEBEZIUM, {"primary.key.mode": "record_key"}, "primary.key.mode"),
        (DEBEZIUM, {"schema.evolution": "all"}, "schema.evolution"),
        (DEBEZIUM, {"use.time.zone": "CET"}, "use.time.zone"),
        (ICEBERG, {"iceberg.tables": "a.b,c.d"}, "iceberg.tables"),
        (ICEBERG, {"iceberg.tables": "b"}, "iceberg.tables"),
        (ICEBERG, {"iceberg.tables.dynamic-enabled": "true"}, "iceberg.tables.dynamic-enabled"),
        (ICEBERG, {"iceberg.tables.route-field": "x"}, "iceberg.tables.route-field"),
        (ICEBERG, {"iceberg.tables.upsert-mode-enabled": "true"}, "iceberg.tables.upsert-mode-enabled"),
        (ICEBERG, {"iceberg.tables.default-id-columns": "id"}, "iceberg.tables.default-id-columns"),
        (ICEBERG, {"iceberg.tables.cdc-field": "op"}, "iceberg.tables.cdc-field"),
        (ICEBERG, {"iceberg.catalog.type": "hive"}, "iceberg.catalog.type"),
        (ICEBERG, {"iceberg.catalog.warehouse": "wh"}, "iceberg.catalog.warehouse"),
        (ICEBERG, {"iceberg.catalog.io-impl": "x.Y"}, "iceberg.catalog.io-impl"),
        (ICEBERG, {"iceberg.catalog.type": "jdbc", "iceberg.catalog.uri": "jdbc:mysql://h/d"}, "iceberg.catalog.uri"),
        (ICEBERG, {"iceberg.table.shop.orders.id-columns": "id"}, "iceberg.table.shop.orders.id-columns"),
        (S3, {"format.class": "io.confluent.connect.s3.format.json.JsonFormat"}, "format.class"),
        (S3, {"partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner"}, "partitioner.class"),
        (S3, {"rotate.interval.ms": "1"}, "rotate.interval.ms"),
        (S3, {"s3.region": "eu-west-1"}, "s3.region"),
        (S3, {"store.url": "http://x"}, "store.url"),
        (S3, {"storage.class": "x"}, "storage.class"),
        (S3, {"schema.compatibility": "BACKWARD"}, "schema.compatibility"),
        (AIVEN_S3, {"aws.s3.region": "x"}, "aws.s3.region"),
        (AIVEN_S3, {"format.output.type": "csv"}, "format.output.type"),
        (HTTP, {"http.api.url": "https://h/${topic}"}, "http.api.url"),
        (HTTP, {"request.method": "PUT"}, "request.method"),
        (HTTP, {"request.body.format": "-"}, "request.body.format"),
        (HTTP, {"batch.json.as.array": "-"}, "batch.json.as.array"),
        (HTTP, {"batch.max.size": "2"}, "batch.json.as.array"),
        (HTTP, {"headers": "Authorization:secret"}, "headers"),
        (HTTP, {"headers": "X-Api-Key:secret"}, "headers"),
        (HTTP, {"headers": "X-A:1|Cookie: secret"}, "headers"),
        (HTTP, {"headers": "nonsense"}, "headers"),
        (HTTP, {"headers": "X-A:1|x-a:2"}, "headers"),
        (HTTP, {"headers": "X-A:1", "header.separator": ""}, "header.separator"),
        (HTTP, {"connection.user": "u"}, "connection.user"),
        (HTTP, {"connection.password": "${env:P}"}, "connection.password"),
        (CONFLUENT, {"connection.user": "${env:USER_OF_DB}"}, "connection.user"),
        (DEBEZIUM, {"connection.username": "${file:/x}"}, "connection.username"),
        (
            ICEBERG,
            {
                "iceberg.catalog.type": "jdbc",
                "iceberg.catalog.uri": "jdbc:postgresql://h/d",
                "iceberg.catalog.jdbc.user": "${env:U}",
            },
            "iceberg.catalog.jdbc.user",
        ),
        (ICEBERG, {"iceberg.catalog.jdbc.user": "u"}, "iceberg.catalog.jdbc.user"),
        (CONFLUENT, {"pk.mode": "record_value", "pk.fields": "id,id"}, "pk.fields"),
        (HTTP, {"auth.type": "OAUTH2"}, "auth.type"),
        (HTTP, {"max.retries": "3"}, "max.retries"),
        (HTTP, {"request.body.format": "string"}, "request.body.format"),
        (AIVEN_HTTP, {"batching.enabled": "true"}, "batching.enabled"),
        (AIVEN_HTTP, {"http.authorization.type": "oauth2"}, "http.authorization.type"),
        (AIVEN_HTTP, {"http.headers.content.type": "text/plain"}, "http.headers.content.type"),
    ],
)
def test_a_key_without_counterpart_is_named(kind: str, config: dict[str, str], key: str) -> None:
    found = errors(kind, **config)
    assert key in found, found
    assert all(message.startswith(f"{key}: ") for message in found[key])
    assert "secret" not in str(found).replace("is a secret", "")


@pytest.mark.parametrize("kind", SINKS)
def test_every_key_of_the_tables_has_a_lower_case_name_and_a_rule(kind: str) -> None:
    for key, rule in {**COMMON, **SINKS[kind].rules}.items():
        assert key == key.strip() and callable(rule)
        translate(SINKS[kind], {key: "x"})  # never raises
        translate(SINKS[kind], {key: ""})
