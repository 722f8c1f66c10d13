"""Rules of the JDBC sinks of Confluent, Aiven and Debezium.

Keys and defaults are those of these sources, read in November 2026. A config that the connector would load into other rows than
kpipe is rejected.

- Confluent JDBC: JdbcSinkConfig, PreparedStatementBinder (confluentinc/kafka-connect-jdbc); Aiven JDBC: the same classes in
  Aiven-Open/jdbc-connector-for-apache-kafka.
- Debezium JDBC: JdbcSinkConnectorConfig, SinkConnectorConfig, DefaultCollectionNamingStrategy (debezium/debezium).
"""

from __future__ import annotations

import re
from collections.abc import Callable

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

__all__ = ["AIVEN", "CONFLUENT", "DEBEZIUM", "JDBC_URL"]

JDBC_URL = re.compile(r"jdbc:(postgresql|mysql|mariadb)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/([A-Za-z0-9_$-]+)")
_SCHEMES = {"postgresql": ("postgres", "postgresql"), "mysql": ("mysql", "mysql"), "mariadb": ("mysql", "mysql")}
# Their schemas may contain defaults, which Connect's Struct.get returns in place of null.
_DEFAULTS = ("io.confluent.connect.avro.AvroConverter", "io.confluent.connect.json.JsonSchemaConverter")
_DIALECTS = ("postgresqldatabasedialect", "mysqldatabasedialect")


def _table(draft: Draft, key: str, dot: str = ".") -> str:
    """Set the table from a format, by default `${topic}`, and return it. `dot` replaces dots of the topic."""
    given = draft.config.get(key, "${topic}")
    topic = single_topic(draft, key) if "${topic}" in given else ""
    if topic is None:
        return ""
    name = given.replace("${topic}", topic.replace(".", dot))
    draft.key = key if key in draft.config else "topics"
    draft.put(name, "into", "table")
    return name


def _keys(draft: Draft, mode_key: str, mode_default: str, fields_key: str) -> None:
    """Set key and conflict from the modes of insert and primary key."""
    insert = draft.config.get("insert.mode", "insert").strip().lower()
    mode = draft.config.get(mode_key, mode_default).strip().lower()
    fields = [name.strip() for name in draft.config.get(fields_key, "").split(",") if name.strip()]
    if insert not in ("insert", "multi", "upsert"):  # Aiven's `multi` inserts the same rows
        draft.refuse("insert.mode", f"{insert!r} has no counterpart: a row with a new key is inserted")
    if mode == "record_key" or draft.is_on("delete.enabled"):
        draft.refuse(mode_key, "'record_key' has no counterpart here: write a definition with key_format and into.key")
    elif mode == "record_value":
        if not fields:
            draft.refuse(fields_key, "missing: kpipe needs the names of the key's columns")
        if len({name.lower() for name in fields}) < len(fields):
            draft.refuse(fields_key, "names a column twice")
        draft.key = fields_key
        draft.put(fields, "into", "key")
    elif mode not in ("none", "kafka"):
        draft.refuse(mode_key, f"{mode!r} has no counterpart")
    elif insert == "upsert":
        draft.refuse(mode_key, f"{mode!r} with upsert has no counterpart: set record_value and {fields_key}")
    if mode == "kafka":
        draft.refuse(mode_key, "'kafka' has no counterpart: kpipe writes _kafka_partition and _kafka_offset without it")
    if insert == "upsert":
        draft.key = "insert.mode"
        draft.put("replace", "into", "on_conflict")


def _jdbc(user_key: str) -> Rule:
    """Return the rule of `connection.url`, which also reads the user."""

    def rule(draft: Draft, key: str, value: str) -> None:
        found = JDBC_URL.fullmatch(value.strip())
        if found is None:
            draft.refuse(
                key,
                "expected jdbc:postgresql://host:port/database, or mysql or mariadb, without options: others have no counterpart",
            )
            return
        kind, scheme = _SCHEMES[found[1]]
        who = user_name(draft, user_key)
        draft.put(kind, "into", "type")
        draft.put(f"{scheme}://{who}{found[2]}{found[3] or ''}/{found[4]}", "into", "database")

    return rule


def _jdbc_of(always: bool) -> Callable[[Draft], None]:
    """Return the rules about several keys of Confluent's sink, or of Aiven's, which always replaces null by a default."""

    def finish(draft: Draft) -> None:
        _table(draft, "table.name.format")
        _keys(draft, "pk.mode", "none", "pk.fields")
        evolution(draft, draft.is_on("auto.evolve"), "fail")
        needs(draft, "connection.url")
        if draft.config.get("value.converter", "").strip() not in _DEFAULTS:
            return
        if always:
            draft.refuse("value.converter", "null would become the schema's default: write a definition, in which it stays null")
        elif draft.config.get("replace.null.with.default", "true").strip().lower() != "false":
            draft.refuse("replace.null.with.default", "expected false: kpipe does not replace null by the schema's default")

    return finish


def _debezium_jdbc(draft: Draft) -> None:
    name = _table(draft, "table.name.format" if "table.name.format" in draft.config else "collection.name.format", "_")
    folds = draft.fields.get("into", {}).get("type") == "postgres"
    if folds and name != name.lower() and not draft.is_on("quote.identifiers"):
        draft.refuse("quote.identifiers", f"expected true: PostgreSQL would change the letters of {name}, kpipe does not")
    _keys(draft, "primary.key.mode", "none", "primary.key.fields")
    evolution(draft, draft.config.get("schema.evolution", "none").lower() == "basic", "fail")
    needs(draft, "connection.url")


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
    "insert.mode": together,
    "delete.enabled": flag(on=refused("needs the record's key: write a definition with key_format and into.on_null: delete")),
    "table.name.format": together,
    "batch.size": number("batch", "max_offsets_per_partition"),
    "max.retries": _retries("batch", "max_retries"),
    "connection.attempts": nothing,
    "connection.backoff.ms": nothing,
}
_CONFLUENT: dict[str, Rule] = {
    **_BOTH_JDBC,
    "connection.url": _jdbc("connection.user"),
    "connection.user": together,
    "dialect.name": one_of(*_DIALECTS),
    "pk.mode": together,
    "pk.fields": together,
    "auto.create": flag(),
    "replace.null.with.default": flag(),
    "auto.evolve": flag(),
    "retry.backoff.ms": _retries("batch", "retry_interval_ms"),
    "table.types": one_of("table"),
    "db.timezone": one_of("utc", why="has no counterpart: timestamps are UTC"),
    "quote.sql.identifiers": one_of("always"),
}
_DEBEZIUM: dict[str, Rule] = {
    **_BOTH_JDBC,
    "connection.url": _jdbc("connection.username"),
    "connection.username": together,
    "primary.key.mode": together,
    "primary.key.fields": together,
    "collection.name.format": together,
    "schema.evolution": one_of("none", "basic"),
    "quote.identifiers": flag(),
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
_AIVEN = {key: rule for key, rule in _CONFLUENT.items() if key not in ("replace.null.with.default", "table.types")}
CONFLUENT, AIVEN = Sink(_CONFLUENT, _jdbc_of(False)), Sink(_AIVEN, _jdbc_of(True))
DEBEZIUM = Sink(_DEBEZIUM, _debezium_jdbc)
