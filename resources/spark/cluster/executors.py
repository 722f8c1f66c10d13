"""Executors on other machines: count the tasks that run at once, and stop waiting when no executor starts.

Spark itself waits forever for the first executor ("Initial job has not accepted any resources"), even if the cluster
has rejected the request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError
from resources.spark.cluster import kubernetes

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TIMEOUT", "attended", "slots", "there"]

TIMEOUT = "spark.kpipe.executorTimeout"
"""Spark setting of kpipe: seconds without any executor until a batch fails. A rejection by the cluster ends it sooner."""
_TIMEOUT_S = 600.0  # adding a machine to a cluster takes minutes, and so does pulling an image of 1 GB
_LOOK_S = 3.0
# A rejection may be temporary: a role may be applied together with the pod.
_REFUSED_S = 30.0


def there(context: SparkContext) -> int:
    """Count the executors that are registered now, without the driver."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def slots(context: SparkContext, pieces: int) -> int:
    """Return the number of tasks for a batch: as many as run at once on the present executors, or on those that may start.

    With dynamic allocation, Spark requests executors for waiting tasks. A batch split only for the present executors, of
    which there may be none, would never get more.

    Args:
        context: of the application.
        pieces: of the batch: the number of tasks if executors are unlimited.
    """
    conf, now = context._conf, context.defaultParallelism
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        return now
    most = conf.get("spark.dynamicAllocation.maxExecutors", None)
    each = int(conf.get("spark.executor.cores", "1") or 1) // int(conf.get("spark.task.cpus", "1") or 1)
    return max(now, int(most) * max(1, each) if most else pieces)


@contextmanager
def attended(context: SparkContext, group: str, log: Path | None = None) -> Iterator[None]:
    """Cancel jobs of this group inside the block when there has been no executor for too long.

    Args:
        context: of the application.
        group: Spark's job group of the block.
        log: the log of Spark's JVM, which may contain the reason.

    Raises:
        KpipeError: no executor started; the message contains the cluster's reason.
    """
    watch = _Watch(context, group, log)
    watch.start()
    try:
        yield
    except Exception as error:
        if watch.found is not None:
            raise watch.found from error
        ended = kubernetes.gave_up(context, log)
        if ended is not None:
            raise KpipeError(f"Spark gets no executor: {ended[0]}", ended[1]) from error
        raise
    finally:
        watch.ended.set()


class _Watch(threading.Thread):
    """Watcher of one job. Queries the JVM only if the job lasts longer than `_LOOK_S`."""

    def __init__(self, context: SparkContext, group: str, log: Path | None) -> None:
        super().__init__(name="kpipe-executors", daemon=True)
        self._context, self._group, self._log = context, group, log
        self._timeout_s = float(str(context._conf.get(TIMEOUT, str(_TIMEOUT_S))).removesuffix("s"))
        self._logged = log.stat().st_size if log is not None and log.exists() else 0
        self.ended, self.found = threading.Event(), None

    found: KpipeError | None

    def run(self) -> None:
        with suppress(Exception):  # the JVM has ended: the thread that waits for the job gets the error
            since = time.monotonic()
            while not self.ended.wait(_LOOK_S):
                waited = time.monotonic() - since
                if there(self._context):
                    since = time.monotonic()
                elif waited > _REFUSED_S and (refused := kubernetes.refused(self._context, self._log, self._logged)):
                    self._give_up(f"Spark gets no executor: {refused[0]}", refused[1])
                elif waited > self._timeout_s:
                    why = kubernetes.pending(self._context) or f"none came within {waited:.0f} s"
                    hint = f"see Spark's master, resource manager or cluster for the reason; wait longer: {TIMEOUT} (seconds)"
                    self._give_up(f"Spark gets no executor: {why}", hint)

    def _give_up(self, what: str, hint: str) -> None:
        if not self.ended.is_set():
            self.found = KpipeError(what, hint)
            self._context.cancelJobGroup(self._group)
            self.ended.set()
