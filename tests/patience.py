"""Wait in tests without taking the processor from what they wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest

_T = TypeVar("_T")


def looks(within_s: float, least_s: float = 0.05) -> Iterator[None]:
    """Yield until the time is over, with a pause after each look at what the test waits for.

    A look may list all processes, open a database or run a command: each pause is four times as long, and a second at most.
    So a test that waits takes a fifth of a core at most.

    Args:
        within_s: the time.
        least_s: shortest pause.
    """
    until = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        yield
        now = time.monotonic()
        if now > until:
            return
        time.sleep(min(1.0, max(least_s, 4 * (now - began))))


def longer(check: Callable[[float], _T], *limits_s: float) -> _T:
    """Make a check with a short limit of the code under test, and again with longer ones where it fails.

    A limit that is tested must be short, and a busy machine may not come far enough in a short one. The last check counts.

    Args:
        check: gets the limit.
        limits_s: from the shortest to the longest.
    """
    for limit_s in limits_s[:-1]:
        with suppress(Exception, pytest.fail.Exception):
            return check(limit_s)
    return check(limits_s[-1])
