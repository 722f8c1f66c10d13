"""Count a pipeline's retries in its home. The ledger does not contain failed attempts."""

from __future__ import annotations

import fcntl
import os

from resources.home import Home

__all__ = ["count_retry", "retries"]


def count_retry(home: Home, name: str) -> None:
    """Add a retry. Concurrent runs take turns; an unreadable number starts from 0."""
    with (home.state / f"{name}.retries").open("a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = _parsed(file.read())
        os.ftruncate(file.fileno(), 0)
        file.write(str(number + 1))


def retries(home: Home, name: str) -> int:
    """Return the number of retries so far."""
    try:
        return _parsed((home.state / f"{name}.retries").read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return 0


def _parsed(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
