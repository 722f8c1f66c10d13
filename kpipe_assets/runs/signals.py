"""Ctrl-C and SIGTERM: the first lets the batch at hand finish, the second stops at once. Either way nothing is half done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from kpipe_assets.terminal import echo

__all__ = ["Stop"]


class Stop:
    """A request to stop, set by a signal. Use it as a context; handlers are restored when it ends."""

    def __init__(self) -> None:
        self._asked = threading.Event()
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
        """Take the signals (again)."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def requested(self) -> bool:
        """Whether to stop after the batch at hand."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, or less when a stop is requested."""
        self._asked.wait(seconds)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()
        echo("\nstopping after this batch (once more: at once; nothing of it will be written)", err=True)
