"""The interface that runs the tasks of batches, on the Spark of this process (context_runner.py) or of `kpipe serve`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work

if TYPE_CHECKING:  # imports decoders, which a run without new records does not need
    from resources.spark.task.task_spec import JobSpec

__all__ = ["BatchRunner"]


class BatchRunner(ABC):
    """Runs the batches of one run, one at a time. Only `cancel` may be called by another thread meanwhile."""

    @abstractmethod
    def run(self, batch: Batch, job: JobSpec, pool: str) -> list[RangeReport]:
        """Run the tasks of a batch, and return their reports.

        Args:
            batch: what to read.
            job: for all tasks. Its program is an absolute path, and its lookups are in this process.
            pool: Spark's pool for the tasks, where Spark schedules by pools.

        Raises:
            KpipeError: a task failed, or Spark could not run it.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Make a call of `run` in another thread end soon; do nothing if none is running."""

    def release(self) -> None:  # noqa: B027 - few have anything to free
        """Free what Spark keeps of the batches so far, such as broadcasts. None is running; others may follow."""

    @abstractmethod
    def work(self) -> Work:
        """Return the work of all batches so far."""
