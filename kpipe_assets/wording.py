"""Format counts and errors for messages."""

from __future__ import annotations

import re

from kpipe.terminal import plain

__all__ = ["count", "first_sentence"]


def count(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`; the plural has an s unless it is given."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_sentence(error: str) -> str:
    """What happened, without what follows from it and without the hint."""
    return plain(re.split(r" -> |; |\n", error, maxsplit=1)[0])
