"""Fields of `into` for destinations without a table: another topic, or a webhook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from kpipe.definition.base import Model
from kpipe.definition.body_template import Template
from kpipe.definition.secret_values import problem

__all__ = [
    "TOPIC",
    "TopicOut",
    "WebhookOut",
    "check_header",
    "check_outlet",
    "check_url",
    "is_unnamed",
    "table_of",
]

#: Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic): 1 to 249 of these, not "." or "..".
TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")


def table_of(topic: str) -> str:
    """Return a plain name for a topic: its name in SQL and Dagster, unless `into.table` sets one."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)[:63]
    return name if re.match(r"[A-Za-z_]", name) else f"t{name}"[:63]


class TopicOut(Model):
    """`type: kafka`.

    Attributes:
        brokers: `host:port` of the cluster that is written, comma-separated or a list.
        topic: topic that rows are written to; it must exist.
        format: format of a record's value: `json`, an object of all columns; `avro` or `protobuf`, a record or message of
            them, with a schema in the registry; `raw`, the column `value` unchanged.
        registry: address of the schema registry: required for `avro` and `protobuf`; with `json`, records have a JSON Schema.
        config: librdkafka's settings, with the same list as `source.config`.
        dead_letters: topic of the dead letters; None: the topic's name followed by `.dead-letters`. Created if missing.
        ledger: topic of the ledger; None: `kpipe-ledger-` and the pipeline's name. Created if missing.
        transaction_timeout_s: maximum time for writing a batch before the brokers abort it.
    """

    brokers: str | list[str] | None = None
    topic: str | None = None
    format: Literal["json", "avro", "protobuf", "raw"] = "json"
    registry: str | None = None
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    dead_letters: str | None = None
    ledger: str | None = None
    transaction_timeout_s: int = Field(default=300, ge=1)

    def topics(self, pipeline: str) -> dict[str, str]:
        """Return the topics that a pipeline writes, by field; none for another type."""
        if self.topic is None:
            return {}
        dead_letters, ledger = self.dead_letters or f"{self.topic}.dead-letters", self.ledger or f"kpipe-ledger-{pipeline}"
        return {"topic": self.topic, "dead_letters": dead_letters, "ledger": ledger}

    @field_validator("brokers")
    @classmethod
    def _brokers(cls, value: str | list[str] | None) -> str | None:
        text = ",".join(value) if isinstance(value, list) else value
        if text is not None and not text.strip(" ,"):
            msg = "names no broker; write host:port"
            raise ValueError(msg)
        return text  # one spelling, so that all notations give equal definitions

    @field_validator("topic", "dead_letters", "ledger")
    @classmethod
    def _names(cls, value: str | None) -> str | None:
        if value is not None and not TOPIC.fullmatch(value):
            msg = f"{value!r} is not a topic's name (1 to 249 of letters, digits, '.', '_', '-')"
            raise ValueError(msg)
        return value


class WebhookOut(Model):
    """`type: webhook`.

    Attributes:
        url: address of the requests, https; None if it is a secret: `credentials.url`.
        body: template of one record's body (kpipe/definition/body_template.py); None: an object of all columns.
        envelope: template of a request, with `${records}` (a list of bodies) and `${count}`; None: the list, or with
            `max_records: 1` the only body.
        headers: headers of every request, without secrets: those are `credentials.header.NAME`.
        max_records: maximum number of bodies in a request.
        max_bytes: maximum size of a request; a record with a larger body is rejected.
        concurrency: maximum number of concurrent requests. Records of one key stay in order.
        timeout_s: maximum time until a response.
        retry_s: maximum time for sending a request again that was not accepted.
        allow_hosts: names, or addresses, that may be in a private network, or on this machine.
    """

    url: str | None = None
    body: str | None = None
    envelope: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    max_records: int = Field(default=1, ge=1, le=10_000)
    max_bytes: int = Field(default=1_048_576, ge=1024, le=64 << 20)
    concurrency: int = Field(default=4, ge=1, le=64)
    timeout_s: int = Field(default=30, ge=1)
    retry_s: int = Field(default=120, ge=0)
    allow_hosts: list[str] = Field(default_factory=list)

    @field_validator("url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            check_url(value)
            _refuse_secret(value, "url")
        return value

    @field_validator("body", "envelope")
    @classmethod
    def _templates(cls, value: str | None, info: ValidationInfo) -> str | None:
        names = Template.of(value).names if value is not None else ()
        strange = "records" not in names or set(names) - {"records", "count"}
        if info.field_name == "envelope" and value is not None and strange:
            msg = "its places are ${records}, which it needs, and ${count}; columns belong into body"
            raise ValueError(msg)
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            check_header(name, text)
            _refuse_secret(text, "headers", name)
        return value


def _refuse_secret(value: str, *field: str) -> None:
    found = problem(("into", *field), value)
    if found is not None:
        msg = f"{': '.join((*field[1:], found[0]))}: {found[1]}"
        raise ValueError(msg)


def check_url(url: str) -> None:
    """Check that requests can be sent to the address, and that it contains no credentials.

    Raises:
        ValueError: the address is invalid; the message does not contain it, as its path may be a secret.
    """
    msg = ""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good, parts = False, urlsplit("")
    if not good or not url.isascii() or any(sign.isspace() or not sign.isprintable() for sign in url):
        msg = "invalid address: expected https://host/path"
    elif parts.username is not None or parts.password is not None:
        msg = "contains credentials; move them to into.credentials: username and password, or token"
    elif parts.fragment:
        msg = "has a part after #, which is never sent to a server; remove it"
    if msg:
        raise ValueError(msg)


def check_header(name: str, value: str) -> None:
    """Check a header that is sent with every request.

    Raises:
        ValueError: the header is invalid; the message names it without its value.
    """
    lowered = name.lower()
    if not _TOKEN.fullmatch(name):
        msg = f"{name!r} is not a header's name"
    elif lowered in _OWN_HEADERS or lowered.startswith("webhook-"):
        msg = f"{name} is set by kpipe"
    elif lowered == "authorization":
        msg = "Authorization is a secret: into.credentials: token, or username and password"
    elif not value.isascii() or not value.isprintable() or value != value.strip():
        msg = f"{name}: its value contains control characters, characters beyond ASCII, or blanks around it"
    else:
        return
    raise ValueError(msg)


#: A token of RFC 9110.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = {
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "idempotency-key",
    "accept-encoding", "content-encoding", "keep-alive", "proxy-connection",
}  # fmt: skip


def is_unnamed(given: Mapping[str, Any]) -> bool:
    """Return whether a topic is named, and no table: the table's name is then derived from the topic's."""
    return given.get("type") == "kafka" and "table" not in given and isinstance(given.get("topic"), str)


def check_outlet(into: Model, kind: str) -> None:
    """Check that fields of one type of destination are set for that type only, and that required ones are set.

    Raises:
        ValueError: a field is missing or does not belong to the type; the message names it.
    """
    for owners, fields, needed in _OWNERS:
        given = [name for name in fields if getattr(into, name) != _default(into, name)]
        if given and kind not in owners:
            msg = f"{given[0]} belongs to type: {' or '.join(owners)}; the type is {kind}"
            raise ValueError(msg)
        lacking = [name for name in needed if getattr(into, name) is None]
        if lacking and kind in owners:
            msg = f"type: {kind} needs {' and '.join(lacking)}"
            raise ValueError(msg)
    _check_registry(into, kind)


def _check_registry(into: Model, kind: str) -> None:
    form, registry = getattr(into, "format", None), getattr(into, "registry", None)
    if kind == "kafka" and registry is None and form in ("avro", "protobuf"):
        msg = f"format: {form} needs registry"
        raise ValueError(msg)
    if kind == "kafka" and registry is not None and form == "raw":
        msg = "registry: expected format json, avro or protobuf, found raw"
        raise ValueError(msg)


_OWNERS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("kafka",), tuple(TopicOut.model_fields), ("brokers", "topic")),
    (("webhook",), tuple(WebhookOut.model_fields), ()),
    (("ducklake", "iceberg"), ("catalog",), ()),
    (("iceberg",), ("catalog_name", "namespace", "audit"), ()),
    (("delta", "iceberg"), ("partition_by", "maintenance"), ()),
)


def _default(into: Model, name: str) -> Any:
    return type(into).model_fields[name].get_default(call_default_factory=True)
