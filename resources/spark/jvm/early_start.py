"""Start this process's Spark in a thread, before the first batch needs it.

A failure is not reported: the first batch starts Spark again, and fails with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from kpipe.errors import KpipeError

__all__ = ["begin", "is_starting", "wait"]

_thread: threading.Thread | None = None


def begin(start: Callable[[], object]) -> None:
    """Call the function in a thread, which does not keep this process from exiting. Only the first call has an effect."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_quietly, args=(start,), name="early start of Spark", daemon=True)
        _thread.start()


def wait() -> None:
    """Wait until the function has returned. Return at once in its own thread, and where `begin` was not called."""
    if _thread is not None and not is_starting():
        _thread.join()


def is_starting() -> bool:
    """Return whether this is the thread that starts Spark early."""
    return threading.current_thread() is _thread


def _quietly(start: Callable[[], object]) -> None:
    with suppress(KpipeError):
        start()
