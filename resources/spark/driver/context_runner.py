"""Run the tasks of batches on the SparkContext of this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work
from resources.lookups.broadcasts import Broadcasts
from resources.spark.cluster.master import is_local
from resources.spark.driver.batch_runner import BatchRunner
from resources.spark.driver.remote_workers import RemoteWorkers, stored
from resources.spark.driver.scheduling import choose_pool, run_pieces, share_out
from resources.spark.task.task_spec import JobSpec, ProgramSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ContextRunner"]


class ContextRunner(BatchRunner):
    """Runs batches on a SparkContext of this process.

    Args:
        context: of Spark.
        log: the log of Spark's JVM.
    """

    def __init__(self, context: SparkContext, log: Path | None = None) -> None:
        self._context, self._remote_workers = context, RemoteWorkers(log)
        self._lookups = Broadcasts(context)
        self._shipped: set[str] = set()
        self._group = ""  # Spark's job group while a batch runs

    def run(self, batch: Batch, job: JobSpec, pool: str) -> list[RangeReport]:
        """See `BatchRunner`."""
        context = self._context
        job = replace(job, program=self._ship(job.program), lookups=self._lookups.of(job.lookups))
        choose_pool(context, pool)
        self._group = batch.id
        try:
            if is_local(str(context.master)):
                tasks = share_out(batch, context.defaultParallelism, program=job.program is not None)
                reports = run_pieces(context, stored(job), tasks)
            else:
                reports = self._remote_workers.run(context, job, batch)
        finally:
            self._group = ""
        self._remote_workers.took(reports)
        return reports

    def cancel(self) -> None:
        """See `BatchRunner`."""
        if self._group:
            self._context.cancelJobGroup(self._group)

    def release(self) -> None:
        """See `BatchRunner`."""
        self._lookups.release()

    def work(self) -> Work:
        """See `BatchRunner`."""
        return self._remote_workers.work(self._context)

    def _ship(self, program: ProgramSpec | None) -> ProgramSpec | None:
        """Send the program's file to all workers, once a session, and return the program under the name that it has there.

        Archives are shipped as files and unpacked by kpipe, which rejects members that lead outside; Spark's own unpacking
        does not check.
        """
        if program is None:
            return None
        if program.file not in self._shipped:
            self._context.addFile(program.file)
            self._shipped.add(program.file)
        return replace(program, file=Path(program.file).name)
