"""A process that outlives its starter, and how any later process recognises it.

A pid alone may have been given to somebody else since. So the record also holds an identity: boot id and start tick
on Linux (which no change of the clock moves), else the start time.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

__all__ = ["Record", "is_alive", "spawn", "terminate"]

TERM_SECONDS = 20.0
"""Between SIGTERM and SIGKILL: an idle Kafka stops in 0.5 s, one with many dirty partitions takes several."""

KILL_SECONDS = 10.0

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started and may have to reap; the broker of a dead parent is reaped by init."""


@dataclass(frozen=True)
class Record:
    """What `broker.json` holds: the last broker of a home, running or not.

    Attributes:
        pid: None when it was stopped.
        identity: tells that process from a later one with the same pid.
        kind: `kafka` or `mock`.
        version: of Kafka, or of librdkafka for the mock.
        port: TCP port on 127.0.0.1; None when the mock has not told it yet.
        cluster_id: what the broker must answer with; None for the mock.
    """

    pid: int | None
    identity: str | None
    kind: str
    version: str
    port: int | None
    cluster_id: str | None = None

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """The record, or None if there is none that can be read (a crash before the first one was complete)."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        scratch.replace(path)


def identity(pid: int) -> str | None:
    """What stays the same as long as this process lives and never comes again; None if it is gone."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        return None
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        with suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            # The name in parentheses may hold anything; 20 fields after it stands the start, in ticks since boot.
            return f"{boot}/{stat.rpartition(')')[2].split()[19]}"
        return f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None


def is_alive(record: Record) -> bool:
    """Whether the recorded process still runs (and is that process)."""
    return record.pid is not None and record.identity is not None and identity(record.pid) == record.identity


def spawn(command: Sequence[str], folder: Path, output: Path, environment: dict[str, str]) -> tuple[int, str | None]:
    """Start it in a session of its own, with no file of the caller's; stdout and stderr go to `output`, emptied first.

    Returns:
        pid and identity; the identity is None when it died at once.
    """
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
        )
    _children[process.pid] = process
    return process.pid, identity(process.pid)


def terminate(record: Record) -> None:
    """SIGTERM, wait, SIGKILL, wait; returns when the process is gone. Nothing happens if it is not ours."""
    for ask, seconds in ((psutil.Process.terminate, TERM_SECONDS), (psutil.Process.kill, KILL_SECONDS)):
        if record.pid is None or not is_alive(record):
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(record.pid)
            ask(process)
            with suppress(psutil.TimeoutExpired):
                process.wait(seconds)
