"""Tasks on other machines, from the driver's side: what they are sent, and proof that they see what the driver sees."""

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
from resources.spark.driver.session import SMALLEST_PIECE, lost, run_pieces, share_out, without_python
from resources.spark.driver.transport_security import check_private
from resources.spark.task.host_check import NOT_SHARED, here
from resources.spark.task.task_spec import Job

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Away", "failures", "look", "sent", "stored"]

# A task that found what it looked for stays so long that others of its wave come to other executors.
_STAY_S = 0.3
_LOOK, _MOST_TASKS = "the first look at the workers", 10_000
_PROGRAMS = "kpipe-programs"
"""Copies of programs, in an executor's own folder."""


class Away:
    """What one stager knows of workers on other machines.

    Args:
        log: what Spark's JVM writes.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._looked = False
        self._work = Work()

    def sent(self, context: SparkContext, job: Job) -> Job:
        """The job as they get it. The first time, all of them are asked what they see.

        Raises:
            StagingFailed: a worker does not see what is staged.
            KpipeError: Spark could not ask them.
        """
        if not self._looked:
            look(context, job.staging, self._log)
            self._looked = True
        return replace(sent(job), moves=there(context) > 1)

    def run(self, context: SparkContext, job: Job, batch: Batch) -> list[RangeReport]:
        """Stage a batch on them.

        Raises:
            KpipeError: as `sent` and `run_pieces`, or there are no executors.
        """
        job, pieces = self.sent(context, job), max(len(batch.steps), batch.span // SMALLEST_PIECE)
        with attended(context, batch.id, self._log):
            return run_pieces(context, job, share_out(batch, slots(context, pieces)))

    def took(self, reports: Iterable[RangeReport]) -> None:
        """Remember who has done what."""
        self._work = self._work.with_reports(reports)

    def work(self, context: SparkContext | None) -> Work:
        """So far, with Spark's own name for it."""
        if context is None:
            return self._work
        named = replace(self._work, application=str(context.applicationId), url=str(context.uiWebUrl or ""))
        return named.with_failures(failures(context))


def failures(context: SparkContext) -> dict[str, int]:
    """Tasks that failed, by the address of their executor, of those that are gone, too; none once Spark has ended.

    Spark's own books of its application, which its pages and its REST API show: with them turned off as well.
    """
    found: Counter[str] = Counter()
    with suppress(Exception):  # the JVM may be gone: what is left are numbers for people
        executors = context._jsc.sc().statusStore().executorList(False)
        for at in range(executors.size()):
            one = executors.apply(at)
            found[str(one.hostPort()).rpartition(":")[0]] += int(one.failedTasks())
    return {host: count for host, count in found.items() if count}


def sent(job: Job) -> Job:
    """The job as tasks elsewhere get it; the folder of the batch is made, where there are folders."""
    if not is_remote(job.staging):
        try:
            Path(job.staging, job.batch).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StagingFailed(f"cannot write {job.staging}: {error.strerror or error}", NOT_SHARED) from error
    job = stored(job)
    also = tuple(replace(part, programs=_PROGRAMS, remote=True) for part in job.also)
    return replace(job, programs=_PROGRAMS, remote=True, also=also)


def stored(job: Job) -> Job:
    """Return the job with what its tasks need for staging in an object store: no worker finds credentials by itself."""
    store = _access(job.staging)
    return replace(job, store=store, also=tuple(replace(part, store=store) for part in job.also))


def _access(staging: str) -> StoreAccess | None:
    """What this process finds now: credentials of roles change, so it is asked for each batch."""
    if not is_remote(staging):
        return None
    from resources.object_store.s3 import store

    return store().access()


def look(context: SparkContext, staging: str, log: Path | None = None) -> list[str]:
    """Before the first batch: each worker finds a file of the driver's in the staging place, and the driver one of each worker's.

    Args:
        context: of the application.
        staging: the place.
        log: what Spark's JVM writes.

    Returns:
        Names of the machines that answered.

    Raises:
        NotAvailable: they need the store's credentials, and Spark's connections are not private.
        StagingFailed: one does not see what another one writes.
        KpipeError: Spark could not run this on them, or there are none.
    """
    # Named as a batch's folder: should this process be killed here, it is collected as one.
    place, token, access = f"{staging}/{uuid.uuid4().hex}", uuid.uuid4().hex, _access(staging)
    if access is not None:
        check_private(context, access)
    try:
        _write(f"{place}/driver", token)
        cores = context.defaultParallelism
        group = f"kpipe looks at its workers {token}"
        context.setJobGroup(group, "kpipe: what workers see")
        with attended(context, group, log):
            try:
                looks = context.parallelize(range(cores), cores)
                answers = looks.mapPartitions(lambda items: _seen(items, place, token, access)).collect()
            except Exception as error:
                raise lost(_LOOK, error) from error
        _check_python(context, group)
        for host, file, problem in answers:
            found = problem or _differs(file, token)
            if found:
                raise StagingFailed(
                    f"worker {host} and this machine do not share the staging place {staging}: {found}", NOT_SHARED
                )
        return sorted({host for host, _, _ in answers})
    except OSError as error:
        raise StagingFailed(f"cannot write to {staging}: {error.strerror or error}", NOT_SHARED) from error
    finally:
        _clear(place)


def _check_python(context: SparkContext, group: str) -> None:
    """No task of that job has failed for want of Python: Spark has run it elsewhere then, and would again in every batch.

    Raises:
        KpipeError: one has.
    """
    scala, tracker = context._jsc.sc(), context.statusTracker()
    scala.listenerBus().waitUntilEmpty()  # its books are written behind the jobs
    for job in tracker.getJobIdsForGroup(group):
        about = tracker.getJobInfo(job)
        for stage in about.stageIds if about is not None else ():
            tasks = scala.statusStore().taskList(stage, 0, _MOST_TASKS)
            for task in (tasks.apply(at) for at in range(tasks.size())):
                said = task.errorMessage()
                found = without_python(_LOOK, task.host(), said.get()) if said.isDefined() else None
                if found is not None:
                    raise found


def _seen(items: Iterable[int], place: str, token: str, access: StoreAccess | None) -> Iterator[tuple[str, str, str]]:
    """In a task: machine, file that it wrote, and what is wrong."""
    sum(items)  # a worker that has not read all of its input is not used again
    if access is not None:
        from resources.object_store.s3 import use

        use(access)
    file = f"{place}/{uuid.uuid4().hex}"
    problem = _differs(f"{place}/driver", token)
    if not problem:
        try:
            _write(file, token, new_folder=False)
        except OSError as error:
            problem = f"it cannot write there: {error.strerror or error}"
    time.sleep(_STAY_S)
    yield here(), file, problem


def _differs(file: str, token: str) -> str:
    try:
        with opened(file) as there:
            return "" if there.read() == token.encode() else "it sees another file there"
    except OSError as error:
        return f"what one writes the other cannot read: {error.strerror or error}"


def _write(file: str, text: str, new_folder: bool = True) -> None:
    if is_remote(file):
        from resources.object_store.s3 import store

        store().put(file, text.encode())
        return
    if new_folder:
        Path(file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(file).write_text(text)


def _clear(place: str) -> None:
    with suppress(OSError):
        if is_remote(place):
            from resources.object_store.s3 import store

            for found in store().listed(f"{place}/"):
                store().remove(found.uri)
        else:
            shutil.rmtree(place, ignore_errors=True)
