"""Files and folders in memory, and what of them a power cut leaves.

Each file and folder has two states: what programs see, and what was synced. `fsync` of a file makes its content durable, and
its names, as ext4, XFS and Btrfs do for a file that they have just created (POSIX demands less); `fsync` of a folder makes its
entries durable. A cut keeps what is durable. What it keeps of later changes is drawn: see Kept. Entries are kept in any order.
"""

from __future__ import annotations

import os
import random
import stat
import sys
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

PAGE = 4096


class Kept(Enum):
    """What a power cut keeps of a file's changes that were not synced."""

    NOTHING = "nothing"
    FIRST = "first"  # the first ones, up to any: as where a file grows, and the disk is usual
    ANY = "any"  # any of them: what POSIX allows, but for the next
    TORN = "torn"  # any page of them: a disk promises to write 512 or 4096 bytes as a whole, and not more


@dataclass(frozen=True)
class Cut:
    """A power cut.

    Attributes:
        kept: what it keeps of changes that were not synced.
        seed: of the draw.
    """

    kept: Kept = Kept.NOTHING
    seed: int = 0


@dataclass(eq=False)
class File:
    """Content as programs see it, the content as last synced, and the changes since."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    names: set[tuple[Folder, str]] = field(default_factory=set)
    times: tuple[int, int] = field(default_factory=lambda: (time.time_ns(), time.time_ns()))

    def write(self, offset: int, data: bytes) -> None:
        self.changes.append((offset, data))
        _change(self.data, offset, data)

    def truncate(self, length: int) -> None:
        self.changes.append((length, None))
        _change(self.data, length, None)

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.changes.clear()
        for folder, name in self.names:
            folder.keep(name)

    def after_cut(self, kept: Kept, draw: random.Random) -> bytes:
        """Return what is left of the content."""
        left = bytearray(self.durable)
        for offset, data in self._kept(kept, draw):
            _change(left, offset, data)
        return bytes(left)

    def _kept(self, kept: Kept, draw: random.Random) -> list[tuple[int, bytes | None]]:
        if kept is Kept.NOTHING:
            return []
        if kept is Kept.FIRST:
            return self.changes[: draw.randint(0, len(self.changes))]
        step = PAGE if kept is Kept.TORN else sys.maxsize
        changes = [(at + n, data and data[n : n + step]) for at, data in self.changes for n in range(0, len(data or b"-"), step)]
        return [change for change in changes if draw.random() < 0.5]


def _change(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write data at an offset; None: cut or extend the content to this length."""
    if data is None:
        del content[offset:]
    content.extend(bytes(max(0, offset - len(content))))
    if data is not None:
        content[offset : offset + len(data)] = data


@dataclass(eq=False)
class Link:
    """A symbolic link."""

    target: str
    times: tuple[int, int] = field(default_factory=lambda: (time.time_ns(), time.time_ns()))
    mode: int = stat.S_IFLNK | 0o777


@dataclass(eq=False)
class Folder:
    """Entries as programs see them, and as synced."""

    mode: int
    parent: Folder | None = None
    entries: dict[str, File | Folder | Link] = field(default_factory=dict)
    durable: dict[str, File | Folder | Link] = field(default_factory=dict)
    times: tuple[int, int] = field(default_factory=lambda: (time.time_ns(), time.time_ns()))

    def keep(self, name: str) -> None:
        """Make an entry durable, and the folder's own in those above it."""
        self.durable[name] = self.entries[name]
        if self.parent is not None:
            for own, entry in self.parent.entries.items():
                if entry is self and self.parent.durable.get(own) is not self:
                    self.parent.keep(own)

    def sync(self) -> None:
        self.durable = dict(self.entries)

    def after_cut(self, kept: Kept, draw: random.Random) -> dict[str, File | Folder | Link]:
        """Return the entries that are left."""
        left = {}
        for name in sorted(self.entries.keys() | self.durable.keys()):
            before, now = self.durable.get(name), self.entries.get(name)
            entry = before if before is now or kept is Kept.NOTHING else draw.choice((before, now))
            if entry is not None:
                left[name] = entry
        return left


def read_in(source: Path, parent: Folder | None) -> Folder:
    """Read a real folder; all of it is durable. Hard links become copies."""
    folder = Folder(source.stat().st_mode, parent)
    for path in source.iterdir():
        if path.is_symlink():
            folder.entries[path.name] = Link(os.readlink(path))
        elif path.is_dir():
            folder.entries[path.name] = read_in(path, folder)
        else:
            content = path.read_bytes()
            folder.entries[path.name] = File(path.stat().st_mode, bytearray(content), content, names={(folder, path.name)})
    folder.durable = dict(folder.entries)
    return folder


def write_out(folder: Folder, target: Path, kept: Kept, draw: random.Random) -> None:
    """Write what a cut leaves of a folder to a real one, which exists and is empty."""
    for name, entry in folder.after_cut(kept, draw).items():
        path = target / name
        if isinstance(entry, Folder):
            path.mkdir()
            write_out(entry, path, kept, draw)
            path.chmod(stat.S_IMODE(entry.mode))
        elif isinstance(entry, Link):
            path.symlink_to(entry.target)
        else:
            path.write_bytes(entry.after_cut(kept, draw))
            path.chmod(stat.S_IMODE(entry.mode))
