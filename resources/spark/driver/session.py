"""Start Spark's session, one for each process, and spread a batch over its cores."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import heapreplace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe import failpoints
from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.errors import KpipeError, WorkerLost
from kpipe.process_isolation import deny_tracing
from resources.java import spark_environment
from resources.spark.cluster import kubernetes, python_environment, yarn
from resources.spark.cluster.master import check, driver_address, is_local
from resources.spark.driver import jvm, transport_security
from resources.spark.driver.class_archive_maker import archive_for
from resources.spark.driver.scratch_folders import scratch, sockets, sweep
from resources.spark.task.task_spec import Failure, JobSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["lost", "prepared", "run_pieces", "settings", "share_out", "start", "started", "stop_at_exit", "warm"]

# A shorter piece is not split further: opening a consumer takes about as long as reading so many records (20 ms).
SMALLEST_PIECE = 20_000
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
        # 84 ms over TCP and 39 ms over Unix sockets; 18 ms with `_settle` below.
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
        # start (measured: 3.8 s against 7.2 s of CPU until the first job is done).
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Spark puts these before `extraJavaOptions`, also where the user has set some.
        "spark.driver.defaultJavaOptions": jvm.options(scratch(home)),
        "spark.python.daemon.module": "resources.spark.driver.python_daemon",
        "spark.python.worker.reuse": "true",
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
        "spark.executor.defaultJavaOptions": jvm.DENY_ATTACH,
    }


def started() -> bool:
    """Return True if this process has a SparkContext."""
    module = sys.modules.get("pyspark")
    return module is not None and module.SparkContext._active_spark_context is not None


def start(home: Path, master: str | None = None) -> SparkContext:
    """Return the process's SparkContext, started if necessary, which takes about 3 s.

    Raises:
        NotAvailable: Java is missing.
        KpipeError: Spark does not start; the message contains the last lines of its log.
    """
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    config = settings(home, master)
    with prepared(home, config):
        context = SparkContext(conf=SparkConf().setAll(list(config.items())))
    _let_the_jvm_go_first(context)
    stop_at_exit(context)
    return context


def stop_at_exit(context: SparkContext) -> None:
    """Stop the application when this process exits normally: executors' pods end, and the resource manager is notified.

    The JVM does so by itself when its parent exits; in a container, however, it is killed together with its parent.
    """
    if not is_local(str(context.master)):
        atexit.register(_stop, context)


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
        with _stderr_to(log), jvm.started_clean(archive_for(home, config)):
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
        tail = "; ".join(lines[-3:])
        raise KpipeError(f"Spark does not start: {type(error).__name__}: {tail[-600:]}", f"see {log}") from error


class _stderr_to:
    """Redirection of this process's stderr (file descriptor 2, which a JVM inherits) to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, 2)
        os.close(handle)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)


def share_out(batch: Batch, cores: int, smallest: int = SMALLEST_PIECE) -> list[list[Piece]]:
    """Split a batch into pieces for tasks: long ranges are split when cores would idle, short ones share a task.

    Args:
        batch: what to read.
        cores: tasks that run at once.
        smallest: offsets below which a range is not split.

    Returns:
        At most `cores` lists, none empty, with about the same number of offsets each.
    """
    share = max(smallest, -(-batch.span // max(1, cores)))
    pieces = [
        Piece(step.source, part) for step in batch.steps for part in step.range.split(-(-len(step.range) // share), smallest)
    ]
    tasks: list[list[Piece]] = [[] for _ in range(min(cores, len(pieces)))]
    loads = [(0, index) for index in range(len(tasks))]  # a heap: a linear search takes seconds for thousands of pieces
    for piece in sorted(pieces, key=lambda item: -len(item.range)):
        load, lightest = loads[0]
        tasks[lightest].append(piece)
        heapreplace(loads, (load + len(piece.range), lightest))
    return [sorted(task, key=lambda item: (item.source, item.range)) for task in tasks]


def run_pieces(context: SparkContext, job: JobSpec, tasks: Sequence[Sequence[Piece]]) -> list[RangeReport]:
    """Run the tasks on Spark and collect their reports, which contain no records.

    Raises:
        NotAvailable: the job contains credentials, and Spark's connections are not private.
        KpipeError: a piece failed.
        WorkerLost: a process that ran tasks died.
    """
    transport_security.check_private(context, job)
    context.setJobGroup(job.batch, f"kpipe batch {job.batch}")
    try:
        work = context.parallelize(list(tasks), len(tasks))
        results = work.mapPartitions(lambda items: _task(job, items)).collect()
    except Exception as error:  # failing tasks return a `Failure`: an exception means that a process of Spark's failed
        raise lost(f"batch {job.batch}", error) from error
    failures = [item for item in results if isinstance(item, Failure)]
    if failures:
        # A retriable error must not hide an error that needs a fix.
        raise min((failure.error() for failure in failures), key=lambda error: error.retriable)
    return [item for item in results if isinstance(item, RangeReport)]


def lost(doing: str, error: Exception) -> KpipeError:
    """Convert an error of Spark itself; tasks that fail return a `Failure` instead."""
    text, what = str(error), f"{doing}: Spark could not finish its tasks"
    missing = re.search(r"\(TID \d+\) \((\S+) executor \S+\): (.*)", text)
    if missing and (python_error := without_python(what, missing[1], missing[2])):
        return python_error
    if "SparkContext was shut down" in text or "SparkContext has been shutdown" in text:
        return KpipeError(
            f"{what}: the cluster has ended the application", "see the application's page for the reason; run it again"
        )
    died = re.search(r"Python worker [a-z ]*[a-z]|ExecutorLostFailure|cannot run anywhere", text)
    if died:
        return WorkerLost(f"{what}: {died[0]}", "killed, or out of memory? See dmesg; lower batch.max_offsets_per_partition")
    task = re.search(r"\(TID.*?\): (.+)", text)
    cause = re.search(r"^: (?:[\w.$]+: )?(.+)", text, re.MULTILINE)  # follows Py4J's own line
    first = cause[1] if cause else text.strip().partition("\n")[0]
    reason = "its JVM has ended" if isinstance(error, ConnectionError) else task[1] if task else first
    return KpipeError(f"{what}: {reason or type(error).__name__}", "see logs/spark.log in KPIPE_HOME; run it again")


def without_python(doing: str, host: str, message: str) -> KpipeError | None:
    """Return an error if Spark's message about a task on that worker means that Python is missing there."""
    program = re.search(r"Cannot run program \"([^\"]+)\"", message)
    if program is None:
        return None
    return KpipeError(
        f"{doing}: worker {host} has no Python {program[1]}",
        "run `kpipe environment` to ship Python with the job; or set KPIPE_SPARK_PYTHON to an interpreter that every worker has",
    )


def warm(context: SparkContext) -> None:
    """Run one empty task on each core, so that Python workers have started and imported their modules (some 2 s)."""
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).mapPartitions(_import_worker).collect()


class Moved(Exception):
    """A task could not reach something from its host; raised so that Spark retries the task on another one."""


def _import_worker(items: Iterable[int]) -> Iterator[int]:
    _settle()
    yield sum(items)  # Spark does not reuse a worker that has not read all of its input


def _settle() -> None:
    """Freeze what this worker has imported: PySpark collects garbage after each task, which takes 20 ms otherwise."""
    from resources.spark.task import range_task  # noqa: F401  imported to be frozen

    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _task(job: JobSpec, items: Iterable[Sequence[Piece]]) -> Iterator[RangeReport | Failure]:
    from pyspark import TaskContext

    from resources.spark.task import range_task

    _settle()
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for pieces in items:
        for item in range_task.run(job, pieces, attempt):
            if job.moves and attempt == 0 and isinstance(item, Failure) and item.worth_retrying_elsewhere:
                raise Moved(item.what)
            yield item
