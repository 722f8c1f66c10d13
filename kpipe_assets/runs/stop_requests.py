"""What one process asks of the runs of another, through files in the home: to end after the batch at hand, or at once.

A courtesy, never part of the safety: a run that does not listen is fenced by the ledger as any other.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil

from resources.home import Home

__all__ = ["Ear", "ask", "stop_at_once"]

Wish = Literal["stop", "restart"]
# Between the two signals that stop a run of the command line at once; the first alone lets it finish its batch.
_BETWEEN_S = 0.3


def _file(home: Home, name: str, wish: Wish) -> Path:
    return home.state / f"{name}.{wish}"


def ask(home: Home, name: str, wish: Wish) -> None:
    """Ask all runs of a pipeline that are at work now to end after the batch at hand.

    Args:
        home: where they keep things.
        name: the pipeline's name.
        wish: `stop` is for all; `restart` for those that somebody starts again by itself, as Dagster's sensor does.
    """
    file = _file(home, name, wish)
    fresh = file.with_suffix(f".{uuid.uuid4().hex}")
    fresh.write_text(uuid.uuid4().hex)
    fresh.replace(file)


class Ear:
    """What a run hears: whether it was asked to end since it began.

    Args:
        home: where it keeps things.
        name: the pipeline's name.
        restarts: whether it obeys `restart`, too.
    """

    def __init__(self, home: Home, name: str, restarts: bool) -> None:
        self._files = [_file(home, name, "stop"), *([_file(home, name, "restart")] if restarts else [])]
        self._before = self._read()

    def asked(self) -> bool:
        """Whether somebody did."""
        return self._read() != self._before

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Sleep, or less when somebody asks."""
        until = time.monotonic() + seconds
        while not self.asked() and (left := until - time.monotonic()) > 0:
            sleep(min(left, 0.5))

    def _read(self) -> list[str]:
        return [_text(file) for file in self._files]


def stop_at_once(pid: int) -> None:
    """End a run of the command line as two Ctrl-C would: nothing of its batch is written."""
    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
        time.sleep(_BETWEEN_S)
        process.send_signal(signal.SIGTERM)
    except psutil.NoSuchProcess:
        return


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
