"""Translate configs of Connect's usual sinks to the fields of a definition, or reject them key by key.

Each key of a sink has a rule in a table. A rule sets fields, has no effect, or rejects the value. A key without a rule is
rejected: nothing is guessed. The rules follow docs/how-to/coming-from-kafka-connect.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kpipe.definition.references import mentions_reference
from kpipe.definition.secret_values import is_secret_value
from resources.kafka.allowed_settings import ALLOWED

__all__ = [
    "COMMON", "Draft", "Rule", "Sink", "evolution", "field_of", "flag", "needs", "nothing", "number", "one_of", "refused",
    "single_topic", "together", "translate", "user_name",
]  # fmt: skip

_CONVERTERS = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "io.confluent.connect.json.JsonSchemaConverter": "json",
}
# The sinks need records with fields: a text or bytes would become other rows, or none.
_RAW = ("org.apache.kafka.connect.converters.ByteArrayConverter", "org.apache.kafka.connect.storage.StringConverter")
_CONSUMER = "consumer.override."
# Keys of required fields, in case that no key sets them.
_KEYS = {
    ("name",): "name",
    ("source",): "topics",
    ("source", "brokers"): f"{_CONSUMER}bootstrap.servers",
    ("format",): "value.converter",
    ("into",): "connector.class",
}


@dataclass
class Draft:
    """A translation at work.

    Attributes:
        config: the connector's config.
        fields: fields of the definition.
        errors: what is wrong, by key.
        keys: the key that a field comes from, by the field's path.
        key: the key whose rule is applied.
    """

    config: Mapping[str, str]
    fields: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[tuple[str, ...], str] = field(default_factory=lambda: dict(_KEYS))
    key: str = "connector.class"

    def put(self, value: Any, *path: str) -> None:
        """Set a field of the definition."""
        self.keys[path] = self.key
        group = self.fields
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = value

    def refuse(self, key: str, why: str) -> None:
        """Reject a key."""
        self.errors.setdefault(key, []).append(f"{key}: {why}")

    def is_on(self, key: str) -> bool:
        """Return whether a boolean key is true; false if it is missing."""
        return self.config.get(key, "false").strip().lower() == "true"


#: Applies the value of a key to the draft.
Rule = Callable[[Draft, str, str], None]


@dataclass(frozen=True)
class Sink:
    """A connector class.

    Attributes:
        rules: rule of each key, in addition to those of every sink.
        finish: rules about several keys.
        prefixes: rules of keys that begin with a text.
    """

    rules: Mapping[str, Rule]
    finish: Callable[[Draft], None]
    prefixes: Mapping[str, Rule] = field(default_factory=dict)

    def rule(self, key: str) -> Rule | None:
        """Return the rule of a key; None if it has no counterpart."""
        exact = self.rules.get(key) or COMMON.get(key)
        if exact is not None:
            return exact
        starts = {**PREFIXES, **self.prefixes}
        return next((rule for start, rule in starts.items() if key.startswith(start)), None)


def nothing(draft: Draft, key: str, value: str) -> None:
    """Accept any value without a secret: it has no effect on the rows, but is stored and returned."""
    if is_secret_value(value):
        draft.refuse(key, "contains a secret and has no effect: leave the secret out")


def together(_: Draft, __: str, ___: str) -> None:
    """Accept any value for now: `Sink.finish` reads it, with other keys, and its fields are judged as all others."""


def field_of(*path: str) -> Rule:
    """Return a rule that sets a field to the text."""
    return lambda draft, _, value: draft.put(value, *path)


def number(*path: str) -> Rule:
    """Return a rule that sets a field to a whole number."""

    def rule(draft: Draft, key: str, value: str) -> None:
        if value.strip().isascii() and value.strip().isdigit() and len(value) < 19:
            draft.put(int(value), *path)
        else:
            draft.refuse(key, f"not a whole number: {value!r}")

    return rule


def flag(on: Rule = nothing, off: Rule = nothing) -> Rule:
    """Return a rule for a boolean."""

    def rule(draft: Draft, key: str, value: str) -> None:
        match value.strip().lower():
            case "true":
                on(draft, key, value)
            case "false":
                off(draft, key, value)
            case _:
                draft.refuse(key, f"expected true or false, found {value!r}")

    return rule


def one_of(*values: str, why: str = "has no counterpart") -> Rule:
    """Return a rule that accepts these values only, in upper or lower case, without effect."""

    def rule(draft: Draft, key: str, value: str) -> None:
        if value.strip().lower() not in values:
            draft.refuse(key, f"{value!r} {why}: expected {' or '.join(map(repr, values))}")

    return rule


def user_name(draft: Draft, key: str) -> str:
    """Return the user's name before an address, quoted and with `@`; empty if there is none.

    A reference is rejected: a user's name is part of the address, whose references are not resolved.
    """
    user = draft.config.get(key, "")
    if mentions_reference(user):
        draft.refuse(key, "expected the user's name, found a reference, which only a credential can be")
        return ""
    return f"{quote(user, safe='')}@" if user else ""


def refused(why: str) -> Rule:
    """Return a rule that rejects the key."""
    return lambda draft, key, _: draft.refuse(key, why)


def single_topic(draft: Draft, key: str) -> str | None:
    """Return the only topic; reject the key if there are several, or a pattern."""
    names = [name.strip() for name in draft.config.get("topics", "").split(",") if name.strip()]
    if len(names) == 1:
        return names[0]
    draft.refuse(key, "needs one topic: kpipe writes one table for each pipeline, not one for each topic")
    return None


def evolution(draft: Draft, on: bool, otherwise: str) -> None:
    """Set what happens to members without a column."""
    draft.put("evolve" if on else otherwise, "schema")


def needs(draft: Draft, *keys: str) -> None:
    """Reject keys that are missing."""
    for key in keys:
        if not draft.config.get(key, "").strip():
            draft.refuse(key, "missing")


def _topics(draft: Draft, key: str, value: str) -> None:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        draft.refuse(key, "names no topic")
    elif len(names) == 1:
        draft.put(names[0], "source", "topic")
    else:
        draft.put(names, "source", "topics")


_QUEUE = "errors.deadletterqueue.topic.name"


def _tolerance(draft: Draft, key: str, value: str) -> None:
    queue = draft.config.get(_QUEUE, "").strip()
    match value.strip().lower():
        case "none":
            policy = "fail"
        case "all":
            policy = "dead_letter" if queue else "skip"
        case _:
            draft.refuse(key, f"expected none or all, found {value!r}")
            return
    # Without a queue only what Connect skips: records that cannot be read. A row that the table rejects stops the pipeline.
    for stage in ("parse",) if policy == "skip" else ("parse", "transform", "constraint"):
        draft.put(policy, "errors", stage)
    if policy == "dead_letter":
        draft.key = _QUEUE
        draft.put(queue, "errors", "topic")


def _converter(draft: Draft, key: str, value: str) -> None:
    kind = _CONVERTERS.get(value.strip())
    if value.strip() in _RAW:
        draft.refuse(key, f"{value!r} gives no fields: write a definition with format.type raw, whose columns are key and value")
        return
    if kind is None:
        draft.refuse(key, f"{value!r} has no counterpart: expected {', '.join(_CONVERTERS)}")
        return
    draft.put(kind, "format", "type")
    if value.strip().endswith(".json.JsonConverter") and draft.config.get("value.converter.schemas.enable", "true") != "false":
        draft.refuse(
            "value.converter.schemas.enable",
            "is true: set it to false, or write a definition with format.schemas_enable, which leaves defaults of schemas out",
        )


def _consumer(draft: Draft, key: str, value: str) -> None:
    name = key.removeprefix(_CONSUMER)
    match name:
        case "bootstrap.servers":
            draft.put(value, "source", "brokers")
        case "auto.offset.reset":
            if value in ("earliest", "latest"):
                draft.put(value, "source", "start")
            else:
                draft.refuse(key, f"expected earliest or latest, found {value!r}")
        case "max.poll.records":
            number("batch", "max_offsets_per_partition")(draft, key, value)
        case "group.id":
            draft.put(value, "source", "group")
        case "sasl.jaas.config":
            draft.refuse(key, "is Java's: write a definition with source.credentials sasl.username and sasl.password")
        case "isolation.level":
            one_of("read_committed", why="is not supported")(draft, key, value)
        case _ if name in ALLOWED:
            draft.put(value, "source", "config", name)
        case _:
            draft.refuse(key, "has no counterpart")


#: Keys of every sink.
COMMON: dict[str, Rule] = {
    "name": field_of("name"),
    "connector.class": nothing,
    "tasks.max": nothing,
    "topics": _topics,
    "topics.regex": lambda draft, _, value: draft.put(f"^(?:{value})$", "source", "topic_pattern"),
    "value.converter": _converter,
    "value.converter.schemas.enable": flag(),
    "value.converter.schema.registry.url": field_of("format", "registry"),
    "value.converter.basic.auth.user.info": refused(
        "is one text: write a definition with source.credentials schema.registry.username and schema.registry.password"
    ),
    "key.converter": nothing,
    "key.converter.schemas.enable": nothing,
    "key.converter.schema.registry.url": nothing,
    "errors.tolerance": _tolerance,
    _QUEUE: together,  # see `_tolerance`
    "errors.deadletterqueue.topic.replication.factor": nothing,
    "errors.deadletterqueue.context.headers.enable": nothing,
    "errors.log.enable": nothing,
    "errors.log.include.messages": nothing,
    "errors.retry.timeout": refused("is a time; kpipe counts tries: batch.max_retries and batch.retry_interval_ms"),
    "errors.retry.delay.max.ms": number("batch", "max_retry_interval_ms"),
    "transforms": refused("has no counterpart: write a definition with select, or where and set"),
    "predicates": refused("has no counterpart: write a definition with where"),
    "header.converter": nothing,
}
PREFIXES: dict[str, Rule] = {_CONSUMER: _consumer}


def translate(sink: Sink, config: Mapping[str, str]) -> Draft:
    """Translate a config by the rules of a sink. All problems are collected."""
    draft = Draft(config)
    for key, value in config.items():
        rule, draft.key = sink.rule(key), key
        if rule is None:
            draft.refuse(key, "has no counterpart in kpipe; nothing was guessed")
        else:
            rule(draft, key, value)
    if not {"topics", "topics.regex"} & config.keys():
        draft.refuse("topics", "missing: set topics or topics.regex")
    if "value.converter" not in config:
        draft.refuse("value.converter", "missing: a worker's default is unknown here")
    if "errors.tolerance" not in config:  # Connect's default
        _tolerance(draft, "errors.tolerance", "none")
    draft.key = "connector.class"
    sink.finish(draft)
    return draft
