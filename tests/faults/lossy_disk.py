"""A mounted folder (FUSE) that forgets at a power cut what was not synced.

    python -m tests.faults.lossy_disk MOUNTPOINT SOURCE

It begins with the content of the folder SOURCE, as if all of that were synced. The attribute `user.cut` of the mountpoint
cuts the power after a number of changes. From then on every call fails with EIO, as processes die with the machine, and what
is left is written to another folder. lossy_files.py has the rules.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.faults.lossy_files import PAGE, Cut, File, Folder, Kept, Link, read_in, write_out

ATTRIBUTE = "user.cut"


def missing() -> str:
    """Return why no such folder can be mounted here, or an empty text."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"no FUSE -> make fuse ({error})"
    return ""


class Disk:
    """A folder on a lossy disk, served by a process of its own, until `cut` puts back what the disk has kept.

    Args:
        folder: exists; nothing uses it now.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._source, self._left = (folder.with_name(f"{folder.name}.{what}") for what in ("source", "left"))
        folder.rename(self._source)
        folder.mkdir()
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.lossy_disk", str(folder), str(self._source)])
        until = time.monotonic() + 300
        while not os.path.ismount(folder):
            assert self._process.poll() is None and time.monotonic() < until, "the folder was not mounted"
            time.sleep(0.01)

    def cut_after(self, changes: int, cut: Cut) -> None:
        """Let the disk fail after so many more changes, at once after none."""
        value = {"after": changes, "kept": cut.kept.value, "seed": cut.seed, "target": str(self._left)}
        os.setxattr(self._folder, ATTRIBUTE, json.dumps(value).encode())

    def changes(self) -> int:
        """Return the number of changes so far."""
        return int(os.getxattr(self._folder, ATTRIBUTE))

    def failed(self) -> bool:
        """Return whether the cut has happened."""
        return self._left.exists()

    def restart(self) -> None:
        """Put what the cut has left at the folder's path, on a usual disk. No process may use the folder any more."""
        self.unmount()
        self._folder.rmdir()
        self._left.rename(self._folder)
        shutil.rmtree(self._source)

    def unmount(self) -> None:
        """Unmount; the folder is empty then."""
        with suppress(OSError):
            self.changes()  # is answered behind what the disk is writing
        subprocess.run(["umount", "--lazy", str(self._folder)], check=False, capture_output=True)
        self._process.kill()  # it would serve until no mount namespace has the disk: tests of clusters make some
        self._process.wait(300)


@contextmanager
def lossy(folder: Path) -> Iterator[Disk]:
    """Put a folder on a lossy disk."""
    disk = Disk(folder)
    try:
        yield disk
    finally:
        disk.unmount()


def _serve(mountpoint: str, source: Path) -> None:
    from mfusepy import FUSE, FuseOSError, Operations

    class Served(Operations):  # type: ignore[misc]
        use_ns = True
        flag_nopath = flag_nullpath_ok = True

        def __init__(self) -> None:
            self.root = read_in(source, None)
            self.handles: dict[int, Any] = {}
            self.last = 0
            self.changes = 0
            self.cut: tuple[int, Cut, Path] | None = None
            self.off = False

        # The cut

        def changed(self) -> None:
            """Count a change; every operation that has one calls it first."""
            self.alive()
            if self.cut and self.changes >= self.cut[0]:
                self.power_off()
            self.changes += 1

        def alive(self) -> None:
            if self.off:
                raise FuseOSError(errno.EIO)

        def power_off(self) -> None:
            assert self.cut is not None
            _, cut, target = self.cut
            target.mkdir()
            write_out(self.root, target, cut.kept, random.Random(cut.seed))
            self.off = True
            raise FuseOSError(errno.EIO)

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            if path != "/" or name != ATTRIBUTE:
                raise FuseOSError(errno.ENOTSUP)
            asked = json.loads(value)
            self.cut = (self.changes + asked["after"], Cut(Kept(asked["kept"]), asked["seed"]), Path(asked["target"]))
            if not asked["after"]:
                with suppress(FuseOSError):
                    self.power_off()
            return 0

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            if path != "/" or name != ATTRIBUTE:
                raise FuseOSError(errno.ENODATA)
            return str(self.changes).encode()

        # Names

        def at(self, path: str) -> Any:
            self.alive()
            node: Any = self.root
            for name in path.split("/"):
                if name:
                    node = node.entries.get(name) if isinstance(node, Folder) else None
            if node is None:
                raise FuseOSError(errno.ENOENT)
            return node

        def place(self, path: str) -> tuple[Folder, str]:
            parent, _, name = path.rpartition("/")
            return self.at(parent), name

        def put(self, path: str, node: Any) -> None:
            folder, name = self.place(path)
            self.changed()
            folder.entries[name] = node
            if isinstance(node, File):
                node.names.add((folder, name))
            elif isinstance(node, Folder):
                node.parent = folder

        def take(self, path: str) -> Any:
            folder, name = self.place(path)
            node = folder.entries.pop(name)
            if isinstance(node, File):
                node.names.discard((folder, name))
            return node

        def mkdir(self, path: str, mode: int) -> int:
            self.put(path, Folder(stat.S_IFDIR | mode))
            return 0

        def symlink(self, target: str, source: str) -> int:
            self.put(target, Link(source))
            return 0

        def link(self, target: str, source: str) -> int:
            self.put(target, self.at(source))
            return 0

        def readlink(self, path: str) -> str:
            return str(self.at(path).target)

        def unlink(self, path: str) -> int:
            self.at(path)
            self.changed()
            self.take(path)
            return 0

        def rmdir(self, path: str) -> int:
            if self.at(path).entries:
                raise FuseOSError(errno.ENOTEMPTY)
            self.changed()
            self.take(path)
            return 0

        def rename(self, old: str, new: str) -> int:
            node = self.at(old)
            folder, name = self.place(new)
            there = folder.entries.get(name)
            if isinstance(there, Folder) and there.entries:
                raise FuseOSError(errno.ENOTEMPTY)
            self.changed()
            if there is node:
                return 0
            if there is not None:
                self.take(new)
            self.take(old)
            self.changes -= 1  # one change, not two
            self.put(new, node)
            return 0

        def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
            self.alive()
            folder = self.handles[fh]
            shown = {".": folder, "..": folder.parent or folder, **folder.entries}
            return [(name, {"st_ino": id(node), "st_mode": node.mode}, 0) for name, node in shown.items()]

        # Content

        def opened(self, node: File | Folder) -> int:
            self.last += 1
            self.handles[self.last] = node
            return self.last

        def opendir(self, path: str) -> int:
            return self.opened(self.at(path))

        def releasedir(self, path: str, fh: int) -> int:
            return self.release(path, fh)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            file = File(stat.S_IFREG | mode)
            self.put(path, file)
            return self.opened(file)

        def open(self, path: str, flags: int) -> int:
            file = self.at(path)
            if flags & os.O_TRUNC:
                self.changed()
                file.truncate(0)
            return self.opened(file)

        def release(self, path: str, fh: int) -> int:
            self.handles.pop(fh, None)
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            self.alive()
            return bytes(self.handles[fh].data[offset : offset + size])

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            self.changed()
            file = self.handles[fh]
            file.write(offset, data)
            file.times = (file.times[0], time.time_ns())
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            file = self.handles[fh] if fh else self.at(path)
            self.changed()
            file.truncate(length)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            self.changed()
            self.handles[fh].sync()
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            self.changed()
            self.handles[fh].sync()
            return 0

        # Attributes, which a cut leaves as they are

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            self.alive()
            node = self.handles[fh] if fh else self.at(path)
            size = len(node.data) if isinstance(node, File) else len(node.target) if isinstance(node, Link) else 0
            links = len(node.names) if isinstance(node, File) else 2
            own = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_ino": id(node)}
            blocks = -(-size // 512)
            return own | {"st_mode": node.mode, "st_size": size, "st_nlink": links, "st_blocks": blocks,
                          "st_atime": node.times[0], "st_mtime": node.times[1], "st_ctime": node.times[1]}  # fmt: skip

        def chmod(self, path: str, mode: int, fh: int | None = None) -> int:
            node = self.handles[fh] if fh else self.at(path)
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            self.at(path)
            return 0

        def utimens(self, path: str, times: Any = None, fh: int | None = None) -> int:
            (self.handles[fh] if fh else self.at(path)).times = (time.time_ns(), time.time_ns())
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            free = 1 << 20
            return {"f_bsize": PAGE, "f_frsize": PAGE, "f_blocks": free, "f_bfree": free, "f_bavail": free, "f_namemax": 255}

    class Handles(FUSE):  # type: ignore[misc]
        """mfusepy 3.1.1 has only a path for these, and an open file without a name has none."""

        def truncate_fuse_3(self, path: Any, length: int, info: Any) -> int:
            return self.operations.truncate(path and path.decode(), length, info.contents.fh if info else None)

        def chmod_fuse_3(self, path: Any, mode: int, info: Any) -> int:
            return self.operations.chmod(path and path.decode(), mode, info.contents.fh if info else None)

        def utimens_fuse_3(self, path: Any, times: Any, info: Any) -> int:
            return self.operations.utimens(path and path.decode(), None, info.contents.fh if info else None)

    with suppress(RuntimeError):  # another process unmounts it at the end
        Handles(Served(), mountpoint, foreground=True, nothreads=True, hard_remove=True, use_ino=True, default_permissions=True)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
