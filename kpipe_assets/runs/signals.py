"""Ctrl-C and SIGTERM: the first one lets the current batch finish, the second one discards it and stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from kpipe_assets.terminal import log

__all__ = ["Stop"]


class Stop:
    """A request to stop, set by a signal. A context manager that restores the previous handlers."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Stop:
        if not self._before:
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def install(self) -> None:
        """Install the signal handlers, also again after a library has replaced them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def requested(self) -> bool:
        """Return whether to stop after the current batch."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, at most until a stop is requested."""
        self._stop.wait(seconds)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        log("\nstopping after this batch (Ctrl-C again: discard the batch and stop now)")
