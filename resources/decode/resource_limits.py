"""Limits of processor time and memory for decoding a block: the last line behind the bounds that each decoder has by itself.

A block beyond a limit is decoded in halves, down to the record that takes so much, which becomes a reject. Processor time of the
decoding thread is measured, not time of day: on a busy machine a good record stays one.
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

# Row by row, the slowest way, a decoder takes some 0.1 s for a megabyte (measured on JSON objects of 1 kB).
_LEAST_S, _S_PER_MB = 30.0, 2.0
_LOOK_EVERY_S = 0.5


class Overrun(BaseException):
    """Decoding took too long. Raised between two steps of whatever runs, which must not handle it as an error of its own."""


@dataclass
class _Limit:
    """A thread at work, and what it may take."""

    thread: int
    clock: Callable[[], float]
    end: float
    interrupt: Callable[[], None]
    raised: bool = False


class _Watch:
    """One thread of this process that looks at the clocks of those that decode."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._limits: dict[int, _Limit] = {}
        self._process = 0  # workers are forked, and threads stay behind

    def begin(self, limit: _Limit) -> None:
        with self._lock:
            self._limits[limit.thread] = limit
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._look, name="kpipe-decoding", daemon=True).start()
            self._lock.notify()

    def end(self, limit: _Limit) -> bool:
        """Whether it was too late; then nothing is left that could be raised any more. A second call changes nothing."""
        with self._lock:
            if self._limits.pop(limit.thread, None) is not None and limit.raised:
                _raise_in(limit.thread, None)
            return limit.raised

    def _look(self) -> None:
        while True:
            with self._lock:
                while not self._limits:
                    self._lock.wait()
                for limit in self._limits.values():
                    if limit.clock() > limit.end:
                        if not limit.raised:
                            limit.raised = True
                            _raise_in(limit.thread, Overrun)
                        limit.interrupt()  # each time: a query may have begun since
            time.sleep(_LOOK_EVERY_S)


_watch = _Watch()
os.register_at_fork(after_in_child=lambda: globals().update(_watch=_Watch()))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread at its next step; None: no longer (Python's C API, PyThreadState_SetAsyncExc)."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error) if error is not None else None)


def _clock() -> Callable[[], float]:
    """Processor time of this thread, as another thread can read it; time of day where the system has no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)


def limited(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, if that takes no more than so many seconds of processor time.

    Raises:
        Overrun: it took longer, and was ended.
    """
    clock, over = _clock(), False
    limit = _Limit(threading.get_ident(), clock, clock() + seconds, in_memory.interrupter())
    _watch.begin(limit)
    try:
        try:
            found = work()
        finally:
            over = _watch.end(limit)
    except Overrun:
        _watch.end(limit)  # it may have come in the midst of the line above; it comes once
        raise
    except BaseException as error:
        if over:
            raise Overrun from error
        raise
    if over:
        raise Overrun
    return found


class Deadlined:
    """A decoder whose blocks have limits of processor time and memory.

    Args:
        inner: the decoder.
        least_s, s_per_mb: the limit: so many seconds, and so many for each megabyte of the block.
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
            in_memory.forget()  # what was interrupted in it is of no use
            why = f"decoding it takes more than {seconds:.0f} s of processor time"
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
