"""Folders of immutable files: written under a temporary name, synced, then renamed or linked atomically."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from kpipe.errors import DestinationError
from resources.durable_files import make_folder, sync

__all__ = ["Folder", "LocalFolder"]

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")


class Folder(Protocol):
    """Immutable files below one location, by relative names of safe characters. Local (`LocalFolder`) or in an object store.

    Every failure raises `DestinationError`.
    """

    @property
    def place(self) -> str:
        """Path, or prefix of object names. Contains no secret."""

    def below(self, name: str) -> Folder:
        """Return a subfolder."""

    def read(self, name: str) -> bytes | None:
        """Read a file's content; None: it does not exist."""

    def opened(self, name: str) -> BinaryIO:
        """Open a file for random reads."""

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Return size in bytes, modification time in ms since 1970, and an identity of the content; None: no such file."""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""

    def claim(self, name: str, data: bytes) -> bool:
        """Create a file unless it exists; exactly one caller gets True. All callers must pass different bytes."""

    def take(self, file: str, name: str) -> None:
        """Give a finished, durable file a name here by link or server-side copy; `settle` makes the name durable."""

    def settle(self, name: str = "") -> None:
        """Make the names in a folder durable."""

    def names(self, name: str) -> list[str]:
        """List the names in a folder, sorted; empty where the folder does not exist."""

    def temporary(self, name: str) -> list[str]:
        """List the names of temporary files in a folder: those of processes that are writing, or were killed."""

    def remove(self, name: str) -> None:
        """Delete a file without references; best effort."""

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """Yield a temporary path on a local disk; the file is deleted afterwards."""
        yield Path()

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """Yield a local folder with those of the files that exist, and their paths by name."""
        yield Path(), {}

    def options(self) -> dict[str, str] | None:
        """Options with which a library opens this location; may contain secrets."""

    def hide(self, text: str) -> str:
        """Mask the secrets of `options` in a library's text."""


def _temporary() -> str:
    return f".{uuid.uuid4().hex}.tmp"


def _file(path: Path) -> BinaryIO:
    """Open a regular file. A pipe or a device could wait, or never end.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(number, "rb")


class LocalFolder:
    """A folder on a local disk; see `Folder`.

    Args:
        path: the folder; created with the first file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def place(self) -> str:
        """The path."""
        return str(self.path)

    def below(self, name: str) -> LocalFolder:
        """Return a subfolder."""
        return LocalFolder(self.path / name)

    def opened(self, name: str) -> BinaryIO:
        """Open a file for random reads.

        Raises:
            DestinationError: the file cannot be read.
        """
        try:
            return _file(self.path / name)
        except OSError as error:
            raise self._failed(name, error) from error

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Return size, modification time and identity of a file; see `Folder`."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns // 1_000_000, f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """Yield a temporary path; the file is deleted afterwards."""
        make_folder(self.path)
        path = self.path / _temporary()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """Yield the folder itself, and the paths of those files that exist."""
        yield self.path, {name: self.path / name for name in names if (self.path / name).is_file()}

    def options(self) -> None:
        """Return None: a path needs no options."""

    def hide(self, text: str) -> str:
        """Return the text: a path has no secrets."""
        return text

    def read(self, name: str) -> bytes | None:
        """Read a file's content; None: it does not exist.

        Raises:
            DestinationError: the file cannot be read.
        """
        try:
            with _file(self.path / name) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(name, error) from error

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file.

        Raises:
            DestinationError: the file cannot be written.
        """
        try:
            aside = self._whole(name, data)
            aside.replace(self.path / name)
            sync(self.path / Path(name).parent)
        except OSError as error:
            raise self._failed(name, error) from error

    def claim(self, name: str, data: bytes) -> bool:
        """Create a file unless it exists; exactly one caller gets True.

        Raises:
            DestinationError: the file cannot be written.
        """
        aside = None
        try:
            aside = self._whole(name, data)
            os.link(aside, self.path / name)  # fails if the name exists
            sync(self.path / Path(name).parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed(name, error) from error
        finally:
            if aside is not None:
                with suppress(OSError):
                    aside.unlink()
        return True

    def take(self, file: str, name: str) -> None:
        """Give a finished, durable file a name here: a hard link, or a copy where links are not possible.

        `settle` makes the name durable.

        Raises:
            DestinationError: the file cannot be written.
        """
        try:
            goal = self.path / name
            make_folder(goal.parent)
            aside = goal.with_name(_temporary())
            try:
                os.link(file, aside)
            except OSError:  # another file system, or a file system without hard links
                shutil.copyfile(file, aside)
                with aside.open("rb") as copy:
                    os.fsync(copy.fileno())
            aside.replace(goal)
            with suppress(FileNotFoundError):  # rename(2) between links of one file does nothing
                aside.unlink()
        except OSError as error:
            raise self._failed(name, error) from error

    def settle(self, name: str = "") -> None:
        """Make the names in a folder durable.

        Raises:
            DestinationError: fsync failed.
        """
        try:
            sync(self.path / name)
        except OSError as error:
            raise self._failed(name, error) from error

    def names(self, name: str) -> list[str]:
        """List the names in a folder, sorted; empty where the folder does not exist."""
        return sorted(entry for entry in self._listed(name) if not entry.startswith("."))

    def temporary(self, name: str) -> list[str]:
        """List the names of temporary files in a folder; see `Folder`."""
        return [entry for entry in self._listed(name) if _TEMPORARY.fullmatch(entry)]

    def _listed(self, name: str) -> list[str]:
        try:
            return os.listdir(self.path / name)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed(name, error) from error

    def remove(self, name: str) -> None:
        """Delete a file without references; best effort."""
        with suppress(OSError):
            (self.path / name).unlink()

    def _whole(self, name: str, data: bytes) -> Path:
        goal = self.path / name
        make_folder(goal.parent)
        aside = goal.with_name(_temporary())
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return aside

    def _failed(self, name: str, error: OSError) -> DestinationError:
        return DestinationError(
            f"{self.path / name}: {error.strerror or error}", "free disk space or grant access, then run it again"
        )
