"""Convert a pipeline's source to settings of a librdkafka client. Runs on the driver; workers get the result pickled."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from resources.kafka.allowed_settings import (
    ALLOWED,
    CONSUMER_ONLY,
    CREDENTIALS,
    DEFAULTS,
    FIXED,
    OAUTH,
    OAUTH_CREDENTIALS,
    OPERATION_TIMEOUT,
    OPT_IN,
    SECRETS,
    why_refused,
)
from resources.kafka.token_settings import MECHANISM, TOKEN, token_source
from resources.kafka.token_source import SETTING
from resources.schema_registry import config as registry
from resources.secret_references import credential
from resources.secrets import Secret, secrets_in

__all__ = ["admin_config", "check_topics", "client_config", "registry_access", "secrets"]

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", MECHANISM)
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_ALIASES = {
    "sasl.mechanism": "sasl.mechanisms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
}


def client_config(source: Source, environ: Mapping[str, str] | None = None, read: bool = True) -> dict[str, Any]:
    """Return a consumer's settings: defaults, overridden by the pipeline's, overridden by kpipe's fixed ones.

    Credentials are `Secret` values: the dict can be printed and pickled without showing them. Files and commands among them
    are read by each call; the source of tokens for OAUTHBEARER, `oauth_cb`, reads them when a token is due.

    Args:
        source: what to read; files and tables need no client.
        environ: variables for the templates of credentials; None: this process's environment.
        read: whether files and commands are read; otherwise the settings are only checked.

    Raises:
        InvalidPipeline: a setting is not allowed, is in the wrong section, or would send credentials unencrypted;
            a variable is not set, or a file cannot be read. The message names settings, never a value of a credential.
        CredentialUnavailable: a command failed.
    """
    if not source.reads_topics:
        return {}
    ours = (OPT_IN, OPERATION_TIMEOUT, *registry.SETTINGS)
    given = {key: _text(value) for key, value in source.config.items() if key not in ours}
    for key in given:
        _check_setting(key)
    for key in source.credentials:
        _check_credential(key, given)
    kafka = {key: value for key, value in source.credentials.items() if key not in registry.CREDENTIALS}
    # A token is read by its source, when it is due.
    hidden = {key: Secret(_secret(key, value, environ, read and key != TOKEN)) for key, value in kafka.items()}
    asked = {_ALIASES.get(key, key): value for key, value in {**given, **hidden}.items()}
    opt_in = _text(source.config.get(OPT_IN, False))
    _check_values(asked, hidden, opt_in)
    made: dict[str, Any] = {**DEFAULTS, **_sizes(asked), **asked, **FIXED, "bootstrap.servers": source.bootstrap}
    mechanism = asked.get("sasl.mechanisms", "")
    if mechanism.upper() == MECHANISM:
        mine = {key: value for key, value in given.items() if key in OAUTH}
        made[SETTING] = token_source(mine, hidden, source.credentials.get(TOKEN, ""), opt_in == "true")
    elif unused := sorted((OAUTH | OAUTH_CREDENTIALS) & asked.keys()):
        raise InvalidPipeline(
            f"source: {unused[0]} would not be used: expected sasl.mechanism {MECHANISM}, found {mechanism or 'none'}",
            f"set source.config sasl.mechanism to {MECHANISM}, or remove it",
        )
    return {key: value for key, value in made.items() if key not in OAUTH | OAUTH_CREDENTIALS}


def check_topics(source: Source) -> None:
    """Check that the source names a topic, or a pattern.

    Raises:
        InvalidPipeline: the list of topics is empty.
    """
    if source.topic_pattern is None and source.reads_topics and not source.names:
        raise InvalidPipeline("source.topics is empty", "name at least one topic")


def registry_access(source: Source, environ: Mapping[str, str] | None = None, read: bool = True) -> registry.Access:
    """Return access to the schema registry, from settings and credentials that begin with `schema.registry.`.

    Raises:
        InvalidPipeline: see `client_config`.
    """
    given = {key: _text(value) for key, value in source.config.items() if key in registry.SETTINGS}
    mine = {key: value for key, value in source.credentials.items() if key in registry.CREDENTIALS}
    hidden = {key: _secret(key, value, environ, read) for key, value in mine.items()}
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
    """Return values that must never be shown: the credentials of a source, as they are now.

    Raises:
        InvalidPipeline: see `client_config`.
    """
    config = client_config(source, environ)
    return (*secrets_in(config), *registry_access(source, environ).secrets)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _secret(key: str, template: str, environ: Mapping[str, str] | None, read: bool) -> str:
    return credential(f"source.credentials: {key}", template, environ, read)


def _check_setting(key: str) -> None:
    if key in SECRETS | registry.CREDENTIALS:
        raise InvalidPipeline(
            f"source.config: {key} is a secret",
            f"move it to source.credentials, as a template: {key}: \"{{{{ env('NAME') }}}}\"",
        )
    if key in ALLOWED | OAUTH:
        return
    reason = why_refused(key)
    if reason:
        raise InvalidPipeline(f"source.config: {key} cannot be set: {reason}", "remove it")
    near = get_close_matches(key, sorted(ALLOWED | OAUTH | {OPT_IN, OPERATION_TIMEOUT} | registry.SETTINGS), n=3)
    known = f"did you mean {' or '.join(near)}?" if near else "see the list in resources/kafka/allowed_settings.py"
    raise InvalidPipeline(f"source.config: {key} is not a setting that kpipe passes on", known)


def _check_credential(key: str, given: Mapping[str, str]) -> None:
    known = CREDENTIALS | registry.CREDENTIALS
    if key not in known:
        reason = why_refused(key)
        what = f"source.credentials: {key} " + (f"cannot be set: {reason}" if reason else "is not a credential")
        where = "move it to source.config; " if key in ALLOWED | OAUTH | registry.SETTINGS else ""
        raise InvalidPipeline(what, f"{where}credentials are {', '.join(sorted(known))}")
    if key in given:
        raise InvalidPipeline(f"{key} is set both in source.config and in source.credentials", "remove one of them")


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
