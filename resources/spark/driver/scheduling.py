"""Spread a batch over Spark's cores, run its pieces as tasks, and explain tasks that fail."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.errors import KpipeError, LogTruncated, WorkerLost
from resources.spark.jvm import transport_security
from resources.spark.task.task_spec import Failure, JobSpec
from resources.spark.workers import warm_up, worker_retirement

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["SMALLEST_PIECE", "Moved", "choose_pool", "lost", "run_pieces", "share_out", "without_python"]

# A shorter piece is not split further: opening a consumer takes about as long as reading so many records (20 ms).
SMALLEST_PIECE = 20_000
# A task costs as much CPU time as so many records, a short range as so many: several tasks share no less work than one costs.
_TASK_RECORDS, _RANGE_RECORDS = 8_000, 750


def share_out(batch: Batch, cores: int, smallest: int = SMALLEST_PIECE, program: bool = False) -> list[list[Piece]]:
    """Split a batch into pieces for tasks: long ranges are split when cores would idle, short ones share a task.

    Args:
        batch: what to read.
        cores: tasks that run at once.
        smallest: offsets below which a range is not split.
        program: the records pass through a program. What it takes for a record is unknown, so no core is left idle.

    Returns:
        At most `cores` lists, fewer for a small batch without a program, none empty, with about the same number of offsets
        each.
    """
    share, steps = max(smallest, -(-batch.span // max(1, cores))), batch.steps
    pieces = [Piece.of(step, part) for step in steps for part in step.range.split(-(-len(step.range) // share), smallest)]
    worth = len(pieces) if program else -(-(batch.span + _RANGE_RECORDS * len(pieces)) // _TASK_RECORDS)
    tasks: list[list[Piece]] = [[] for _ in range(min(cores, len(pieces), worth))]
    loads = [(0, index) for index in range(len(tasks))]  # a heap: a linear search takes seconds for thousands of pieces
    for piece in sorted(pieces, key=lambda item: -len(item.range)):
        load, lightest = loads[0]
        tasks[lightest].append(piece)
        heapreplace(loads, (load + len(piece.range), lightest))
    return [sorted(task, key=lambda item: (item.source, item.range)) for task in tasks]


def run_pieces(context: SparkContext, job: JobSpec, tasks: Sequence[Sequence[Piece]]) -> list[RangeReport]:
    """Run the tasks on Spark and collect their reports, which contain no records.

    Raises:
        NotAvailable: the job contains credentials, and Spark's connections are not private.
        KpipeError: a piece failed.
        WorkerLost: a process that ran tasks died.
    """
    transport_security.check_private(context, job)
    context.setJobGroup(job.batch, f"kpipe batch {job.batch}")
    try:
        results = _slots(context, len(tasks)).mapPartitionsWithIndex(lambda at, none: _task(job, tasks[at], none)).collect()
    except Exception as error:  # failing tasks return a `Failure`: an exception means that a process of Spark's failed
        raise lost(f"batch {job.batch}", error) from error
    failures = [item for item in results if isinstance(item, Failure)]
    if failures:
        raise _first(failure.error() for failure in failures)
    return [item for item in results if isinstance(item, RangeReport)]


def _first(errors: Iterable[KpipeError]) -> KpipeError:
    """Return the error to raise: an error that needs a fix before a retriable one; all logs that were cut are one error."""
    found = sorted(errors, key=lambda error: (not isinstance(error, LogTruncated), error.retriable))
    if isinstance(found[0], LogTruncated):
        found[0].others = tuple(error for error in found[1:] if isinstance(error, LogTruncated))
    return found[0]


def choose_pool(context: SparkContext, pool: str) -> None:
    """Run this thread's next jobs in a pool, where the session schedules by pools (`kpipe serve`).

    PySpark gives each Python thread a thread of the JVM ("pinned threads"), so that pool and job group are the thread's own.
    """
    if _is_fair(context):
        context.setLocalProperty("spark.scheduler.pool", pool)


@lru_cache(maxsize=8)
def _is_fair(context: SparkContext) -> bool:
    return context.getConf().get("spark.scheduler.mode", "FIFO") == "FAIR"


@lru_cache(maxsize=8)
def _slots(context: SparkContext, tasks: int) -> RDD[Any]:
    """Return an empty RDD with this many partitions. Making one for each batch costs a file and 15 calls of the JVM."""
    return context.parallelize((), tasks)


def lost(doing: str, error: Exception) -> KpipeError:
    """Convert an error of Spark itself; tasks that fail return a `Failure` instead."""
    text, what = str(error), f"{doing}: Spark could not finish its tasks"
    missing = re.search(r"\(TID \d+\) \((\S+) executor \S+\): (.*)", text)
    if missing and (python_error := without_python(what, missing[1], missing[2])):
        return python_error
    if "SparkContext was shut down" in text or "SparkContext has been shutdown" in text:
        return KpipeError(
            f"{what}: the cluster has ended the application", "see the application's page for the reason; run it again"
        )
    died = re.search(r"Python worker [a-z ]*[a-z]|ExecutorLostFailure|cannot run anywhere", text)
    if died:
        return WorkerLost(f"{what}: {died[0]}", "killed, or out of memory? See dmesg; lower batch.max_offsets_per_partition")
    task = re.search(r"\(TID.*?\): (.+)", text)
    cause = re.search(r"^: (?:[\w.$]+: )?(.+)", text, re.MULTILINE)  # follows Py4J's own line
    first = cause[1] if cause else text.strip().partition("\n")[0]
    reason = "its JVM has ended" if isinstance(error, ConnectionError) else task[1] if task else first
    found = KpipeError(f"{what}: {reason or type(error).__name__}", "see logs/spark.log in KPIPE_HOME; run it again")
    found.may_quote = True  # an exception of a task
    return found


def without_python(doing: str, host: str, message: str) -> KpipeError | None:
    """Return an error if Spark's message about a task on that worker means that Python is missing there."""
    program = re.search(r"Cannot run program \"([^\"]+)\"", message)
    if program is None:
        return None
    return KpipeError(
        f"{doing}: worker {host} has no Python {program[1]}",
        "run `kpipe environment` to ship Python with the job; or set KPIPE_SPARK_PYTHON to an interpreter that every worker has",
    )


class Moved(Exception):
    """A task could not reach something from its host; raised so that Spark retries the task on another one."""


def _task(job: JobSpec, pieces: Sequence[Piece], none: Iterable[Any]) -> Iterator[RangeReport | Failure]:
    """Run the pieces.

    Args:
        job: the batch's.
        pieces: to read.
        none: the partition's empty input. Spark does not reuse a worker that has not read it.
    """
    from pyspark import TaskContext

    from resources.spark.task import range_task

    warm_up.settle()
    if not worker_retirement.is_due():
        deque(none, maxlen=0)
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for item in range_task.run(job, pieces, attempt):
        if job.moves and attempt == 0 and isinstance(item, Failure) and item.worth_retrying_elsewhere:
            raise Moved(item.what)
        yield item
