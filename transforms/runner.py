"""Run a program over blocks of framed records: bytes in, bytes out, bounded memory, every failure detected."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from kpipe.errors import KpipeError, TransformFailed
from kpipe.failpoints import failpoint
from transforms.process import PIPE_BYTES, READ_BYTES, Child, waiting
from transforms.program import Limits, Program
from transforms.stderr import Tail, escape

__all__ = ["Limits", "Program", "Report", "TransformRun", "run"]

# A program that moves less than this at once is read later: at 500 MB/s it moves half of a pipe in the longest pause.
_MUCH_BYTES = PIPE_BYTES // 4
_PAUSE_STEP_S, _MOST_PAUSE_S = 0.00025, 0.001
_CANCEL_S = 0.2  # how often a run that can be cancelled checks for it while the program does nothing


@dataclass(frozen=True)
class Report:
    """State of a run, at any time and after its end.

    Attributes:
        exit_status: None while it runs; negative for a signal's number.
        bytes_in: bytes sent to stdin.
        bytes_consumed: bytes of them that the program has taken out of the pipe. It may have buffered and ignored them.
        bytes_out: bytes received from stdout.
        stderr: end of stderr, redacted and escaped, one line each.
        stderr_bytes: length of all of stderr.
        seconds: the run's own time, without the caller's.
        leftovers: whether it left processes behind, which were killed.
    """

    exit_status: int | None
    bytes_in: int
    bytes_consumed: int
    bytes_out: int
    stderr: str = field(repr=False)
    stderr_bytes: int
    seconds: float
    leftovers: bool


class TransformRun:
    """One run of a program. Enter it, iterate over it once, then read `report`.

    Iterating yields chunks of stdout as they arrive, of any size up to 1 MiB, not cut at lines. The next block is pulled only
    when the previous one is sent and the pipe has room. So at most one block and one chunk are kept in memory.
    The output is valid only after the iteration has ended without an error: only then the program has met its
    protocol. Leaving early kills the program. Everything runs in one thread: while `blocks` waits for records, no
    output arrives.

    Args:
        program: what to run.
        blocks: framed records (`transforms.framing`).
        where: coordinates for messages, such as `tweets/3 [120,240)`.

    Raises:
        TransformFailed: from the iteration, or on entering: not started, exit status, signal, unread input, torn last
            line, too much output, no progress, out of time.
        KpipeError: from the iteration: cancelled.
    """

    def __init__(self, program: Program, blocks: Iterable[bytes | memoryview], *, where: str = "") -> None:
        self._program = program
        self._blocks = iter(blocks)
        self._where = where
        self._tail = Tail(program.stderr_tail_bytes, program.secrets)
        self._child: Child | None = None
        self._pending: memoryview | None = None
        self._exhausted = self._iterated = False
        self._bytes_in = self._bytes_out = self._unread = 0
        self._last_byte = b"\n"
        self._leftovers = False
        self._caller_s = 0.0  # the caller's time, subtracted from every clock here
        self._started = self._moved = 0.0
        self._exited: float | None = None
        # After the program's exit: bytes in stdout's pipe at that time; more arrived; its end was not waited for.
        self._owed = 0
        self._late = self._cut = False
        self._pause_s = 0.0
        self._ended: float | None = None

    def __enter__(self) -> TransformRun:
        if self._child is None:
            self._child = Child(self._program)
            self._started = self._moved = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill and reap the program and its descendants, if any are left."""
        if self._child is not None and self._ended is None:
            self._unread = self._child.unread()
            self._ended = self._now()
            self._child.stop(self._tail.add)

    @property
    def report(self) -> Report:
        """Current state of the run."""
        child = self._child
        unread = child.unread() if child is not None and self._ended is None else self._unread
        return Report(
            exit_status=child.exit_status if child is not None else None,
            bytes_in=self._bytes_in,
            bytes_consumed=self._bytes_in - unread,
            bytes_out=self._bytes_out,
            stderr=self._tail.text(),
            stderr_bytes=self._tail.total,
            seconds=(self._now() if self._ended is None else self._ended) - self._started,
            leftovers=self._leftovers,
        )

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks of stdout; see the class."""
        if self._iterated:
            raise RuntimeError("a run can be iterated over once")
        self._iterated = True
        with self:
            assert self._child is not None
            failpoint("tx.spawned")
            yield from self._pump(self._child)
            failpoint("tx.eof")
            self._unread = self._child.unread()
            self._leftovers = self._child.finish(self._tail.add)
            self._ended = self._now()
            self._check()

    def _pump(self, child: Child) -> Iterator[bytes]:
        """Run the loop over all four pipes, until the program has exited and stdout has ended."""
        with selectors.DefaultSelector() as selector:
            assert child.stdout is not None and child.stderr is not None
            for descriptor in (child.stdout, child.stderr, child.status):
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(child.stdin, selectors.EVENT_WRITE)
            while child.running:
                patience, exited, moved, transferred = (
                    self._patience(),
                    self._exited,
                    self._moved,
                    self._bytes_in + self._bytes_out,
                )
                ready = {key.fd for key, _ in selector.select(self._at_most(patience))}
                if patience <= 0 and exited is not None and (self._late or child.stdout not in ready):
                    self._cut = True  # exited, but a descendant keeps stdout open
                    break
                if child.stderr is not None and child.stderr in ready:
                    if chunk := os.read(child.stderr, READ_BYTES):
                        self._tail.add(chunk)
                    else:
                        selector.unregister(child.stderr)
                        child.close_stderr()
                if child.status in ready:
                    self._hear_status(child)
                    if child.gone:
                        selector.unregister(child.status)
                if child.stdout is not None and child.stdout in ready:
                    if chunk := os.read(child.stdout, READ_BYTES):
                        self._count(chunk)
                        left = time.monotonic()
                        yield chunk
                        self._caller_s += time.monotonic() - left
                        chunk = b""  # the caller's now: not kept while the next one is read
                    else:
                        selector.unregister(child.stdout)
                        child.close_stdout()
                if child.stdin in ready and not self._feed(child.stdin):
                    selector.unregister(child.stdin)
                    child.close_stdin()
                # Check again now: the pipes may have been ready while this process did not run.
                if patience <= 0 and self._exited is None and self._moved == moved:
                    raise self._failed(
                        f"no progress for {self._program.idle_timeout_s:g} s: it neither read nor wrote",
                        "check that it does not wait for anything but stdin, or raise transform.idle_timeout_s",
                    )
                if self._pending is not None:
                    self._pause(self._bytes_in + self._bytes_out - transferred)

    def _at_most(self, patience: float) -> float:
        """Return how long to wait for a pipe.

        Raises:
            KpipeError: the run was cancelled.
        """
        cancelled = self._program.cancelled
        if cancelled is None:
            return patience
        if cancelled():
            self.close()
            raise KpipeError(f"transform {escape(self._program.name)}: cancelled")
        return min(patience, _CANCEL_S)

    def _pause(self, transferred: int) -> None:
        """Sleep while the program has a full pipe to read, if it moves little: else each small write of it wakes this process."""
        self._pause_s = 0.0 if transferred >= _MUCH_BYTES else min(self._pause_s + _PAUSE_STEP_S, _MOST_PAUSE_S)
        if self._pause_s:
            time.sleep(self._pause_s)

    def _feed(self, stdin: int) -> bool:
        """Send as much as the pipe accepts. Return False at the end of the input."""
        if self._pending is None:
            block = self._next_block()
            if block is None:
                return False
            self._pending = memoryview(block)
        try:
            sent = os.write(stdin, self._pending)
        except BlockingIOError:  # less room than one page
            return True
        self._bytes_in += sent
        self._moved = self._now()
        self._pending = self._pending[sent:] if sent < len(self._pending) else None
        return True

    def _next_block(self) -> bytes | memoryview | None:
        """Return the next block that is not empty. Pulling it counts as the caller's time."""
        left = time.monotonic()
        block = None if self._exhausted else next((block for block in self._blocks if block), None)
        self._caller_s += time.monotonic() - left
        self._exhausted = block is None
        return block

    def _count(self, chunk: bytes) -> None:
        self._moved = self._now()
        self._bytes_out += len(chunk)
        if self._exited is not None:
            self._owed -= len(chunk)
            self._late = self._owed < 0
        if self._program.line_output:
            self._last_byte = chunk[-1:]
        limit = self._program.max_output_bytes
        if limit is not None and self._bytes_out > limit:
            raise self._failed(
                f"it wrote more than {limit:,} bytes to stdout", "check the program for a loop, or raise transform.max_output_mb"
            )

    def _hear_status(self, child: Child) -> None:
        child.read_status()
        if child.start_error is not None:
            raise self._failed(f"it could not be started: {child.start_error}", phase="")
        if child.over is not None:
            raise self._failed(child.over, child.advice)
        if child.exit_status is None:
            if child.gone:
                raise self._failed("the process that watches it was killed", phase="")
        elif child.exit_status != 0:
            raise self._failed(_ending(child.exit_status), _advice(child.exit_status, self._program))
        elif self._exited is None:
            self._exited = self._now()
            self._owed = waiting(child.stdout) if child.stdout is not None else 0

    def _patience(self) -> float:
        """Return the seconds until the next event must occur; 0 if that time, or the grace after the exit, is over."""
        now, program = self._now(), self._program
        if self._exited is not None:
            return max(0.0, self._exited + program.grace_s - now)
        left = max(0.0, self._moved + program.idle_timeout_s - now)
        if program.total_timeout_s is not None:
            if now - self._started >= program.total_timeout_s:
                raise self._failed(
                    f"not done after {program.total_timeout_s:g} s", "raise the total timeout, or use smaller batches"
                )
            left = min(left, self._started + program.total_timeout_s - now)
        return left

    def _check(self) -> None:
        """Check the end of a run with exit status 0. Counts of records are checked by the caller (`check_counts`)."""
        if self._cut and self._late:
            raise self._failed(
                "it exited while a process that it had started still wrote to its stdout, so output is missing",
                "wait for background processes before exiting",
            )
        if self._cut and not self._program.counted:
            raise self._failed(
                f"it exited while a process that it had started kept its stdout open for {self._program.grace_s:g} s more, so"
                " output may be missing",
                "wait for background processes before exiting, or start them with stdout redirected: >/dev/null",
            )
        unsent = len(self._pending) if self._pending is not None else 0
        if self._unread or unsent:
            raise self._failed(
                f"it exited with status 0 before the end of its input; unread: {self._unread + unsent:,} bytes or more",
                "read stdin to its end, even if the rest is not needed",
            )
        if self._next_block() is not None:
            raise self._failed(
                "it exited with status 0 before the end of its input, which was still being sent",
                "read stdin to its end, even if the rest is not needed",
            )
        if self._last_byte != b"\n":
            raise self._failed(
                "its last line is torn: stdout ended without a newline",
                "end every line with a newline, the last one too",
            )

    def _failed(self, reason: str, hint: str = "", phase: str = "work") -> TransformFailed:
        """Kill the program first, so that its last output is in the message."""
        self.close()
        at = f" ({self._where})" if self._where else ""
        if self._child is not None and self._child.stuck:
            reason += " (not all of its processes could be killed yet; it goes on)"
        last = self._tail.last()
        return TransformFailed(
            f"transform {escape(self._program.name)}{at}: {reason}" + (f"; stderr: {last}" if last else ""), hint, phase
        )

    def _now(self) -> float:
        return time.monotonic() - self._caller_s


def run(program: Program, blocks: Iterable[bytes | memoryview], *, where: str = "") -> Iterator[bytes]:
    """Yield chunks of the program's stdout: `TransformRun` for callers without need of a report."""
    yield from TransformRun(program, blocks, where=where)


def _ending(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    return f"it was killed by {name}"


def _advice(status: int, program: Program) -> str:
    if status == -signal.SIGXCPU:
        return f"it used its {program.limits.cpu_s} s of processor time"
    if status == -signal.SIGXFSZ:
        return f"it wrote a file larger than its {program.limits.file_bytes} bytes"
    if status == -signal.SIGKILL:
        return "perhaps by the kernel, out of memory: see dmesg"
    return ""
