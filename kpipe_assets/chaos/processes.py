"""Runs of a copy as processes of their own: started, watched, stopped and killed.

A fault is only sent to processes below a run that this process has started, by process id and start time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from kpipe.failpoints import VARIABLE

__all__ = ["ROLES", "Run", "below", "by_role", "environment", "kill_all", "runs_of", "signal_all", "stopped"]

#: Processes of a run that faults distinguish.
ROLES = ("run", "jvm", "worker", "program")
_POLL_S = 0.05
_GRACE_S = 60.0
# Of a process, and of a task (resources/spark/task/range_task.py).
_UNEXPECTED = ("Traceback (most recent call last)", "this is a defect of kpipe")
# A Spark that other pipelines use, another format of messages, faults of the caller.
_DROPPED = ("KPIPE_LOG", "KPIPE_SPARK", VARIABLE)
# Copies are not reported to systems of the user.
_DISABLED = {"OPENLINEAGE_DISABLED": "true", "OTEL_SDK_DISABLED": "true"}


def environment(environ: Mapping[str, str], home: Path, **more: str) -> dict[str, str]:
    """Return the variables of a run: those of this process, with another home, and without lineage, traces and services."""
    kept = {name: value for name, value in environ.items() if name not in _DROPPED}
    return {**kept, **_DISABLED, "KPIPE_HOME": str(home), **more}


class Run:
    """`kpipe run` of a copy, in a session of its own.

    Args:
        command: command line.
        environ: its variables.
        output: file for its output; errors go to the same name with `.err`.

    Attributes:
        went_on: whether it was still running when its fault was over.
    """

    went_on = False

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], output: Path) -> None:
        self.output, self.errors = output, output.with_suffix(".err")
        self.began = time.monotonic()
        with output.open("wb") as out, self.errors.open("wb") as err:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        self.pid = self._process.pid

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str], output: Path, fault: str = "") -> Run:
        """Start a run of a copy until it has caught up.

        Args:
            name: of the copy.
            environ: its variables (`environment`).
            output: see the class.
            fault: value of `KPIPE_FAULT`; empty: none.
        """
        more = {VARIABLE: fault} if fault else {}
        return cls([sys.executable, "-m", "kpipe_assets.cli", "run", name, "--json"], {**environ, **more}, output)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it ends or the condition is true; return False if neither happened in time."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and not until():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def lines(self) -> list[dict[str, Any]]:
        """Return the JSON lines that it has printed; an incomplete line is left out."""
        found = []
        for line in self.output.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def batches(self) -> list[dict[str, Any]]:
        """Return the lines of committed batches."""
        return [line for line in self.lines() if line.get("event") == "batch"]

    def message(self) -> str:
        """Return the last line that it wrote to stderr."""
        lines = [line for line in self.errors.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:500] if lines else ""

    def is_unexpected(self) -> bool:
        """Return whether it failed with an error that kpipe does not raise on purpose; an injected one does not count."""
        text = self.errors.read_text(errors="replace")
        return any(sign in text for sign in _UNEXPECTED) and f"{VARIABLE}: failed at" not in text

    def kill(self) -> list[psutil.Process]:
        """Kill it with all its processes, as a power cut would. Return processes that did not end. Nothing if it has ended."""
        if self.poll() is not None:  # its process id may belong to another process now
            return []
        processes = below(self.pid)
        signal_all(processes, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):  # processes that were started meanwhile
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # first: psutil would take its exit status
            self._process.wait(_GRACE_S)
        return kill_all(processes[1:])


def runs_of(prefix: str) -> list[psutil.Process]:
    """Return all processes of this machine that run a copy, by their command lines, also those of earlier calls.

    Args:
        prefix: beginning of the copies' names, which no other process has among its arguments.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if process.pid != os.getpid() and any(a == "run" and b.startswith(prefix) for a, b in pairwise(words)):
            found.append(process)
    return found


def below(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants, itself first; empty if it does not exist."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def by_role(pid: int) -> dict[str, list[psutil.Process]]:
    """Return the processes of a run by role. A worker on another machine is not among them."""
    found: dict[str, list[psutil.Process]] = {role: [] for role in ROLES}
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        found["run"] = [top]
        found["jvm"] = [one for one in top.children() if _is_java(one)]
        daemons = _children(found["jvm"])
        found["worker"] = _children(daemons)
        found["program"] = _children(_children(found["worker"]))  # a supervisor is in between (transforms/launch.py)
    return found


def _children(parents: Iterable[psutil.Process]) -> list[psutil.Process]:
    found = []
    for parent in parents:
        with suppress(psutil.NoSuchProcess):
            found += parent.children()
    return found


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "java" in process.name()
    return False


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_all(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Kill processes and their descendants; return those that did not end within a minute."""
    every: dict[int, psutil.Process] = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for one in (process, *process.children(recursive=True)):
                every[one.pid] = one
    signal_all(every.values(), signal.SIGKILL)
    _, left = psutil.wait_procs(list(every.values()), timeout=_GRACE_S)
    return [one for one in left if _is_alive(one)]


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it may end between the two questions
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def stopped(pid: int) -> psutil.Process | None:
    """Return a process of a run that has stopped itself (SIGSTOP): the run, or one below it; None: none has."""
    for process in below(pid):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                return process
    return None
