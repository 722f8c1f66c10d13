"""Executors on other machines: how many tasks they may run at once, and the end of waiting where none comes.

Spark itself waits for ever for the first one ("Initial job has not accepted any resources"), whatever the cluster said to it.
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
"""Setting of Spark's, ours: seconds without any executor until a batch is given up. What the cluster refuses is said sooner."""
_TIMEOUT_S = 600.0  # a cluster that adds a machine takes minutes, and so does fetching an image of 1 GB
_LOOK_S = 3.0
# What is refused may be allowed a moment later: a role that is applied together with the pod.
_REFUSED_S = 30.0


def there(context: SparkContext) -> int:
    """How many there are now; the driver is in these books, too."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def slots(context: SparkContext, pieces: int) -> int:
    """Tasks that a batch is shared out over: those that run at once with the executors there are, or that may come.

    With dynamic allocation Spark asks for as many executors as tasks wait: a batch that is cut for those that are there, none
    maybe, would never have more.

    Args:
        context: of the application.
        pieces: of the batch: as many are asked for where nothing limits executors.
    """
    conf, now = context._conf, context.defaultParallelism
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        return now
    most = conf.get("spark.dynamicAllocation.maxExecutors", None)
    each = int(conf.get("spark.executor.cores", "1") or 1) // int(conf.get("spark.task.cpus", "1") or 1)
    return max(now, int(most) * max(1, each) if most else pieces)


@contextmanager
def attended(context: SparkContext, group: str, log: Path | None = None) -> Iterator[None]:
    """Inside, jobs of this group are cancelled when there is no executor for too long.

    Args:
        context: of the application.
        group: under which Spark runs what is inside.
        log: what Spark's JVM writes; it may hold the reason.

    Raises:
        KpipeError: there was none, with what the cluster says.
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
    """Looks after one job. Asks the JVM only while it lasts longer than `_LOOK_S`."""

    def __init__(self, context: SparkContext, group: str, log: Path | None) -> None:
        super().__init__(name="kpipe-executors", daemon=True)
        self._context, self._group, self._log = context, group, log
        self._timeout_s = float(str(context._conf.get(TIMEOUT, str(_TIMEOUT_S))).removesuffix("s"))
        self._logged = log.stat().st_size if log is not None and log.exists() else 0
        self.ended, self.found = threading.Event(), None

    found: KpipeError | None

    def run(self) -> None:
        with suppress(Exception):  # the JVM has ended: who waits for the job is told
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
