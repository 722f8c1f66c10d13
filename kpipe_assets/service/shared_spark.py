"""The service's SparkContext, which all of its pipelines share."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from resources.home import Home
from resources.spark.jvm.session import start

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SharedSpark"]

# Each pipeline has a pool of its own (`SparkStager.stage`). Pools of one weight share the cores equally, so that a large batch
# of one pipeline delays the others by one task at most.
_FAIR = {"spark.scheduler.mode": "FAIR"}


class SharedSpark:
    """A SparkContext that starts with the first batch of any pipeline.

    Args:
        home: KPIPE_HOME.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._lock = home, threading.Lock()
        self._context: SparkContext | None = None

    def context(self) -> SparkContext:
        """Return the SparkContext. Other threads wait while one starts it.

        Raises:
            NotAvailable, KpipeError: Spark does not start.
        """
        with self._lock:
            if self._context is None:
                self._context = start(self._home.path, more=_FAIR)
            return self._context

    def has_ended(self) -> bool:
        """Return whether the SparkContext was started and is not usable any more: its JVM died, or a cluster ended it."""
        context = self._context
        if context is None:
            return False
        process = getattr(context._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return True
        try:
            return bool(context._jsc is None or context._jsc.sc().isStopped())
        except Exception:  # Py4J raises errors of several types for a connection that was closed
            return True

    def stop(self) -> None:
        """Stop the SparkContext, if it was started."""
        if self._context is not None:
            with suppress(Exception):  # the JVM has already ended
                self._context.stop()
