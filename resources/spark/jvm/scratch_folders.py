"""Spark's scratch folders and sockets: one folder for each process; those of killed processes are removed.

A killed JVM leaves its blocks and its copies of shipped programs behind. Each folder has a lock file that its process
keeps locked. Process ids would not do: containers that share a home cannot see each other's.
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

__all__ = ["scratch", "sockets", "sweep"]

_LOCK, _SOCKETS = ".lock", "sockets"
_YOUNG_S = 60.0  # a process may be suspended between creating a folder and locking it
# A socket's path has at most 107 bytes (unix(7); 103 on macOS); Spark's names for them take 42.
_LONGEST = 60
_PREFIX = "kpipe-"


@lru_cache
def scratch(home: Path) -> Path:
    """Return this process's scratch folder; the first call creates it."""
    folder = home / "spark" / uuid.uuid4().hex
    folder.mkdir(mode=0o700, parents=True)
    # Closed by the end of this process, in whatever way it ends. A file object would be closed earlier, with a ResourceWarning.
    lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder


@lru_cache
def sockets(home: Path) -> Path:
    """Return a private folder for this process's sockets, with a short enough path.

    This is the scratch folder if its path is short. Otherwise it is a temporary folder of the system, and a link in the
    scratch folder has both removed together. It has to be private: Spark's sockets require no secret, unlike its ports.
    """
    folder = scratch(home)
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    made = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
    (folder / _SOCKETS).symlink_to(made)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def sweep(home: Path) -> list[str]:
    """Remove the scratch folders of processes that have ended; return the folders' names."""
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
    """Remove the target of a link if `sockets` created it. The home is writable by others' programs: a link may lead anywhere."""
    if not link.is_symlink():
        return
    folder = Path(os.readlink(link))
    mine = folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(_PREFIX) and not folder.is_symlink()
    if mine and folder.is_dir() and folder.stat().st_uid == os.getuid():
        for file in folder.iterdir():
            if file.is_socket():
                file.unlink(missing_ok=True)
        with suppress(OSError):  # it contains other files
            folder.rmdir()
