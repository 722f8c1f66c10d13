"""Resolve the templates of `into.credentials` to secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline
from resources.secrets import Secret

__all__ = ["secrets"]


def secrets(given: Mapping[str, str], known: Collection[str]) -> dict[str, Secret]:
    """Resolve the templates of `into.credentials` when a destination is opened.

    Raises:
        InvalidPipeline: a name is not supported, or its variable is not set.
    """
    found: dict[str, Secret] = {}
    for key, template in given.items():
        if key not in known:
            raise InvalidPipeline(f"into.credentials: {key} is not a credential of this destination", f"use {', '.join(known)}")
        try:
            found[key] = Secret(resolve(template))
        except InvalidPipeline as error:
            # From None: tracebacks show chained exceptions, and the template itself may be the secret.
            raise InvalidPipeline(f"into.credentials: {key}: {error.what}", error.hint) from None
        if not found[key].strip():
            raise InvalidPipeline(f"into.credentials: {key} is empty", "set the environment variable in its template")
    return found
