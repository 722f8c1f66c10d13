"""Choose the Spark of a run: one of its own process, or that of `kpipe serve` (KPIPE_SPARK=service)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kpipe_assets.runs.service_lock import running_service
from resources.home import Home
from resources.spark.cluster.master import uses_service

if TYPE_CHECKING:
    from pyspark import SparkContext

    from resources.spark.driver.batch_runner import BatchRunner
    from resources.spark.service.client import ServiceSpark

__all__ = ["run_spark", "service_spark"]


def service_spark(home: Home) -> ServiceSpark | None:
    """Return the Spark of the home's service, without connecting; None if the run starts one of its own.

    Raises:
        InvalidPipeline: KPIPE_SPARK has another value.
    """
    if not uses_service():
        return None
    from resources.spark.service.client import ServiceSpark

    return ServiceSpark(home, lambda: str(running_service(home) or ""))


def run_spark(home: Home) -> Callable[[], SparkContext | BatchRunner]:
    """Return a function that returns the Spark of one run, and starts it if it is the process's own.

    Raises:
        InvalidPipeline: KPIPE_SPARK has another value.
    """
    service = service_spark(home)
    if service is not None:
        return lambda: service
    from resources.spark.jvm.session import start

    return lambda: start(home.path)
