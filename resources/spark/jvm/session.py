"""Start Spark's session, one for each process, and stop it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from resources.java import spark_environment
from resources.spark.cluster import kubernetes, yarn
from resources.spark.cluster.master import chosen, is_local
from resources.spark.jvm import early_start, jvm_launch
from resources.spark.jvm.class_archive_lookup import archive_for
from resources.spark.jvm.scratch_folders import sweep
from resources.spark.jvm.spark_settings import settings

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["prepared", "start", "start_early", "started"]

_LOG_BYTES = 1_000_000  # a longer log is truncated


def started() -> bool:
    """Return True if this process has a SparkContext."""
    # Another thread may be importing PySpark: the module exists before its class.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._active_spark_context is not None


def start(home: Path, master: str | None = None, more: Mapping[str, str] | None = None) -> SparkContext:
    """Return the process's SparkContext, started if necessary, which takes about 3 s.

    Args:
        home: KPIPE_HOME.
        master: see `settings`.
        more: settings beside those of `settings`.

    Raises:
        NotAvailable: Java is missing.
        KpipeError: Spark does not start; the message contains the last lines of its log.
    """
    from pyspark import SparkConf, SparkContext

    early_start.wait()
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    config = {**settings(home, master), **(more or {})}
    try:
        with prepared(home, config):
            context = SparkContext(conf=SparkConf().setAll(list(config.items())))
    except BaseException:
        _end_gateway()
        raise
    _let_the_jvm_go_first(context)
    if not is_local(str(context.master)):
        # The JVM ends the application when its parent exits; in a container, however, it is killed together with its parent.
        atexit.register(_stop, context)
    return context


def start_early(home: Path) -> None:
    """Start the SparkContext in a thread if it runs on this machine and is not there yet; `start` then waits for it.

    On a cluster, an application that a run does not use would occupy it.

    Args:
        home: KPIPE_HOME.
    """
    if is_local(chosen()) and not started():
        early_start.begin(lambda: start(home))


def _end_gateway() -> None:
    """End the JVM of a session that did not start: PySpark would use it again, even if it is dead."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # its connections are broken
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()


def _stop(context: SparkContext) -> None:
    with suppress(Exception):  # the JVM has already ended
        context.stop()


def _let_the_jvm_go_first(context: SparkContext) -> None:
    """Suppress the traceback of PySpark's accumulator server when the JVM ends before this process.

    A signal to the process group ends the JVM, too, while this process finishes in order. kpipe uses no accumulators.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextmanager
def prepared(home: Path, config: Mapping[str, str]) -> Iterator[None]:
    """Prepare this process for starting a session inside this block.

    Java is selected, the JVM's output goes to home/logs/spark.log, and YARN has answered where it is the master.

    Args:
        home: KPIPE_HOME.
        config: Spark's settings; PySpark reads the tasks' interpreter from the environment when the session starts.

    Raises:
        NotAvailable: Java is missing; YARN does not answer, or does not accept the application.
        KpipeError: the block failed; the message contains the last lines of the log.
    """
    os.environ.update({**spark_environment(), "PYSPARK_PYTHON": config["spark.pyspark.python"]})
    (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(home)
    log = home / "logs" / "spark.log"
    try:
        deny_tracing()
        with _opened(log) as output, jvm_launch.started_clean(output, archive_for(home, config)):
            if config["spark.master"] == "yarn":
                yarn.answers(config)
            yield
    except KpipeError:
        raise
    except Exception as error:
        refusal = kubernetes.refusal(log)
        if refusal:
            raise KpipeError(f"Spark does not start: {refusal}", kubernetes.RIGHTS) from error
        rejection = yarn.refused(error)
        if rejection is not None:
            raise rejection from error
        lines = [line for line in log.read_text(errors="replace").splitlines() if line and not line[0].isspace()]
        tail = "; ".join(lines[-3:]) or " ".join(str(error).split())
        raise KpipeError(f"Spark does not start: {type(error).__name__}: {tail[-600:]}", f"see {log}") from error


@contextmanager
def _opened(log: Path) -> Iterator[int]:
    """Open the log for a JVM. Others append to it, too: a process may wait with its Spark while a run uses another one."""
    keep = os.O_TRUNC if not log.exists() or log.stat().st_size > _LOG_BYTES or not early_start.is_starting() else 0
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | keep, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)
