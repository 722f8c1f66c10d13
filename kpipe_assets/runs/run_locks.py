"""Marks: files in the home, each locked by the one process that is at work on a pipeline, and so free when that is killed.

Whoever holds a mark locks it alone, and whoever looks asks for a shared lock: two that look at the same moment never take
each other for a run.
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

__all__ = ["at_work", "is_alive", "is_locked", "is_running", "marked", "runs"]

_YOUNG_S = 60.0  # a mark may have been made and not be locked yet


@contextmanager
def at_work(home: Home, name: str) -> Iterator[None]:
    """While inside, `is_running` says so. May be nested.

    Args:
        home: where the pipeline keeps things.
        name: the pipeline's name.
    """
    with _held(home.state / f"{name}.{uuid.uuid4().hex}.running"):
        yield


@contextmanager
def marked(home: Home, name: str, run_id: str) -> Iterator[None]:
    """While inside, `is_running` and `is_alive` say so, and `runs` tells this process's id.

    Two runs at once are fenced by the ledger, not by this. What killed runs have left is removed.
    """
    for left in (*home.state.glob(f"{name}.*.run"), *home.state.glob(f"{name}.*.running")):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _YOUNG_S and not is_locked(left):
                left.unlink()
    with at_work(home, name), _held(_mark(home, name, run_id)):
        yield


def is_running(home: Home, name: str) -> bool:
    """Whether some process is running the pipeline now; killed ones do not count, whatever they had noted."""
    return any(is_locked(file) for file in home.state.glob(f"{name}.*.running"))


def is_alive(home: Home, name: str, run_id: str) -> bool:
    """Whether the process of that run is at work."""
    return is_locked(_mark(home, name, run_id))


def runs(home: Home, name: str) -> Iterator[tuple[str, int]]:
    """Runs of a pipeline that are at work: run id and process id. A run of the command line has its process id as run id."""
    for file in sorted(home.state.glob(f"{name}.*.run")):
        if is_locked(file):
            with suppress(FileNotFoundError, ValueError):  # it has just ended, or not written its id yet
                yield file.name.removeprefix(f"{name}.").removesuffix(".run"), int(file.read_text())


def is_locked(path: Path) -> bool:
    """Whether some process holds that file."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _mark(home: Home, name: str, run_id: str) -> Path:
    return home.state / f"{name}.{run_id}.run"


@contextmanager
def _held(mark: Path) -> Iterator[None]:
    """A mark with this process's id, locked while inside, then removed."""
    with mark.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)
