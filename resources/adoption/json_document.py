"""Parse JSON that another loader has written, so that it has one meaning only."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_document"]


def json_document(text: str | bytes) -> Any:
    """Return the value.

    Raises:
        ValueError: not JSON, nested too deeply, or a member of an object is duplicated: readers differ in which one counts.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is duplicated")
    return members


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
