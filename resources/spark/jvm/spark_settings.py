"""Spark's configuration: memory, retries, sockets, workers; on this machine and on a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kpipe import failpoints
from resources.spark.cluster import python_environment
from resources.spark.cluster.master import check, driver_address, is_local
from resources.spark.jvm import jvm_launch, transport_security
from resources.spark.jvm.scratch_folders import scratch, sockets

__all__ = ["settings"]

# On other machines Spark may retry a task elsewhere: when its executor is lost, or when it could not reach something from
# there (`Moved`). kpipe's other errors come back as results. On this machine, one executor runs all tasks.
_ATTEMPTS = 4
# An executor that failed a task does not get that task again, but still gets others: an outage of Kafka makes every task fail
# once, wherever it runs. If no executor is left for a task, Spark gives up soon, and kpipe repeats the batch.
_EXCLUDED = "spark.excludeOnFailure"
_ELSEWHERE = {
    "spark.task.maxFailures": str(_ATTEMPTS),
    f"{_EXCLUDED}.taskAndStage.enabled": "true",
    f"{_EXCLUDED}.application.enabled": "false",
    f"{_EXCLUDED}.task.maxTaskAttemptsPerExecutor": "1",
    f"{_EXCLUDED}.task.maxTaskAttemptsPerNode": str(_ATTEMPTS - 1),
    f"{_EXCLUDED}.stage.maxFailedTasksPerExecutor": "1000000",
    f"{_EXCLUDED}.stage.maxFailedExecutorsPerNode": "1000000",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "10s",
}


def settings(home: Path, master: str | None = None) -> dict[str, str]:
    """Return Spark's configuration, the same for the command line and for Dagster's resource.

    Args:
        home: KPIPE_HOME, which contains Spark's scratch folder.
        master: Spark's master; KPIPE_SPARK_MASTER or `local[*]` by default.

    Raises:
        NotAvailable, InvalidPipeline: kpipe cannot run on this master (resources/spark/cluster/master.py).
        KpipeError: the packed environment in the home is outdated.
    """
    chosen = check(master)
    config = {f"spark.executorEnv.{name}": os.environ[name] for name in (failpoints.VARIABLE,) if name in os.environ}
    if not is_local(chosen):
        config |= _elsewhere(home)
    else:
        # Over TCP each task waits some 40 ms for its input: Nagle's algorithm delays the JVM's second small write until
        # the first is acknowledged, and the receiver delays its acknowledgement. Measured: a wave of two empty tasks takes
        # 84 ms over TCP and 39 ms over Unix sockets; 18 ms with `_settle` in scheduling.py.
        config |= {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(sockets(home)),
            # Only reports pass through the JVM, no records. A retry inside Spark would hide the cause of a failure.
            "spark.task.maxFailures": "1",
            "spark.ui.enabled": "false",
            "spark.pyspark.python": sys.executable,
        }
    address = driver_address(chosen)
    if address is not None:
        config |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    return config | {
        "spark.master": chosen,
        "spark.app.name": "kpipe",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # The JVM only schedules. Without its second compiler and with one collector thread it needs half the CPU time to
        # start (measured: 3.8 s against 7.2 s of CPU until the first job is done). Its heap begins small: by default it begins
        # with 1/64 of the machine's memory, and the JVM fills that before it collects garbage for the first time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms32m",
        # Spark puts these before `extraJavaOptions`, also where the user has set some.
        "spark.driver.defaultJavaOptions": jvm_launch.options(scratch(home)),
        "spark.python.daemon.module": "resources.spark.workers.python_daemon",
        "spark.python.worker.reuse": "true",
        # Spark checks every 2 s whether a task was cancelled, then waits for so long before it kills the task's worker. Nothing
        # that a task has written is used without its report.
        "spark.python.task.killTimeout": "100ms",
        "spark.pyspark.driver.python": sys.executable,
        "spark.local.dir": str(scratch(home)),
        "spark.log.level": "ERROR",
        **(transport_security.LOCAL if is_local(chosen) else {}),
    }


def _elsewhere(home: Path) -> dict[str, str]:
    """Return settings that tasks on other machines need: kpipe's code, and an interpreter with its packages."""
    archives = [f"{python_environment.code(home)}#{python_environment.CODE}"]
    python = os.environ.get("KPIPE_SPARK_PYTHON", "")
    if not python:
        packed = python_environment.packed(home)
        if packed is not None:
            archives.append(f"{packed.path}#{python_environment.ENVIRONMENT}")
        python = python_environment.PYTHON if packed is not None else sys.executable
    return {
        "spark.archives": ",".join(archives),
        "spark.executorEnv.PYTHONPATH": python_environment.CODE,
        "spark.pyspark.python": python,
        **_ELSEWHERE,
        "spark.ui.enabled": "true",  # the cluster's pages link to it
        "spark.executor.defaultJavaOptions": jvm_launch.DENY_ATTACH,
    }
