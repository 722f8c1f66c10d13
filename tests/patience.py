"""Wait in tests without taking the processor from what they wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator


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
