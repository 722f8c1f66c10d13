"""Replace files atomically, and make names durable.

A power cut loses a file that was synced if the folder that names it was not (fsync(2)).
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path

from kpipe.errors import KpipeError

__all__ = ["make_folder", "replace_text", "sync", "sync_file_system"]


def sync(path: Path) -> None:
    """Make the names in a folder, or the content of a finished file, durable.

    Raises:
        OSError: it does not exist, or fsync failed.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: Path) -> None:
    """Make everything durable that was written to the file system of a path: syncfs(2), or sync(2) where it is missing.

    For files that a library has written and not synced. It takes a fraction of a millisecond where nothing else is written.

    Raises:
        OSError: the path does not exist, or the disk failed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        os.sync()
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        if call(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and those above it where missing, and make each of their names durable.

    Args:
        path: the folder; nothing happens if it exists.
        mode: of the folder; those above it have the usual mode.

    Raises:
        OSError: a folder cannot be created or synced.
    """
    missing = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for folder in reversed(missing):
        folder.mkdir(mode if folder == path else 0o777, exist_ok=True)
        sync(folder.parent)


def replace_text(file: Path, text: str) -> None:
    """Write the file atomically.

    Raises:
        KpipeError: the disk is full, or the file cannot be written.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".new-")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise KpipeError(
            f"cannot write {file}: {error.strerror or error}", "free space or set KPIPE_HOME to a larger disk, then run it again"
        ) from error
