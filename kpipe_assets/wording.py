"""Format counts and errors for messages."""

from __future__ import annotations

import re

from kpipe.terminal import plain

__all__ = ["count", "first_sentence"]


def count(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun: `1 row`, `2 rows`. The plural is `one` plus an s unless `many` is set."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_sentence(error: str) -> str:
    """Return the problem of an error message, without consequences and hint."""
    return plain(re.split(r" -> |; |\n", error, maxsplit=1)[0])
