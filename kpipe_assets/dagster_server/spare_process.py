"""A process that waits for the next run: it has imported Dagster and kpipe, and has started Spark.

The code server (warm_runs.py) starts it as the process of a run, without the run. It ends with that run, so no two runs share
a process. If the code server ends first, its end of the pipe closes, and this process ends. Spark's JVM ends with it.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["PING", "READY", "WARM_MODULE", "wait_for_run"]

#: Module whose runs use the Spark of kpipe's own resource: only for these Spark is started.
WARM_MODULE = "kpipe_assets.definitions"
#: The process has imported everything.
READY = b"ready"
#: The code server sends it, and the process answers with the same.
PING = b"ping"
# Imported on first use by a run of a pipeline, in the order of that use.
_USED_BY_RUNS = (
    "dagster._grpc.impl",
    "dagster._core.execution.api",
    "resources.kafka.topic_metadata",
    "resources.spark.driver.stager",
    "resources.destinations.duckdb",
)


def wait_for_run(connection: Connection, module: str | None, queue: Any, stop: Any) -> None:
    """Prepare, wait for a run, and execute it as Dagster's own process for a run does.

    Args:
        connection: the code server's pipe.
        module: the module with the definitions; they are loaded when the run begins, as they are then.
        queue: Dagster's queue, by which the code server learns that the run has begun.
        stop: Dagster's event that ends the run.
    """
    _prepare(module)
    message = _received(connection)
    if message is not None:
        from dagster._grpc.impl import start_run_in_subprocess

        arguments, job = message
        start_run_in_subprocess(arguments, job, queue, stop)


def _received(connection: Connection) -> Any:
    """Return the run's arguments; None if no run comes any more, or none could be executed here."""
    with connection, suppress(EOFError, OSError):  # the code server has ended
        with suppress(OSError):  # it may have ended after it has handed over the run
            connection.send_bytes(READY)
        while (message := connection.recv()) == PING:
            if not _spark_is_usable():
                return None
            connection.send_bytes(PING)
        return message
    return None


def _prepare(module: str | None) -> None:
    """Import what a run needs, and start Spark in a thread if it is this process's own and runs on this machine."""
    if module != WARM_MODULE:
        if module is not None:
            importlib.import_module(module)
        return
    from kpipe_assets.dagster_resources import SparkResource
    from resources.home import Home
    from resources.spark.cluster.master import SWITCH, chosen, is_local
    from resources.spark.jvm import early_start

    own = not os.environ.get(SWITCH)
    if own and is_local(chosen()):  # an idle application would occupy a cluster
        early_start.begin(SparkResource(home=str(Home.from_env().path)).context)
    for name in (module, *_USED_BY_RUNS, "pyspark" if own else "resources.spark.service.client"):
        with suppress(ImportError):  # an extra that is not installed: the run reports it
            importlib.import_module(name)


def _spark_is_usable() -> bool:
    """Return False if Spark's JVM was started and has ended since: a run in this process would fail."""
    pyspark = sys.modules.get("pyspark")
    gateway = getattr(getattr(pyspark, "SparkContext", None), "_gateway", None)
    return gateway is None or gateway.proc.poll() is None
