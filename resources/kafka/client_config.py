"""Convert a pipeline's source to settings of a librdkafka client. Runs on the driver; workers get the result pickled."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kpipe.definition.pipeline import Source
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline
from resources.kafka.allowed_settings import (
    ALLOWED,
    CONSUMER_ONLY,
    CREDENTIALS,
    DEFAULTS,
    FIXED,
    OPERATION_TIMEOUT,
    OPT_IN,
    SECRETS,
    why_refused,
)
from resources.schema_registry import config as registry
from resources.secrets import Secret, secrets_in

__all__ = ["admin_config", "check_topics", "client_config", "registry_access", "secrets"]

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_ALIASES = {
    "sasl.mechanism": "sasl.mechanisms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
}


def client_config(source: Source, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a consumer's settings: defaults, overridden by the pipeline's, overridden by kpipe's fixed ones.

    Credentials are `Secret` values: the dict can be printed and pickled without showing them.

    Args:
        source: what to read.
        environ: variables for the templates of credentials; None: this process's environment.

    Raises:
        InvalidPipeline: a setting is not allowed, is in the wrong section, or would send credentials unencrypted;
            a variable of a template is not set. The message names settings, never a value of a credential.
    """
    ours = (OPT_IN, OPERATION_TIMEOUT, *registry.SETTINGS)
    given = {key: _text(value) for key, value in source.config.items() if key not in ours}
    for key in given:
        _check_setting(key)
    for key in source.credentials:
        _check_credential(key, given)
    kafka = {key: value for key, value in source.credentials.items() if key not in registry.CREDENTIALS}
    hidden = {key: Secret(_resolved(key, value, environ)) for key, value in kafka.items()}
    asked = {_ALIASES.get(key, key): value for key, value in {**given, **hidden}.items()}
    _check_values(asked, hidden, _text(source.config.get(OPT_IN, False)))
    return {**DEFAULTS, **_sizes(asked), **asked, **FIXED, "bootstrap.servers": source.bootstrap}


def check_topics(source: Source) -> None:
    """Check that the source names a topic, or a pattern.

    Raises:
        InvalidPipeline: the list of topics is empty.
    """
    if source.topic_pattern is None and not source.names:
        raise InvalidPipeline("source.topics is empty", "name at least one topic")


def registry_access(source: Source, environ: Mapping[str, str] | None = None) -> registry.Access:
    """Return access to the schema registry, from settings and credentials that begin with `schema.registry.`.

    Raises:
        InvalidPipeline: see `client_config`.
    """
    given = {key: _text(value) for key, value in source.config.items() if key in registry.SETTINGS}
    hidden = {key: _resolved(key, value, environ) for key, value in source.credentials.items() if key in registry.CREDENTIALS}
    return registry.Access.of(given, hidden, _text(source.config.get(OPT_IN, False)) == "true")


def admin_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for a client that reads no records."""
    return {key: value for key, value in config.items() if key not in CONSUMER_ONLY}


def operation_timeout_s(source: Source) -> float:
    """Return the longest time for a whole metadata request, in seconds; `operation.timeout.ms`, 10,000 by default.

    Raises:
        InvalidPipeline: not a positive number.
    """
    given = source.config.get(OPERATION_TIMEOUT, 10_000)
    try:
        seconds = float(given) / 1000
    except ValueError:
        seconds = 0.0
    if isinstance(given, bool) or not 0 < seconds < float("inf"):
        raise InvalidPipeline(f"source.config: {OPERATION_TIMEOUT} is {given!r}", "write milliseconds, such as 10000")
    return seconds


def secrets(source: Source, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return values that must never be shown: the resolved credentials.

    Raises:
        InvalidPipeline: see `client_config`.
    """
    return (*secrets_in(client_config(source, environ)), *registry_access(source, environ).secrets)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_setting(key: str) -> None:
    if key in SECRETS | registry.CREDENTIALS:
        raise InvalidPipeline(
            f"source.config: {key} is a secret",
            f"move it to source.credentials, as a template: {key}: \"{{{{ env('NAME') }}}}\"",
        )
    if key in ALLOWED:
        return
    reason = why_refused(key)
    if reason:
        raise InvalidPipeline(f"source.config: {key} cannot be set: {reason}", "remove it")
    near = get_close_matches(key, sorted(ALLOWED | {OPT_IN, OPERATION_TIMEOUT} | registry.SETTINGS), n=3)
    known = f"did you mean {' or '.join(near)}?" if near else "see the list in resources/kafka/allowed_settings.py"
    raise InvalidPipeline(f"source.config: {key} is not a setting that kpipe passes on", known)


def _check_credential(key: str, given: Mapping[str, str]) -> None:
    known = CREDENTIALS | registry.CREDENTIALS
    if key not in known:
        reason = why_refused(key)
        what = f"source.credentials: {key} " + (f"cannot be set: {reason}" if reason else "is not a credential")
        where = "move it to source.config; " if key in ALLOWED | registry.SETTINGS else ""
        raise InvalidPipeline(what, f"{where}credentials are {', '.join(sorted(known))}")
    if key in given:
        raise InvalidPipeline(f"{key} is set both in source.config and in source.credentials", "remove one of them")


def _resolved(key: str, template: str, environ: Mapping[str, str] | None) -> str:
    try:
        value = resolve(template, environ)
    except InvalidPipeline as error:
        # From None: tracebacks show chained errors, and the template itself may be the secret.
        raise InvalidPipeline(f"source.credentials: {key}: {error.what}", error.hint) from None
    if not value.strip():
        raise InvalidPipeline(f"source.credentials: {key} is empty", "set the variable that it names")
    return value


def _check_values(asked: Mapping[str, str], hidden: Mapping[str, str], opt_in: str) -> None:
    protocol = asked.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise InvalidPipeline("source.config: security.protocol: unknown protocol", f"use one of {', '.join(_PROTOCOLS)}")
    if opt_in not in ("true", "false"):
        raise InvalidPipeline(f"source.config: {OPT_IN} is neither true nor false", "write true or remove it")
    mechanism = asked.get("sasl.mechanisms")
    if mechanism is not None and mechanism.upper() not in _MECHANISMS:
        raise InvalidPipeline("source.config: sasl.mechanism is not supported", f"one of {', '.join(_MECHANISMS)}")
    unused = sorted(key for key in hidden if key.split(".")[0] not in protocol.split("_"))
    if unused:
        raise InvalidPipeline(
            f"source.credentials: {', '.join(unused)} would not be used with security.protocol {protocol}",
            "set source.config security.protocol to SASL_SSL, or to SSL for client certificates",
        )
    if protocol == "sasl_plaintext" and opt_in != "true":
        raise InvalidPipeline(
            "source.config: security.protocol SASL_PLAINTEXT sends credentials and records over the network unencrypted",
            f"use SASL_SSL, or, where the network is trusted, add {OPT_IN}: true to source.config",
        )


def _sizes(asked: Mapping[str, str]) -> dict[str, int]:
    """Return sizes that fit the configured ones; librdkafka requires `message <= fetch <= largest response - 512`."""
    largest, fetch = (asked.get(key, "") for key in ("receive.message.max.bytes", "fetch.max.bytes"))
    if largest.isdigit() and not fetch:
        fetch = str(max(1, min(int(largest) - 512, 52_428_800)))
    if not fetch.isdigit():
        return {}
    most = int(fetch)
    return {
        "fetch.max.bytes": most,
        "fetch.message.max.bytes": min(most, 1_048_576),
        "message.max.bytes": max(1000, min(most, 1_000_000)),
    }
