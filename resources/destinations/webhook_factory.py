"""Open webhook destinations (`into: {type: webhook}`) after checking their fields and secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.sink_options import check_header
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.destinations.credentials import secrets
from resources.destinations.webhook.sender import Endpoint
from resources.destinations.webhook.signature import keys
from resources.destinations.webhook.url_guard import VARIABLE, Url
from resources.net.http import authorization
from resources.secrets import Secret, secret_forms

__all__ = ["open_webhook"]

_HEADER = "header."  # prefix of credentials that are sent as headers


def open_webhook(pipeline: Pipeline, path: Path, shown: Mapping[str, Any], staging: Sequence[Path]) -> Destination:
    """Open the destination of a pipeline with `into: {type: webhook}`. Sends nothing yet.

    Args:
        pipeline: the definition.
        path: the ledger's file.
        shown: the definition for display, without secrets.
        staging: folders of staged files.

    Raises:
        InvalidPipeline: a field or a secret is invalid.
        NotAvailable: the definition uses a feature that webhooks do not support.
    """
    from resources.destinations.webhook import Rules, WebhookDestination  # imported late: it loads DuckDB

    name, into, errors = pipeline.name, pipeline.into, pipeline.errors
    refused = {
        "into.key, into.on_conflict, into.on_null and errors.duplicate_key": KeyRule.of(pipeline) is not None,
        "also": bool(pipeline.also),
        f"delivery: {pipeline.delivery}": pipeline.delivery != "exactly_once",
        "errors.batch: skip": errors.batch == "skip",
    }
    for what, given in refused.items():
        if given:
            raise NotAvailable(
                f"pipeline {name}: a webhook does not support {what}", "leave it out; see docs/how-to/destinations/webhook.md"
            )
    known = ("url", "token", "username", "password", "signing_secret", *(k for k in into.credentials if k.startswith(_HEADER)))
    found = secrets(into.credentials, known)
    headers = dict(into.headers)
    for key, value in found.items():
        if key.startswith(_HEADER):
            try:
                check_header(key[len(_HEADER) :], value)
            except ValueError as error:
                raise InvalidPipeline(
                    f"pipeline {name}: into.credentials: {error}", "NAME in header.NAME must be the name of an HTTP header"
                ) from None
            headers[key[len(_HEADER) :]] = value
        elif key != "signing_secret" and not (value.isprintable() and value.isascii()):
            raise InvalidPipeline(
                f"pipeline {name}: into.credentials.{key}: expected printable ASCII, found other characters",
                "check the variable's value",
            )
    if ("username" in found) != ("password" in found) or ("token" in found and "username" in found):
        raise InvalidPipeline(
            f"pipeline {name}: into.credentials: expected token, or username and password, found other fields",
            "set one of the two",
        )
    headers |= authorization(*(found.get(key, "") for key in ("username", "password", "token")))
    url = Url.of(found.get("url") or str(into.url))
    signing = keys(found["signing_secret"]) if "signing_secret" in found else ()
    forms = secret_forms(url.target) if "url" in found else ()
    hidden = [*found.values(), *map(Secret, forms)]
    endpoint = Endpoint(
        url=url,
        headers=headers,
        signing=signing,
        secrets=hidden,
        allowed=(*into.allow_hosts, *os.environ.get(VARIABLE, "").split(",")),
        connections=into.concurrency,
        timeout_s=into.timeout_s,
        retry_s=into.retry_s,
    )
    rules = Rules(errors.constraint, errors.max_dead_letters)
    return WebhookDestination(into, endpoint, path, name, shown, staging, rules)
