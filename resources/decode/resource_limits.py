"""Limit the CPU time and memory of decoding a block, in addition to each decoder's own limits.

A block beyond a limit is decoded in halves, down to the single record that exceeds it, which becomes a reject. The clock is the
CPU time of the decoding thread, so that a busy host does not turn good records into rejects.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from resources.decode.block import Decoded, Decoder, Payloads
from resources.decode.growth_guard import joined
from resources.duckdb_engine import in_memory

__all__ = ["Deadlined", "Overrun", "limited"]

Result = TypeVar("Result")

# Row by row, the slowest path, a decoder takes about 0.1 s for a megabyte (measured on JSON objects of 1 kB).
_LEAST_S, _S_PER_MB = 30.0, 2.0
_CHECK_EVERY_S = 0.5


class Overrun(BaseException):
    """Decoding took too long. It is raised between two steps of any code: a BaseException, which that code does not catch."""


@dataclass
class _Limit:
    """A decoding thread and its limit."""

    thread: int
    clock: Callable[[], float]
    end: float
    interrupt: Callable[[], None]
    raised: bool = False


class _Watch:
    """A thread of this process that checks the clocks of decoding threads."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._limits: dict[int, _Limit] = {}
        self._process = 0  # a forked worker does not inherit the thread

    def begin(self, limit: _Limit) -> None:
        with self._lock:
            self._limits[limit.thread] = limit
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._check, name="kpipe-decoding", daemon=True).start()
            self._lock.notify()

    def end(self, limit: _Limit) -> bool:
        """Remove a limit, absorb its `Overrun`, and return whether it was exceeded. A second call changes nothing."""
        with self._lock:
            if self._limits.pop(limit.thread, None) is not None and limit.raised:
                _absorb()
            return limit.raised

    def _check(self) -> None:
        while True:
            with self._lock:
                while not self._limits:
                    self._lock.wait()
                self._stop_overdue()
            time.sleep(_CHECK_EVERY_S)

    def _stop_overdue(self) -> None:
        """Stop threads beyond their limit.

        The loop variable must not outlive a check: the frame of this daemon thread's `_check` is never freed. A limit leads
        to a connection of DuckDB, whose binding prints a report if it exists at the end of the interpreter.
        """
        for limit in self._limits.values():
            if limit.clock() > limit.end:
                if not limit.raised:
                    limit.raised = True
                    _raise_in(limit.thread, Overrun)
                limit.interrupt()  # repeated: another query may have begun


_watch = _Watch()
os.register_at_fork(after_in_child=lambda: globals().update(_watch=_Watch()))


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in a thread at its next step (Python's C API, PyThreadState_SetAsyncExc)."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _absorb() -> None:
    """Raise and catch a pending `Overrun` of this thread, or another one if it has been raised.

    Cancelling it by the C API instead leaves a flag that only a raised error clears. With it, every thread of the process takes
    a slower path, and Python 3.11 hangs at the first call under `sys.setprofile` (measured).
    """
    try:
        _raise_in(threading.get_ident(), Overrun)
        while True:
            pass
    except Overrun:
        return


def _clock() -> Callable[[], float]:
    """Return this thread's CPU clock, which other threads can read; if the system has none, the monotonic clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)


def limited(seconds: float, work: Callable[[], Result]) -> Result:
    """Call `work` with a limit of CPU time in seconds, and return its result.

    Raises:
        Overrun: it took longer, and was stopped.
    """
    clock, over = _clock(), False
    limit = _Limit(threading.get_ident(), clock, clock() + seconds, in_memory.interrupter())
    _watch.begin(limit)
    try:
        try:
            result = work()
        finally:
            over = _watch.end(limit)
    except Overrun:
        _watch.end(limit)  # again: the error may have interrupted the call above; it is raised once only
        raise
    except BaseException as error:
        if over:
            raise Overrun from error
        raise
    if over:
        raise Overrun
    return result


class Deadlined:
    """A decoder whose blocks have limits of processor time and memory.

    Args:
        inner: the decoder.
        least_s: seconds of CPU time for any block.
        s_per_mb: seconds of CPU time in addition, for each megabyte of the block.
    """

    def __init__(self, inner: Decoder, least_s: float = _LEAST_S, s_per_mb: float = _S_PER_MB) -> None:
        self._inner, self._least_s, self._s_per_mb = inner, least_s, s_per_mb
        self.takes_nulls = inner.takes_nulls

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        seconds = self._least_s + self._s_per_mb * float(payloads.bounds[-1] - payloads.bounds[0]) / 1e6
        try:
            return limited(seconds, lambda: self._inner.decode(payloads, keys))
        except Overrun:
            in_memory.forget()  # the interrupted connection cannot be used again
            why = f"decoding takes more than {seconds:.0f} s of CPU time"
        except MemoryError:
            why = "the record is too large: its columns do not fit into memory"
        if len(payloads) == 1:
            empty = self._inner.decode(payloads.part(0, 0), None if keys is None else keys.slice(0, 0))
            return replace(empty, rows=0, kept=[], rejects=[(0, why)])
        half = len(payloads) // 2
        return joined([
            (start, end, self.decode(payloads.part(start, end), None if keys is None else keys.slice(start, end - start)))
            for start, end in ((0, half), (half, len(payloads)))
        ])  # fmt: skip
