"""Lock files of runs. The operating system releases the lock when a process is killed.

A run takes an exclusive lock. A process that tests a file takes a shared lock, so two tests at the same moment succeed.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resources.home import Home

__all__ = ["SERVED", "at_work", "is_alive", "is_locked", "is_run_by_dagster", "is_running", "marked", "runs"]

#: Prefix of the ids of runs in `kpipe serve`.
SERVED = "serve-"
_YOUNG_S = 60.0  # keep newer files: a process may have created one and not locked it yet


@contextmanager
def at_work(home: Home, name: str) -> Iterator[None]:
    """Mark the pipeline as running while inside. May be nested.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
    """
    with _locked(home.state / f"{name}.{uuid.uuid4().hex}.running"):
        yield


@contextmanager
def marked(home: Home, name: str, run_id: str) -> Iterator[None]:
    """Mark the run as alive while inside: `is_running` and `is_alive` are true, and `runs` yields it.

    Does not exclude other runs: the ledger fences these. Removes files of killed runs.
    """
    for file in (*home.state.glob(f"{name}.*.run"), *home.state.glob(f"{name}.*.running")):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _YOUNG_S and not is_locked(file):
                file.unlink()
    with at_work(home, name), _locked(_run_file(home, name, run_id)):
        yield


def is_running(home: Home, name: str) -> bool:
    """Return whether a process runs the pipeline now. Killed processes do not count."""
    return any(is_locked(file) for file in home.state.glob(f"{name}.*.running"))


def is_run_by_dagster(home: Home, name: str) -> bool:
    """Return whether a run that is at work is one of Dagster, which publishes its checks; those of other commands do not."""
    found = [run_id for run_id, _ in runs(home, name)]
    # A run of Dagster is not marked while it begins and ends.
    return not found or any(not (item.isdigit() or item.startswith(SERVED)) for item in found)


def is_alive(home: Home, name: str, run_id: str) -> bool:
    """Return whether the process of this run is alive."""
    return is_locked(_run_file(home, name, run_id))


def runs(home: Home, name: str) -> Iterator[tuple[str, int]]:
    """Yield run id and process id of a pipeline's current runs. The run id of `kpipe run` is its process id."""
    for file in sorted(home.state.glob(f"{name}.*.run")):
        if is_locked(file):
            with suppress(FileNotFoundError, ValueError):  # the run has just ended, or has not written its process id yet
                yield file.name.removeprefix(f"{name}.").removesuffix(".run"), int(file.read_text())


def is_locked(path: Path) -> bool:
    """Return whether a process has locked the file."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _run_file(home: Home, name: str, run_id: str) -> Path:
    return home.state / f"{name}.{run_id}.run"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Write this process's id to a file and lock it while inside. Remove it at the end."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
