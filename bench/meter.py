"""Measure CPU seconds and memory of a process with its descendants, from /proc (Linux).

CPU: a process's own time, and that of its ended children that were waited for. Summed over the living tree, this includes a
`cat` that ends between two samples. Memory: the sum of RSS, so shared pages count once for each process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Meter", "cpu_seconds"]

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    pid: int
    parent: int
    cpu_s: float
    rss: int


def _look(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None  # it has ended
    fields = text[text.rindex(")") + 2 :].split()
    return _Process(pid, int(fields[1]), sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE)


def _tree(roots: Iterable[int]) -> list[_Process]:
    children: dict[int, list[_Process]] = {}
    known: dict[int, _Process] = {}
    for entry in os.scandir("/proc"):
        process = _look(int(entry.name)) if entry.name.isdigit() else None
        if process is not None:
            known[process.pid] = process
            children.setdefault(process.parent, []).append(process)
    found = [known[root] for root in roots if root in known]
    for process in found:  # grows while it is walked
        found += children.get(process.pid, [])
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _is_daemon(command: str) -> bool:
    """Return whether it is the daemon of Spark's Python workers, or was forked from it: kpipe's, or PySpark's own."""
    return "python_daemon" in command or "pyspark.daemon" in command


def cpu_seconds(*roots: int) -> float:
    """Return the CPU seconds of these processes and their descendants since their start."""
    return sum(process.cpu_s for process in _tree(roots))


class Meter:
    """While inside, looks at a process tree every `period_s`.

    Attributes:
        cpu_s: spent inside. If the tree is gone at the end: at the last look before.
        peak_mb: largest sum of RSS, in MB (10^6 bytes).
        roles: largest RSS of one process in MB by what it is: `driver` (the root), `jvm`, `worker` (of Spark's Python
            workers) or `other`.
    """

    def __init__(self, *roots: int, period_s: float = 0.1) -> None:
        self.cpu_s = self.peak_mb = 0.0
        self.roles: dict[str, float] = {}
        self._roots, self._period = roots, period_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._first = self._last = cpu_seconds(*self._roots)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()
        self.cpu_s = self._last - self._first

    def _watch(self) -> None:
        while not self._done.wait(self._period):
            self._sample()

    def _sample(self) -> None:
        tree = _tree(self._roots)
        # A process that leaves the tree takes its time with it: the sum must never fall.
        self._last = max(self._last, sum(process.cpu_s for process in tree))
        self.peak_mb = max(self.peak_mb, sum(process.rss for process in tree) / 1e6)
        for process in tree:
            role = self._role(process)
            self.roles[role] = max(self.roles.get(role, 0), process.rss / 1e6)

    def _role(self, process: _Process) -> str:
        if process.pid in self._roots:
            return "driver"
        command = _command(process.pid)  # asked each time: a shell becomes java
        if command.split("\0")[0].rpartition("/")[2] == "java":
            return "jvm"
        return "worker" if _is_daemon(command) and _is_daemon(_command(process.parent)) else "other"
