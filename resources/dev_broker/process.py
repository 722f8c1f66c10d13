"""Run a process that outlives its starter, and let later processes recognise it.

A pid alone is not enough, because the system reuses pids. So the record also contains an identity: boot id and start tick
on Linux (independent of the clock), otherwise the start time.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

__all__ = ["Record", "ending", "is_alive", "spawn", "terminate"]

TERM_SECONDS = 20.0
"""Between SIGTERM and SIGKILL: an idle Kafka stops in 0.5 s, one with many dirty partitions takes several."""

KILL_SECONDS = 10.0

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started and may have to reap; init reaps the broker of a dead parent."""


@dataclass(frozen=True)
class Record:
    """Content of `broker.json`: the last broker of a home, running or not.

    Attributes:
        pid: None when it was stopped.
        identity: distinguishes that process from a later one with the same pid.
        version: of Kafka.
        port: TCP port on 127.0.0.1.
        cluster_id: expected from the broker; None: not checked.
    """

    pid: int | None
    identity: str | None
    version: str
    port: int
    cluster_id: str | None = None

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """Read the record; None if it does not exist or is incomplete (a crash during the first start)."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: content[field.name] for field in fields(cls)})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        scratch.replace(path)


def identity(pid: int) -> str | None:
    """Return a value that is unique to this process and constant while it lives; None if it has ended."""
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
            # The name in parentheses may contain any character. The start, in ticks since boot, is the 20th field after it.
            return f"{boot}/{stat.rpartition(')')[2].split()[19]}"
        return f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None


def is_alive(record: Record) -> bool:
    """Return True if the recorded process still runs."""
    return record.pid is not None and record.identity is not None and identity(record.pid) == record.identity


def spawn(command: Sequence[str], folder: Path, output: Path, environment: dict[str, str]) -> tuple[int, str | None]:
    """Start a process in a session of its own, without the caller's files; stdout and stderr go to `output`, truncated first.

    Returns:
        Process id and identity; the identity is None if it ended at once.
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


def ending(record: Record) -> str:
    """Return how a process that this one started has ended; empty: unknown."""
    child = _children.get(record.pid) if record.pid is not None else None
    if child is None or child.poll() is None:
        return ""
    return f"exit status {child.returncode}" if child.returncode >= 0 else f"ended by signal {-child.returncode}"


def terminate(record: Record) -> None:
    """Send SIGTERM, later SIGKILL, and wait until the process has ended. Do nothing if it is not the recorded process."""
    for ask, seconds in ((psutil.Process.terminate, TERM_SECONDS), (psutil.Process.kill, KILL_SECONDS)):
        if record.pid is None or not is_alive(record):
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(record.pid)
            ask(process)
            with suppress(psutil.TimeoutExpired):
                process.wait(seconds)
