"""Read how much memory this process can use: that of the machine, or the smallest limit of its cgroups (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["available_bytes"]

# Where cgroup hierarchies are mounted (systemd, Docker, Kubernetes). The limit's file differs by version.
_V2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_V1 = ("sys/fs/cgroup/memory",)
_V2_FILE, _V1_FILE = "memory.max", "memory.limit_in_bytes"


def available_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of the machine's memory, or the smallest memory limit of this process's cgroups and their parents.

    Args:
        root: folder with `proc` and `sys`.
    """
    return min((_machine_bytes(), *_limits(root)))


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root: Path) -> Iterator[int]:
    for path, mounts, name in _groups(root):
        for mount in mounts:
            # A container may see its path on the host, which is not below its own mount: the mount itself has its limit.
            for folder in (path, *path.parents):
                limit = _number(root / mount / folder / name)
                if limit is not None:
                    yield limit


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, ...], str]]:
    """Yield the cgroups of this process that can limit memory: path below the mount, mounts, and name of the limit's file."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # A path with `..` leads out of the namespace, where nothing can be read.
        inside = Path() if ".." in Path(path).parts else Path(path.lstrip("/"))
        if number == "0" and not controllers:
            yield inside, _V2, _V2_FILE
        elif "memory" in controllers.split(","):
            yield inside, _V1, _V1_FILE


def _number(file: Path) -> int | None:
    """Return the limit in a file; None if there is no limit (`max`) or no file."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
