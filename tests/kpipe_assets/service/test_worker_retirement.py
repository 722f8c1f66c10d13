"""Spark's Python workers that are old or large end after their task, and the next task gets a new one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark import SparkContext

from resources.spark.driver import scheduling
from resources.spark.task import range_task
from resources.spark.workers import worker_retirement
from tests.kpipe_assets.service.serving import until
from tests.processes import is_running

pytestmark = pytest.mark.spark


def worker(context: SparkContext, large: int) -> int:
    """Run one task where workers of this size are large, and return the worker's process id."""

    def task(none: Iterable[Any]) -> Iterator[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker_retirement, "_LARGE_BYTES", large)
            patch.setattr(range_task, "run", lambda *_: iter(()))
            assert list(scheduling._task(None, (), none)) == []  # type: ignore[arg-type]
        yield os.getpid()

    return int(context.parallelize((), 1).mapPartitions(task).collect()[0])


def test_a_worker_is_replaced_when_it_is_due(spark: SparkContext) -> None:
    kept = worker(spark, 1 << 40)
    assert is_running(kept)
    retired = worker(spark, 1)
    until(lambda: not is_running(retired))
    assert retired not in {worker(spark, 1 << 40) for _ in range(4)}
