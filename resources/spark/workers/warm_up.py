"""Import what tasks run into a Python worker of Spark before its first task, and keep it out of garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["settle", "warm"]


def warm(context: SparkContext) -> None:
    """Run one empty task on each core, so that Python workers have started and imported their modules (some 2 s)."""
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).mapPartitions(_import_worker).collect()


@cache
def settle() -> None:
    """Freeze what this worker has imported: PySpark collects garbage after each task, which takes 20 ms otherwise.

    Once in a worker: `gc.get_freeze_count` visits every frozen object, which took a quarter of a small batch's CPU time.
    """
    from resources.spark.task import range_task  # noqa: F401  imported to be frozen

    gc.collect()
    gc.freeze()


def _import_worker(items: Iterable[int]) -> Iterator[int]:
    settle()
    yield sum(items)  # Spark does not reuse a worker that has not read all of its input
