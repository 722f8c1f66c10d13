"""The lock of `kpipe serve`: a home has one service at most. Other processes read from it which process runs the pipelines."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kpipe.errors import KpipeError
from kpipe_assets.runs.run_locks import is_locked
from resources.home import Home

__all__ = ["Service", "only_service", "running_service", "take"]

# A service process ends soon after its supervisor was killed, and releases the lock then.
_ORPHAN_S = 30.0


@dataclass(frozen=True)
class Service:
    """A running `kpipe serve`.

    Attributes:
        pid: process id of its supervisor, the process that a signal should stop.
        address: URL of its HTTP server; empty if it has none.
        dagster_home: the DAGSTER_HOME whose switches it reads.
    """

    pid: int
    address: str = ""
    dagster_home: str = ""

    def __str__(self) -> str:
        return f"kpipe serve (pid {self.pid})"


def running_service(home: Home) -> Service | None:
    """Return the service that runs the home's pipelines, or None."""
    file = _file(home)
    return _read(file) if is_locked(file) else None


@contextmanager
def only_service(home: Home) -> Iterator[tuple[int, Callable[[Service], None]]]:
    """Lock the home while inside. Yield the lock's file descriptor, and a function that records the service.

    A child process that inherits the descriptor keeps the lock until it has ended, too.

    Raises:
        KpipeError: another service runs; the message contains its process id.
    """
    import psutil

    with _file(home).open("a+", encoding="utf-8") as file:
        deadline = time.monotonic() + _ORPHAN_S
        while not take(file):
            other = _read(_file(home))
            if psutil.pid_exists(other.pid) or time.monotonic() > deadline:
                at = f", on {other.address}" if other.address else ""
                raise KpipeError(
                    f"a service of {home.path} is running already: {other}{at}",
                    f"use that one, or stop it: kill {other.pid}; a second service needs another KPIPE_HOME",
                )
            time.sleep(0.1)

        def record(service: Service) -> None:
            file.truncate(0)
            file.write(json.dumps({"pid": service.pid, "address": service.address, "dagster_home": service.dagster_home}))
            file.flush()

        yield file.fileno(), record
        file.truncate(0)


def take(file: IO[str]) -> bool:
    """Lock the file. Wait for a process that tests the lock (run_locks.py) and has it for a moment."""
    for _ in range(20):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def _file(home: Home) -> Path:
    return home.state / "serve.lock"


def _read(file: Path) -> Service:
    """Read the lock's content; a process id of 0 means that the service has not written it yet."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        return Service(int(fields["pid"]), str(fields.get("address", "")), str(fields.get("dagster_home", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Service(0)
