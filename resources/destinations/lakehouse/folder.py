"""Folders of files that are written once: whole, durable, and never changed. Nothing is in them before they have their name."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from kpipe.errors import DestinationError

__all__ = ["Folder", "LocalFolder", "sync"]


class Folder(Protocol):
    """Files below one place, by relative names made of ids only. On a disk (`LocalFolder`), or in an object store.

    Whatever fails raises `DestinationError`.
    """

    @property
    def place(self) -> str:
        """Where it is: a path, or the beginning of objects' names. No secret."""

    def below(self, name: str) -> Folder:
        """A folder in it."""

    def read(self, name: str) -> bytes | None:
        """What the file holds; None when there is none."""

    def opened(self, name: str) -> BinaryIO:
        """The file, to be read here and there."""

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Bytes, ms since 1970, and what tells the file from another one that has taken its name; None when there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, or other bytes in its place."""

    def claim(self, name: str, data: bytes) -> bool:
        """Put a file there unless there is one: of any number of callers one is told True. No two of them have the same bytes."""

    def take(self, file: str, name: str) -> None:
        """Give a finished, durable file another name here, without a way through this process; `settle` makes it durable."""

    def settle(self, name: str = "") -> None:
        """Make the names in a folder durable."""

    def names(self, name: str) -> list[str]:
        """Names in a folder, sorted; none where there is no such folder."""

    def remove(self, name: str) -> None:
        """Remove a file that nobody refers to any more; that it stays does no harm."""

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """A name on this machine's disks for a file that is being made, and gone afterwards."""
        yield Path()

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """A folder on this machine's disks that has those of the files that are there, and their paths by name."""
        yield Path(), {}

    def options(self) -> dict[str, str] | None:
        """What a library has to be told to find its place; may hold secrets."""


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LocalFolder:
    """A folder on this machine's disks; see `Folder`.

    Args:
        path: the folder; made with the first file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def place(self) -> str:
        """The path."""
        return str(self.path)

    def below(self, name: str) -> LocalFolder:
        """A folder in it."""
        return LocalFolder(self.path / name)

    def opened(self, name: str) -> BinaryIO:
        """The file, to be read here and there.

        Raises:
            DestinationError: it cannot be read.
        """
        try:
            return (self.path / name).open("rb")
        except OSError as error:
            raise self._failed(name, error) from error

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Bytes, ms since 1970, and what tells the file from others; see `Folder`."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns // 1_000_000, f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """A name for a file that is being made, and gone afterwards."""
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / f".{uuid.uuid4().hex}.tmp"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """The folder, and those of the files that are there."""
        yield self.path, {name: self.path / name for name in names if (self.path / name).is_file()}

    def options(self) -> None:
        """Nothing: a path is enough."""

    def read(self, name: str) -> bytes | None:
        """What the file holds; None when there is none.

        Raises:
            DestinationError: it cannot be read.
        """
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(name, error) from error

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, or other bytes in its place.

        Raises:
            DestinationError: the disk refuses.
        """
        try:
            aside = self._whole(name, data)
            aside.replace(self.path / name)
            sync(self.path / Path(name).parent)
        except OSError as error:
            raise self._failed(name, error) from error

    def claim(self, name: str, data: bytes) -> bool:
        """Put a file there unless there is one: of any number of callers one is told True.

        Raises:
            DestinationError: the disk refuses.
        """
        aside = None
        try:
            aside = self._whole(name, data)
            os.link(aside, self.path / name)  # fails where the name is taken, whoever took it
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
        """Give a finished, durable file another name here: a hard link, or a copy where none can be.

        `settle` makes it durable.

        Raises:
            DestinationError: the disk refuses.
        """
        try:
            goal = self.path / name
            goal.parent.mkdir(parents=True, exist_ok=True)
            aside = goal.with_name(f".{uuid.uuid4().hex}.tmp")
            try:
                os.link(file, aside)
            except OSError:  # another file system, or one without links
                shutil.copyfile(file, aside)
                with aside.open("rb") as copy:
                    os.fsync(copy.fileno())
            aside.replace(goal)
            with suppress(FileNotFoundError):  # to rename a link over another one of the same file does nothing
                aside.unlink()
        except OSError as error:
            raise self._failed(name, error) from error

    def settle(self, name: str = "") -> None:
        """Make the names in a folder durable.

        Raises:
            DestinationError: the disk refuses.
        """
        try:
            sync(self.path / name)
        except OSError as error:
            raise self._failed(name, error) from error

    def names(self, name: str) -> list[str]:
        """Names in a folder, sorted; none where there is no such folder."""
        try:
            return sorted(entry for entry in os.listdir(self.path / name) if not entry.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed(name, error) from error

    def remove(self, name: str) -> None:
        """Remove a file that nobody refers to any more; that it stays does no harm."""
        with suppress(OSError):
            (self.path / name).unlink()

    def _whole(self, name: str, data: bytes) -> Path:
        goal = self.path / name
        if not goal.parent.is_dir():
            goal.parent.mkdir(parents=True, exist_ok=True)
            sync(goal.parent.parent)
        aside = goal.with_name(f".{uuid.uuid4().hex}.tmp")
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return aside

    def _failed(self, name: str, error: OSError) -> DestinationError:
        return DestinationError(f"{self.path / name}: {error.strerror or error}", "free space or give access; then run it again")
