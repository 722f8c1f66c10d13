"""Secrets of a destination: what the templates of `into.credentials` stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline
from resources.secrets import Secret

__all__ = ["secrets"]


def secrets(given: Mapping[str, str], known: Collection[str]) -> dict[str, Secret]:
    """What the templates of `into.credentials` stand for, read when the destination is opened.

    Raises:
        InvalidPipeline: one is not known, or its variable is not set.
    """
    found: dict[str, Secret] = {}
    for key, template in given.items():
        if key not in known:
            raise InvalidPipeline(f"into.credentials: {key} is not a credential", f"credentials are {', '.join(known)}")
        try:
            found[key] = Secret(resolve(template))
        except InvalidPipeline as error:
            # From None: what is chained shows up in tracebacks, and the template itself may be the secret.
            raise InvalidPipeline(f"into.credentials: {key}: {error.what}", error.hint) from None
        if not found[key].strip():
            raise InvalidPipeline(f"into.credentials: {key} is empty", "set the variable that it names")
    return found
