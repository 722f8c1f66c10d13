"""Lock the definitions of a home while one of them is compared and written."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from resources.home import Home

__all__ = ["defining"]


@contextmanager
def defining(home: Home) -> Iterator[None]:
    """Keep other statements, and exchanges of rebuilt tables, from writing definitions while inside. Not reentrant.

    A user's editor takes no lock; the comparison finds its edit.
    """
    with (home.make().state / "definitions.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
