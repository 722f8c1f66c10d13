"""Spark's scratch folders and sockets: one for each process, and those of processes that were killed removed.

A JVM that is killed leaves its blocks and its copies of shipped programs behind, and nobody would ever remove them.
Each folder has a lock that its process holds as long as it lives; pids are not asked, as containers that share a home
do not see each other's.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

__all__ = ["scratch", "sockets", "sweep"]

_LOCK, _SOCKETS = ".lock", "sockets"
_YOUNG_S = 60.0  # between making a folder and locking it, its process may be stopped for a while
# A socket's path may have 107 bytes (unix(7); 103 on macOS); Spark's names for them take 42.
_LONGEST = 60
_PREFIX = "kpipe-"
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


@lru_cache
def sockets(home: Path) -> Path:
    """A private folder for this process's sockets, with a path that is short enough for them.

    Inside the scratch folder if that is short; otherwise among the system's temporary files, and the scratch folder refers
    to it, so that both go together. Private matters: Spark's sockets ask nobody for a secret, as its ports do.
    """
    folder = scratch(home)
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    made = Path(tempfile.mkdtemp(prefix=_PREFIX))  # for its owner alone
    (folder / _SOCKETS).symlink_to(made)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


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
            _remove_sockets(folder / _SOCKETS)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed


def _remove_sockets(link: Path) -> None:
    """What the link refers to, if it is what `sockets` has made; links lie in the home, and may say anything."""
    if not link.is_symlink():
        return
    folder = Path(os.readlink(link))
    mine = folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(_PREFIX) and not folder.is_symlink()
    if mine and folder.is_dir() and folder.stat().st_uid == os.getuid():
        for file in folder.iterdir():
            if file.is_socket():
                file.unlink(missing_ok=True)
        with suppress(OSError):  # something else lies in it
            folder.rmdir()
