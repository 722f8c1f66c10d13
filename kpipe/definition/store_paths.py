"""Check locations that may be in an object store for secrets: kpipe stores and shows them, also in ledgers and Dagster."""

from __future__ import annotations

import re

from kpipe.definition.secret_values import STORE, problem

__all__ = ["check_store_path", "in_store"]

_USER = re.compile(r"(?!abfss:)\w+:/+[^/]*@")  # abfss names the container before the sign


def in_store(value: str) -> bool:
    """Return whether a location is meant to be in an object store."""
    return STORE.match(value) is not None


def check_store_path(field: tuple[str, ...], value: str) -> None:
    """Check that a field names no user, and has no parameter that may be a secret, such as a signature.

    Args:
        field: its path in the definition.
        value: an absolute path, which is valid, or a name in an object store.

    Raises:
        ValueError: it does. The message does not contain the value.
    """
    if not value.startswith("/") and (_USER.match(value) or problem(field, value)):
        place = f"{field[0]}.credentials"
        msg = f"may contain a secret: expected s3://bucket/key without a user and parameters; write secrets to {place}"
        raise ValueError(msg)
