"""The program as workers run it, with its limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


def search_path() -> str:
    """Return the PATH of programs, with the folder of kpipe's Python first, so that `#!/usr/bin/env python3` finds one."""
    return os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])


@dataclass(frozen=True)
class Limits:
    """Limits of the program and its descendants; None leaves the worker's own. A core file is never written.

    Attributes:
        tree_processes: maximum number of processes at once. Checked ten times a second; beyond it, all are killed.
        tree_bytes: maximum memory of all of them (resident, shared pages counted for each); checked likewise.
        address_space_bytes: RLIMIT_AS, per process.
        cpu_s: RLIMIT_CPU, per process; seconds of processor time.
        open_files: RLIMIT_NOFILE, per process.
        processes: RLIMIT_NPROC, counted by the kernel per user, over all of the user's processes. Not applied to root.
        file_bytes: RLIMIT_FSIZE, largest file that it may write. Pipes are not files.
    """

    tree_processes: int = 512
    tree_bytes: int | None = None
    address_space_bytes: int | None = None
    cpu_s: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None

    def options(self) -> dict[str, int]:
        """Return the limits that are set, with launch.py's names: for the kernel's limits, those of the `resource` module."""
        wanted = {
            "most_processes": self.tree_processes,
            "most_memory": self.tree_bytes,
            "rlimit_core": 0,
            "rlimit_as": self.address_space_bytes,
            "rlimit_cpu": self.cpu_s,
            "rlimit_nofile": self.open_files,
            "rlimit_nproc": self.processes,
            "rlimit_fsize": self.file_bytes,
        }
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True)
class Program:
    """An executable with the settings of all its runs. Can be pickled, so that the driver can build it.

    Attributes:
        argv: the executable (an absolute path, or a bare name that is looked up in PATH) and its arguments. Arguments
            are visible to every user of the machine: no secrets.
        env: its whole environment, but for PATH, HOME, LANG and TMPDIR, which are added where missing. Not shown by
        repr.
        idle_timeout_s: time without a byte through stdin or stdout after which it is killed. The caller's own time
        (waiting for records, handling output) does not count.
        total_timeout_s: maximum time of a run, without the caller's own time.
        max_output_bytes: maximum size of stdout.
        stderr_tail_bytes: size of the end of stderr that is kept.
        cwd: private working directory, which must exist; None makes an empty one for each run and removes it
        afterwards.
        limits: resource limits.
        line_output: whether stdout consists of lines, of which the last must be complete.
        counted: whether the caller compares the number of outputs with that of the records, and so notices missing ones.
        grace_s: time between TERM and KILL, and how long a descendant may keep stdout open after the program's own
        exit.
        secrets: values that are replaced by *** in everything that is kept of stderr. Not shown by repr.
        cancelled: returns whether another thread has cancelled the run; not pickled, so only for runs in this process.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    idle_timeout_s: float = 60
    total_timeout_s: float | None = None
    max_output_bytes: int | None = None
    stderr_tail_bytes: int = 65536
    cwd: Path | None = None
    scratch: Path | None = None
    limits: Limits = Limits()
    line_output: bool = True
    counted: bool = False
    grace_s: float = 2.0
    secrets: tuple[str, ...] = field(default=(), repr=False)
    cancelled: Callable[[], bool] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a program needs a name")
        if os.sep in self.argv[0] and not os.path.isabs(self.argv[0]):
            raise ValueError(f"{self.argv[0]!r} is relative, and would be searched in the run's own directory")
        if any("\0" in text for text in (*self.argv, *self.env, *self.env.values())):
            raise ValueError("arguments and environment cannot contain NUL bytes")

    @property
    def name(self) -> str:
        """Last part of the path, for messages."""
        return os.path.basename(self.argv[0])

    def environment(self, home: str) -> dict[str, str]:
        """Return the complete environment of a run whose private directory is `home`."""
        minimal = {"PATH": search_path(), "HOME": home, "LANG": "C.UTF-8", "TMPDIR": home}
        return {**minimal, **self.env}
