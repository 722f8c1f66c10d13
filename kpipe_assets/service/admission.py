"""Admit the passes of many pipelines in the order in which they came, a few at a time.

A pass plans its batch after it was admitted. Without a limit, a hundred batches would be planned at the same time, and each
would wait for the others: a record that arrives meanwhile would wait for two rounds of all pipelines instead of one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Admission"]

# Two for each core: one may wait for a broker, a disk or a server while the other one computes.
_AT_ONCE = max(4, 2 * (os.cpu_count() or 2))
# A pass that takes longer does not count any more: a hanging pass delays the others by this time, once for each attempt.
_SLOW_S = 2.0
_LOOK_S = 0.5


class Admission:
    """The queue of the passes of one process.

    Args:
        at_once: passes that may be at work at a time.
        slow_s: passes that take longer do not count.
    """

    def __init__(self, at_once: int = _AT_ONCE, slow_s: float = _SLOW_S) -> None:
        self._at_once, self._slow_s = at_once, slow_s
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._began: dict[threading.Event, float] = {}

    @contextmanager
    def turn(self, is_over: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Wait until a pass may begin, and count it while inside.

        Args:
            is_over: whether to stop waiting; called every half second.

        Yields:
            True for a pass that was admitted, False if the run is over.
        """
        admitted = threading.Event()
        with self._lock:
            self._waiting.append(admitted)
            self._admit()
        try:
            while not admitted.wait(_LOOK_S) and not is_over():
                with self._lock:
                    self._admit()  # a pass may have become slow
            yield admitted.is_set()
        finally:
            with self._lock:
                if self._began.pop(admitted, None) is None:
                    self._waiting.remove(admitted)
                self._admit()

    def _admit(self) -> None:
        now = time.monotonic()
        free = self._at_once - sum(now - began < self._slow_s for began in self._began.values())
        while free > 0 and self._waiting:
            admitted = self._waiting.popleft()
            self._began[admitted] = now
            admitted.set()
            free -= 1
