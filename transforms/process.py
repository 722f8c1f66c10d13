"""A started program: its pipes, its end, and the way to kill all of it.

The worker's child is `launch.py`, whose child is the program. launch.py is the subreaper of all descendants, and ends only
when none is left. So the worker itself needs to be no subreaper, and its other children are never affected.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from kpipe.errors import TransformFailed
from kpipe.process_isolation import deny_tracing
from transforms.program import Program
from transforms.stderr import escape

LAUNCH = str(Path(__file__).with_name("launch.py"))
PIPE_BYTES = 1 << 20  # /proc/sys/fs/pipe-max-size as Linux ships it; 64 KiB pipes cost sixteen times the wake-ups
READ_BYTES = PIPE_BYTES
KILL_WAIT_S = 10.0  # a killed process ends in milliseconds, unless the kernel itself is stuck in its I/O
SETTLE_S = 0.5  # launch.py needs about 1 ms to notice that no process is left; more on a busy machine


class Child:
    """Pipes of one run. All descriptors are the worker's ends; `stdout` and `stderr` are None once closed.

    Attributes:
        exit_status: None while the program runs; then its status, negative for a signal's number.
        start_error: reason why it could not be started, as text; None if it was.
        over: the limit of the whole tree that it exceeded, as text; None otherwise. `advice` is the hint for it.
        `gone`: whether no descendant is left.
        stuck: whether some were left after the time for killing them; launch.py continues to kill.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.exit_status: int | None = None
        self.start_error: str | None = None
        self.over: str | None = None
        self.advice = ""
        self.gone = self.stuck = False
        self._leader = 0
        made = program.cwd is None
        self._scratch = tempfile.mkdtemp(prefix="kpipe-transform-", dir=program.scratch) if made else None
        self.home = self._scratch or str(program.cwd)
        self._report = b""
        # The read end of stdin is kept: FIONREAD on it returns the number of unread bytes. It also suppresses EPIPE, so that
        # the program's end is only reported by the status pipe.
        self._unread, self.stdin = _pipe(large=True)
        out, out_write = _pipe(large=True)
        err, err_write = _pipe()
        self.status, status_write = _pipe()
        self.stdout: int | None = out
        self.stderr: int | None = err
        for descriptor in (self.stdin, out, err, self.status):
            os.set_blocking(descriptor, False)
        deny_tracing()
        env = program.environment(self.home)
        options: dict[str, object] = {"status": status_write, "worker": os.getpid(), **program.limits.options()}
        if made:
            options["scratch"] = 1
        if "LC_CTYPE" not in env:
            options["drop"] = "LC_CTYPE"
        try:
            self._launch = subprocess.Popen(  # vfork and exec: no Python code runs in the copy
                [sys.executable, "-I", "-S", LAUNCH, ",".join(f"{k}={v}" for k, v in options.items()), *program.argv],
                stdin=self._unread,
                stdout=out_write,
                stderr=err_write,
                pass_fds=(status_write,),
                env=env,
                cwd=self.home,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            self._close()
            what = f"transform {escape(program.name)} could not be started: {error.strerror}"
            raise TransformFailed(what, "check the working directory, and the machine's limits on processes") from error
        finally:
            for descriptor in (out_write, err_write, status_write):
                os.close(descriptor)

    @property
    def running(self) -> bool:
        """True while the program has not exited, or its stdout has not ended."""
        return self.stdout is not None or self.exit_status is None

    def unread(self) -> int:
        """Return the number of bytes sent to stdin that the program has not read."""
        return waiting(self._unread) if self._unread >= 0 else 0

    def close_stdin(self) -> None:
        """Signal the end of input to the program."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close_stdout(self) -> None:
        """Close stdout: the program gets SIGPIPE on its next write."""
        if self.stdout is not None:
            os.close(self.stdout)
            self.stdout = None

    def close_stderr(self) -> None:
        """Close stderr: the program gets SIGPIPE on its next write."""
        if self.stderr is not None:
            os.close(self.stderr)
            self.stderr = None

    def read_status(self) -> None:
        """Read the reports of launch.py; set `exit_status`, `start_error` and `gone`."""
        while not self.gone:
            try:
                chunk = os.read(self.status, 4096)
            except BlockingIOError:
                break
            self.gone = not chunk
            self._report += chunk
        *lines, self._report = self._report.split(b"\n")
        for line in lines:
            kind, *values = line.decode().split()
            if kind == "exit":
                self.exit_status = os.waitstatus_to_exitcode(int(values[0]))
            elif kind == "pid":
                self._leader = int(values[0])
            elif kind == "exec":
                self.start_error = _why_not(self.program, int(values[0]))
            elif kind == "limit":
                self.start_error = f"{values[0].upper()} could not be set: {os.strerror(int(values[1]))}"
            elif kind == "over":
                self.over, self.advice = _over(self.program, values[0], int(values[1]))

    def finish(self, on_stderr: Callable[[bytes], None]) -> bool:
        """Kill the processes that the program left behind, after its own end, and free everything. True if any were left."""
        self._await_end(SETTLE_S, on_stderr)
        left = not self.gone
        self.stop(on_stderr)
        return left

    def stop(self, on_stderr: Callable[[bytes], None]) -> None:
        """Send TERM to all descendants, then KILL after a grace period; reap, and free everything. May be called again.

        Args:
            on_stderr: gets the rest of stderr.
        """
        if self._unread < 0:
            return
        self.close_stdin()
        self.close_stdout()  # a program that flushes on TERM must not block on a pipe without a reader
        self.read_status()
        for order, patience in ((signal.SIGTERM, self.program.grace_s), (signal.SIGUSR1, KILL_WAIT_S)):
            if self.gone:
                break
            self._launch.send_signal(order)
            self._launch.send_signal(signal.SIGCONT)  # the program may have stopped it
            self._await_end(patience, on_stderr)
        self._drain_stderr(on_stderr)
        # launch.py itself is never killed: it continues to kill, and without it the descendants would have no parent of ours.
        self.stuck = not self.gone
        if self.gone and self.exit_status is None and self._leader:  # launch.py was killed: only the group is left to signal
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launch.wait(0 if self.stuck else KILL_WAIT_S)
        self._close()

    def _await_end(self, patience: float, on_stderr: Callable[[bytes], None]) -> None:
        until = time.monotonic() + patience
        while not self.gone and (left := until - time.monotonic()) > 0:
            watched = [self.status] if self.stderr is None else [self.status, self.stderr]
            poll = select.poll()
            for descriptor in watched:
                poll.register(descriptor, select.POLLIN)
            poll.poll(left * 1000)
            self._drain_stderr(on_stderr)
            self.read_status()

    def _drain_stderr(self, on_stderr: Callable[[bytes], None]) -> None:
        """Read the bytes in the pipe now, and no more, so that a flood of them cannot block."""
        if self.stderr is not None:
            with contextlib.suppress(BlockingIOError):
                if chunk := os.read(self.stderr, READ_BYTES):
                    on_stderr(chunk)
                else:
                    self.close_stderr()

    def _close(self) -> None:
        self.close_stdin()
        self.close_stdout()
        self.close_stderr()
        os.close(self._unread)
        os.close(self.status)
        self._unread = -1
        self.gone = True
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def waiting(pipe: int) -> int:
    """Return the number of bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _pipe(large: bool = False) -> tuple[int, int]:
    read, write = os.pipe()
    if large and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # above the user's share of pipe memory: it works at 64 KiB, slower
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write


def _over(program: Program, name: str, found: int) -> tuple[str, str]:
    limits = program.limits
    if name == "processes":
        what = f"it had {found:,} processes at once or more, {limits.tree_processes:,} are allowed"
        return what, "check the program for a process that starts itself, or for children that it does not wait for"
    what = f"its processes held {found >> 20:,} MiB of memory, {(limits.tree_bytes or 0) >> 20:,} are allowed"
    return what, "check the program for a memory leak, or raise transform.memory_mb"


def _why_not(program: Program, number: int) -> str:
    """Describe an errno of exec for the author of a script."""
    path = Path(program.argv[0])
    if number == errno.ENOENT and path.is_absolute() and path.exists():
        return "the interpreter that its first line names does not exist on this machine"
    if number == errno.ENOENT:
        return "no such program" if path.is_absolute() else "no such program in PATH"
    if number == errno.EACCES:
        return f"permission denied; is it executable (chmod +x {path.name}), on a file system mounted without noexec?"
    if number == errno.ENOEXEC:
        return "neither a binary for this machine nor a script whose first line names its interpreter (#!...)"
    return os.strerror(number)
