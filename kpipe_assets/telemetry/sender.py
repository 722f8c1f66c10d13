"""Deliver what runs have queued, in a thread of the process.

Delivery takes no time of a run and cannot fail it. A queue that is full, and a process that is killed, lose deliveries.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable

from kpipe.errors import KpipeError

__all__ = ["FINISH_S", "Once", "Sender", "finish_all"]

#: Longest wait for the last deliveries when a process ends.
FINISH_S = 5.0
_MOST_WAITING = 1000
_started: list[Sender] = []


class Once:
    """Report the first problem of a run, and no further ones.

    Args:
        warn: reports a problem.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn, self._lock, self._done = warn, threading.Lock(), False

    def __call__(self, text: str) -> None:
        """Report the problem, if it is the first."""
        with self._lock:
            first, self._done = not self._done, True
        if first:
            self._warn(text)


class Sender:
    """A queue and the thread that works it off, in order. The thread starts with the first delivery.

    Args:
        what: name of what is delivered, for messages: `lineage`.
        flush: called before the process ends.
    """

    def __init__(self, what: str, flush: Callable[[], None] = lambda: None) -> None:
        self._what, self._flush = what, flush
        self._waiting: queue.Queue[tuple[Callable[[], None], Callable[[str], None]]] = queue.Queue(_MOST_WAITING)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, deliver: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Queue a delivery.

        Args:
            deliver: called by the thread; its errors are reported to `failed`.
            failed: reports why something was not delivered.
        """
        try:
            self._waiting.put_nowait((deliver, failed))
        except queue.Full:
            failed(f"{self._what} is not delivered: {self._waiting.maxsize:,} deliveries wait already")
        self._start()

    def finish(self, seconds: float = FINISH_S) -> None:
        """Wait until everything is delivered, at most so long."""
        if self._thread is None:
            return
        self.put(self._flush, lambda _: None)
        until = time.monotonic() + seconds
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and (left := until - time.monotonic()) > 0:
                self._waiting.all_tasks_done.wait(left)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = thread = threading.Thread(target=self._work, name=f"kpipe {self._what}", daemon=True)
                # Each retry would be a line on stderr.
                logging.getLogger("urllib3.connectionpool").addFilter(lambda line: line.thread != thread.ident)
                thread.start()
                _started.append(self)

    def _work(self) -> None:
        while True:
            deliver, failed = self._waiting.get()
            try:
                deliver()
            except KpipeError as error:
                failed(f"{self._what} is off: {error}")
            except Exception as error:  # of a library or the network: its text may contain addresses with secrets
                status = getattr(getattr(error, "response", None), "status_code", "")
                failed(f"{self._what} is not delivered: {type(error).__name__} {status}".rstrip())
            finally:
                self._waiting.task_done()


def finish_all(seconds: float = FINISH_S) -> None:
    """Wait for the last deliveries of this process, at most so long in all.

    Python calls it at its end, but then libraries can neither be imported nor start threads: commands call it before.
    """
    until = time.monotonic() + seconds
    for sender in _started:
        sender.finish(max(0.0, until - time.monotonic()))


atexit.register(finish_all)
