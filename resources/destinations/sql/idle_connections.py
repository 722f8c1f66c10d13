"""Keep connections for a moment after their use, for the next use by any pipeline of this process.

A batch reads the ledger, the columns of its table, commits and reads back. Four logins for these took a fifth of the CPU time
of a small batch into PostgreSQL (`python -m bench.many_pipelines --postgres`).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["IdleConnections", "Opened"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Opened(Generic[_T]):
    """A connection, and when it was opened.

    Attributes:
        connection: of the database's client.
        moment: on the monotonic clock, in seconds.
    """

    connection: _T
    moment: float = field(default_factory=time.monotonic)


class IdleConnections(Generic[_T]):
    """Idle connections of this process, by address and identity. They may be used by any thread.

    Args:
        is_usable: whether an idle connection can be used; must not wait.
        close: closes a connection, without errors.
        most: most connections; the oldest ones are closed.
        keep_s: seconds after which an idle connection is closed.
        lasts_s: seconds after which a connection is not kept any more, so that changed settings of role and database apply.
    """

    def __init__(
        self,
        is_usable: Callable[[_T], bool],
        close: Callable[[_T], None],
        most: int = 8,
        keep_s: float = 3.0,
        lasts_s: float = 60.0,
    ) -> None:
        self._is_usable, self._close, self._most = is_usable, close, most
        self._keep_s, self._lasts_s = keep_s, lasts_s
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # the sockets belong to the parent
        atexit.register(self.close_all)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Hashable, Opened[_T]]] = []
        self._is_swept = False

    def take(self, key: Hashable) -> Opened[_T] | None:
        """Return an idle connection, which is the caller's then; None if there is no usable one."""
        while True:
            with self._lock:
                at = next((at for at in reversed(range(len(self._idle))) if self._idle[at][1] == key), None)
                if at is None:
                    return None
                opened = self._idle.pop(at)[2]
            if self._is_usable(opened.connection):
                return opened
            self._close(opened.connection)

    def put(self, key: Hashable, opened: Opened[_T]) -> None:
        """Keep a connection that is in no transaction, or close it if it is too old."""
        now = time.monotonic()
        if now - opened.moment > self._lasts_s:
            self._close(opened.connection)
            return
        with self._lock:
            self._idle.append((now, key, opened))
            surplus = self._idle[: -self._most]
            del self._idle[: -self._most]
            start, self._is_swept = not self._is_swept, True
        for _, _, one in surplus:
            self._close(one.connection)
        if start:
            threading.Thread(target=self._sweep, name="kpipe-idle-connections", daemon=True).start()

    def close_all(self) -> None:
        """Close all idle connections."""
        self._close_older(float("inf"))

    def _sweep(self) -> None:
        while True:
            time.sleep(self._keep_s)
            self._close_older(time.monotonic() - self._keep_s)
            with self._lock:
                if not self._idle:
                    self._is_swept = False
                    return

    def _close_older(self, moment: float) -> None:
        with self._lock:
            old = [one for one in self._idle if one[0] <= moment]
            self._idle = [one for one in self._idle if one[0] > moment]
        for _, _, opened in old:
            self._close(opened.connection)
