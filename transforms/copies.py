"""Copies of programs, made once, from exactly the bytes that the driver has checked, in a folder that only kpipe can write.

    programs/<sha256>/<name>      the program, or the archive's files

If a program is changed, moved or replaced while a pipeline runs, nothing changes: the next run uses the new one.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

from kpipe.errors import TransformFailed
from transforms import archive as archives
from transforms.preflight import VERSION_CHARACTERS, sha256_of
from transforms.stderr import escape

__all__ = ["keep"]


def keep(path: Path, sha256: str, into: Path, *, archive: bool = False, where: str = "") -> Path:
    """Return the copy of a program, or the folder of an unpacked archive; create it if missing, also with concurrent callers.

    Args:
        path: the shipped file.
        sha256: hash of its content, as checked by the driver.
        into: folder of all copies, writable for its owner only; created if missing.
        archive: whether it is an archive.
        where: coordinates for the message.

    Raises:
        TransformFailed: the file is missing or differs from the checked one, or the folder is not private.
        InvalidPipeline: the archive cannot be unpacked.
    """
    _check_private(into)
    folder = into / sha256
    copy = folder if archive else folder / _name(path, sha256)
    if copy.exists() and _unchanged(copy, sha256):
        return copy
    fresh = Path(tempfile.mkdtemp(prefix=".copying-", dir=into))
    try:
        try:
            file = path.open("rb")
        except OSError as error:
            raise _other(path, sha256, error.strerror or "unreadable", where) from error
        with file:
            if archive:
                if (found := sha256_of(file)) != sha256:
                    raise _other(path, sha256, found, where)
                file.seek(0)
                archives.unpack(path, file, fresh)
            else:
                target = fresh / copy.name
                with target.open("xb") as out:
                    shutil.copyfileobj(file, out, 1 << 20)
                target.chmod(0o500)
                with target.open("rb") as written:  # the copy is run, so the copy must have this hash
                    if (found := sha256_of(written)) != sha256:
                        raise _other(path, sha256, found, where)
        _put(fresh, folder, replace=not archive)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return copy


def _name(path: Path, sha256: str) -> str:
    """Return the name without the hash before it, for a file that was shipped under a name of its own."""
    return path.name.removeprefix(f"{sha256[:VERSION_CHARACTERS]}-")


def _put(fresh: Path, folder: Path, *, replace: bool) -> None:
    try:
        fresh.rename(folder)
    except OSError:  # another process was faster
        if not folder.is_dir():
            raise
        if replace:
            for file in fresh.iterdir():
                file.rename(folder / file.name)


def _unchanged(copy: Path, sha256: str) -> bool:
    """Return whether a copy has that hash. Hashing it for each range would cost more than its start, so the result is cached.

    Any change or replacement of a file changes its inode or its ctime, which no program can set.
    """
    if copy.is_dir():
        return True
    found = copy.stat()
    return _hashed(copy, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)) == sha256


@lru_cache(maxsize=64)
def _hashed(copy: Path, _state: tuple[int, ...]) -> str:
    with copy.open("rb") as file:
        return sha256_of(file)


def _check_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise TransformFailed(
            f"programs are not run from {folder}: it is a link, or other users can write it",
            f"remove it, or: chown {os.geteuid()} {folder} && chmod 700 {folder}",
        )


def _other(path: Path, sha256: str, found: str, where: str) -> TransformFailed:
    return TransformFailed(
        f"transform {escape(_name(path, sha256))}{f' ({where})' if where else ''}: the file on this worker is not the checked"
        f" file (expected sha256 {sha256[:VERSION_CHARACTERS]}, found {found[:VERSION_CHARACTERS]})",
        "start the pipeline again, so that the program is checked and shipped again",
    )
