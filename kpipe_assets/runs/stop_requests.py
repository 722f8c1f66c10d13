"""Requests to runs of other processes, through files in the home: end after the current batch, or at once.

Best effort: the ledger fences a run that ignores a request.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from resources.home import Home

__all__ = ["StopRequests", "ask", "request", "stop_at_once"]

Wish = Literal["stop", "restart", "cancel"]
# Time between the two signals that stop `kpipe run` at once. After the first one alone, it finishes its batch.
_BETWEEN_S = 0.3


def _file(home: Home, name: str, wish: Wish) -> Path:
    return home.state / f"{name}.{wish}"


def ask(home: Home, name: str, wish: Wish) -> None:
    """Request that the current runs of a pipeline end after their batch.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        wish: `stop` for all runs; `restart` for runs that Dagster's sensor or `kpipe serve` starts again; `cancel` for
            runs of `kpipe serve`, which discard their batch.
    """
    file = _file(home, name, wish)
    fresh = file.with_suffix(f".{uuid.uuid4().hex}")
    fresh.write_text(uuid.uuid4().hex)
    fresh.replace(file)


def request(home: Home, name: str, wish: Wish) -> str:
    """Return the id of the last request; empty if there was none."""
    return _text(_file(home, name, wish))


class StopRequests:
    """The requests that a run has received since it began.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        restarts: whether the run also ends on `restart`.
    """

    def __init__(self, home: Home, name: str, restarts: bool) -> None:
        self._files = [_file(home, name, "stop"), *([_file(home, name, "restart")] if restarts else [])]
        self._before = self._read()

    def asked(self) -> bool:
        """Return whether there is a new request."""
        return self._read() != self._before

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Sleep, at most until there is a new request."""
        until = time.monotonic() + seconds
        while not self.asked() and (left := until - time.monotonic()) > 0:
            sleep(min(left, 0.5))

    def _read(self) -> list[str]:
        return [_text(file) for file in self._files]


def stop_at_once(pid: int) -> None:
    """End a `kpipe run` process as two Ctrl-C do: nothing of its batch is written."""
    import psutil

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
