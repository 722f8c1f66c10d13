"""Run tasks on other machines: complete their job, and check that they share the driver's staging folder."""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.errors import StagingFailed
from resources.object_store.config import StoreAccess
from resources.object_store.open_file import opened
from resources.object_store.uri import is_remote
from resources.spark.cluster.executors import attended, slots, there
from resources.spark.driver.scheduling import SMALLEST_PIECE, lost, run_pieces, share_out, without_python
from resources.spark.jvm.transport_security import check_private
from resources.spark.task.host_check import NOT_SHARED, here
from resources.spark.task.task_spec import JobSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["RemoteWorkers", "failures", "look", "sent", "stored"]

# A probe task stays busy for this long, so that Spark starts the other tasks of its wave on other executors.
_STAY_S = 0.3
_LOOK, _MOST_TASKS = "the check of the workers", 10_000
_PROGRAMS = "kpipe-programs"
"""Copies of programs, in an executor's working folder."""


class RemoteWorkers:
    """Workers on other machines, as one stager uses them.

    Args:
        log: the log of Spark's JVM.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._looked = False
        self._work = Work()

    def sent(self, context: SparkContext, job: JobSpec) -> JobSpec:
        """Return the job as remote tasks receive it. The first call also checks all workers.

        Raises:
            StagingFailed: a worker cannot see the staging folder.
            KpipeError: Spark could not run the check.
        """
        if not self._looked:
            look(context, job.staging, self._log)
            self._looked = True
        return replace(sent(job), moves=there(context) > 1)

    def run(self, context: SparkContext, job: JobSpec, batch: Batch) -> list[RangeReport]:
        """Stage a batch on remote workers.

        Raises:
            KpipeError: see `sent` and `run_pieces`; or no executor starts.
        """
        job, pieces = self.sent(context, job), max(len(batch.steps), batch.span // SMALLEST_PIECE)
        with attended(context, batch.id, self._log):
            tasks = share_out(batch, slots(context, pieces), program=job.program is not None)
            return run_pieces(context, job, tasks)

    def took(self, reports: Iterable[RangeReport]) -> None:
        """Add the work of these reports."""
        self._work = self._work.with_reports(reports)

    def work(self, context: SparkContext | None) -> Work:
        """Return the work so far, with the application's id and web page."""
        if context is None:
            return self._work
        named = replace(self._work, application=str(context.applicationId), url=str(context.uiWebUrl or ""))
        return named.with_failures(failures(context))


def failures(context: SparkContext) -> dict[str, int]:
    """Count failed tasks by the host of their executor, including executors that have ended; empty once Spark has stopped.

    Reads the status store of Spark's UI and REST API, which exists even when both are turned off.
    """
    failed: Counter[str] = Counter()
    with suppress(Exception):  # the JVM may have ended, and these figures are informational
        executors = context._jsc.sc().statusStore().executorList(False)
        for index in range(executors.size()):
            executor = executors.apply(index)
            failed[str(executor.hostPort()).rpartition(":")[0]] += int(executor.failedTasks())
    return {host: count for host, count in failed.items() if count}


def sent(job: JobSpec) -> JobSpec:
    """Return the job as remote tasks receive it, and create the batch's folder unless staging is an object store."""
    if not is_remote(job.staging):
        try:
            Path(job.staging, job.batch).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StagingFailed(f"cannot write {job.staging}: {error.strerror or error}", NOT_SHARED) from error
    return replace(stored(job), programs=_PROGRAMS, remote=True)


def stored(job: JobSpec) -> JobSpec:
    """Add the object store's credentials, unless the job has some: workers do not look up credentials themselves."""
    return job if job.store is not None else replace(job, store=_access(job.staging))


def _access(staging: str) -> StoreAccess | None:
    """Return this process's current access to the store; read for each batch, because credentials of roles expire."""
    if not is_remote(staging):
        return None
    from resources.object_store.clients import store

    return store(staging).access()


def look(context: SparkContext, staging: str, log: Path | None = None) -> list[str]:
    """Check before the first batch that each worker and the driver can read each other's files in the staging location.

    Args:
        context: of the application.
        staging: a folder or an object store's prefix.
        log: the log of Spark's JVM.

    Returns:
        Names of the hosts that answered.

    Raises:
        NotAvailable: workers need the store's credentials, and Spark's connections are not private.
        StagingFailed: a worker and the driver do not see each other's files.
        KpipeError: Spark could not run the check, or no executor starts.
    """
    # Named like a batch's folder: garbage collection removes it if this process is killed here.
    folder, token, access = f"{staging}/{uuid.uuid4().hex}", uuid.uuid4().hex, _access(staging)
    if access is not None:
        check_private(context, access)
    try:
        _write(f"{folder}/driver", token)
        cores = context.defaultParallelism
        group = f"kpipe checks its workers {token}"
        context.setJobGroup(group, "kpipe: do workers share the staging location?")
        with attended(context, group, log):
            try:
                probes = context.parallelize(range(cores), cores)
                answers = probes.mapPartitions(lambda items: _probe(items, folder, token, access)).collect()
            except Exception as error:
                raise lost(_LOOK, error) from error
        _check_python(context, group)
        for host, file, problem in answers:
            problem = problem or _differs(file, token)
            if problem:
                raise StagingFailed(
                    f"worker {host} and this machine do not share the staging location {staging}: {problem}", NOT_SHARED
                )
        return sorted({host for host, _, _ in answers})
    except OSError as error:
        raise StagingFailed(f"cannot write to {staging}: {error.strerror or error}", NOT_SHARED) from error
    finally:
        _clear(folder)


def _check_python(context: SparkContext, group: str) -> None:
    """Check that no task of this job failed because its worker has no Python: each later batch would repeat the failure.

    Raises:
        KpipeError: a worker has no Python.
    """
    scala, tracker = context._jsc.sc(), context.statusTracker()
    scala.listenerBus().waitUntilEmpty()  # the status store is updated after a job ends
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            tasks = scala.statusStore().taskList(stage, 0, _MOST_TASKS)
            for task in (tasks.apply(index) for index in range(tasks.size())):
                message = task.errorMessage()
                error = without_python(_LOOK, task.host(), message.get()) if message.isDefined() else None
                if error is not None:
                    raise error


def _probe(items: Iterable[int], folder: str, token: str, access: StoreAccess | None) -> Iterator[tuple[str, str, str]]:
    """Return from a task: host, file that it wrote, and the problem or an empty text."""
    sum(items)  # Spark does not reuse a worker that has not read all of its input
    if access is not None:
        from resources.object_store.clients import use

        use(access)
    file = f"{folder}/{uuid.uuid4().hex}"
    problem = _differs(f"{folder}/driver", token)
    if not problem:
        try:
            _write(file, token, new_folder=False)
        except OSError as error:
            problem = f"it cannot write there: {error.strerror or error}"
    time.sleep(_STAY_S)
    yield here(), file, problem


def _differs(file: str, token: str) -> str:
    try:
        with opened(file) as stream:
            return "" if stream.read() == token.encode() else "it contains another file of that name"
    except OSError as error:
        return f"one cannot read what the other wrote: {error.strerror or error}"


def _write(file: str, text: str, new_folder: bool = True) -> None:
    if is_remote(file):
        from resources.object_store.clients import store

        store(file).put(file, text.encode())
        return
    if new_folder:
        Path(file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(file).write_text(text)


def _clear(folder: str) -> None:
    with suppress(OSError):
        if is_remote(folder):
            from resources.object_store.clients import store

            for entry in store(folder).listed(f"{folder}/"):
                store(folder).remove(entry.uri)
        else:
            shutil.rmtree(folder, ignore_errors=True)
