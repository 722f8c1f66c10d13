"""Spark's scratch folders: one for each process, and those of processes that were killed removed.

A JVM that is killed leaves its blocks and its copies of shipped programs behind, and nobody would ever remove them.
Each folder has a lock that its process holds as long as it lives; pids are not asked, as containers that share a home
do not see each other's.
"""

from __future__ import annotations

import fcntl
import shutil
import time
import uuid
from functools import lru_cache
from pathlib import Path
from typing import IO

__all__ = ["scratch", "sweep"]

_LOCK = ".lock"
_YOUNG_S = 60.0  # between making a folder and locking it, its process may be stopped for a while
_held: list[IO[str]] = []  # until this process ends, however it does


@lru_cache
def scratch(home: Path) -> Path:
    """This process's own folder, made the first time."""
    folder = home / "spark" / uuid.uuid4().hex
    folder.mkdir(mode=0o700, parents=True)
    lock = (folder / _LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held.append(lock)
    return folder


def sweep(home: Path) -> list[str]:
    """Remove the folders of processes that are gone; gives their names."""
    removed: list[str] = []
    for folder in sorted((home / "spark").glob("*")):
        lock = folder / _LOCK
        if folder.is_symlink() or not lock.is_file() or time.time() - lock.stat().st_mtime < _YOUNG_S:
            continue
        with lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed
