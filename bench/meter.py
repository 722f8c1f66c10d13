"""Measure CPU seconds and memory of a process with its descendants, from /proc (Linux).

CPU: a process's own time, and that of its ended children that were waited for. Summed over the living tree, this includes a
`cat` that ends between two samples. Memory: the sum of RSS, so shared pages count once for each process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Meter", "cpu_seconds", "lost_cpu_seconds"]

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_SIGCHLD = 1 << signal.SIGCHLD - 1  # in a mask of signals


class _Process(NamedTuple):
    pid: int
    parent: int
    own_cpu_s: float
    cpu_s: float
    rss: int


def _look(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None  # it has ended
    fields = text[text.rindex(")") + 2 :].split()
    own, all_s = (sum(map(int, fields[11:end])) / _TICKS for end in (13, 15))
    return _Process(pid, int(fields[1]), own, all_s, int(fields[21]) * _PAGE)


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


def lost_cpu_seconds(root: int) -> dict[int, float]:
    """Return CPU seconds so far of descendants whose parent ignores SIGCHLD, by process.

    PySpark's daemon does so: the kernel drops the times of its children when they end.
    """
    tree = {process.pid: process for process in _tree([root])}
    deaf = {pid for pid in {process.parent for process in tree.values()} & tree.keys() if _ignores_sigchld(pid)}
    return {process.pid: process.own_cpu_s for process in tree.values() if process.parent in deaf}


def _ignores_sigchld(pid: int) -> bool:
    try:
        mask = Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    except (OSError, IndexError):  # it has ended
        return False
    return bool(int(mask, 16) & _SIGCHLD)


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
        self._times: list[float] = []
        self._spent: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._first = self._last = cpu_seconds(*self._roots)
        self._note()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()
        self.cpu_s = self._last - self._first

    def cpu_until(self, moment: float) -> float:
        """Return the CPU seconds spent inside until the first look after that moment, which is one of `time.time`."""
        return self._spent[min(bisect_left(self._times, moment), len(self._spent) - 1)]

    def _note(self) -> None:
        self._times.append(time.time())
        self._spent.append(self._last - self._first)

    def _watch(self) -> None:
        while not self._done.wait(self._period):
            self._sample()

    def _sample(self) -> None:
        tree = _tree(self._roots)
        # A process that leaves the tree takes its time with it: the sum must never fall.
        self._last = max(self._last, sum(process.cpu_s for process in tree))
        self._note()
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
