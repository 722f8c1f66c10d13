"""Order the threads that use one file: many readers or one writer, in the order in which they came.

Without an order, a writer among a hundred threads that read now and then would wait until it gives up.
"""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Turn", "Turns"]

# A reader that waits so long behind a writer, while others only read, is admitted: one of them may wait for it.
_OVERTAKE_S = 1.0


class Turn:
    """One use of the file by a thread."""

    def __init__(self, read_only: bool) -> None:
        self.read_only, self.thread, self.admitted = read_only, threading.get_ident(), threading.Event()


class Turns:
    """The queue of a file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Turn] = deque()
        self._present: set[Turn] = set()

    def enter(self, read_only: bool, timeout_s: float) -> Turn | None:
        """Wait for a turn. Return it, or None after the timeout. A thread may read while it reads."""
        turn = Turn(read_only)
        with self._lock:
            nested = any(other.thread == turn.thread for other in self._present)
            if self._fits(turn) and (nested or not self._waiting):
                self._present.add(turn)
                return turn
            self._waiting.append(turn)
        if turn.admitted.wait(min(timeout_s, _OVERTAKE_S) if read_only else timeout_s):
            return turn
        with self._lock:
            if not turn.admitted.is_set() and self._fits(turn):
                self._waiting.remove(turn)
                self._let_in(turn)
        if turn.admitted.wait(max(0.0, timeout_s - _OVERTAKE_S) if read_only else 0):
            return turn
        with self._lock:
            if not turn.admitted.is_set():
                self._waiting.remove(turn)
                self._admit()  # those behind it may fit
                return None
        return turn

    def leave(self, turn: Turn) -> None:
        """End a turn, and admit those who wait for it."""
        with self._lock:
            self._present.discard(turn)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            self._let_in(self._waiting.popleft())

    def _let_in(self, turn: Turn) -> None:
        self._present.add(turn)
        turn.admitted.set()

    def _fits(self, turn: Turn) -> bool:
        return not self._present or (turn.read_only and all(other.read_only for other in self._present))
