"""Spark: one session a process, and the stager that spreads a batch over its cores."""

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
from resources.spark.driver.scratch_folders import scratch, sockets, sweep
from resources.spark.task.task_spec import Failure, Job

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["lost", "prepared", "run_pieces", "settings", "share_out", "start", "started", "stop_at_exit", "warm"]

# A piece shorter than this is not split further: opening a consumer costs about as much as reading so many (20 ms).
SMALLEST_PIECE = 20_000
# On other machines Spark may run a task again elsewhere: when its executor is gone, or when it could not reach something from
# there (`Moved`). Other errors of kpipe's come back as results. On this machine nothing would be there to run it.
_ATTEMPTS = 4
# An executor that failed a task does not get that task again, and nothing follows for other tasks: an outage of Kafka's makes
# every task fail once, wherever it is. Where no executor is left for a task, Spark gives up soon, and kpipe repeats the batch.
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
    """Spark's configuration, the same for the command line and for Dagster's resource.

    Args:
        home: KPIPE_HOME; Spark's scratch folder lies in it.
        master: Spark's master; KPIPE_SPARK_MASTER or `local[*]` by default.

    Raises:
        NotAvailable, InvalidPipeline: kpipe cannot run on it (resources/spark/cluster/master.py).
        KpipeError: the home's packed environment is an old one.
    """
    chosen = check(master)
    asked = {f"spark.executorEnv.{name}": os.environ[name] for name in (failpoints.VARIABLE,) if name in os.environ}
    if not is_local(chosen):
        asked |= _elsewhere(home)
    else:
        # Over TCP each task waits some 40 ms for its input: the JVM's second small write waits until the first is
        # acknowledged (Nagle's algorithm), which the other end puts off (delayed acknowledgements). Measured: a wave of two
        # empty tasks takes 84 ms over TCP and 39 ms over sockets of the file system; 18 ms with `_settle` below.
        asked |= {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(sockets(home)),
            # Records never pass through the JVM, only reports do; a second attempt inside Spark would hide what went wrong.
            "spark.task.maxFailures": "1",
            "spark.ui.enabled": "false",
            "spark.pyspark.python": sys.executable,
        }
    address = driver_address(chosen)
    if address is not None:
        asked |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    return asked | {
        "spark.master": chosen,
        "spark.app.name": "kpipe",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # The JVM only schedules: no record passes through it. Without its second compiler and with one collector thread
        # it starts with half the processor time (measured: 3.8 s against 7.2 s of CPU until the first job is done).
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Spark puts these before `extraJavaOptions`, whatever the user sets there.
        "spark.driver.defaultJavaOptions": jvm.options(),
        "spark.python.daemon.module": "resources.spark.driver.python_daemon",
        "spark.python.worker.reuse": "true",
        "spark.pyspark.driver.python": sys.executable,
        "spark.local.dir": str(scratch(home)),
        "spark.log.level": "ERROR",
        **(transport_security.LOCAL if is_local(chosen) else {}),
    }


def _elsewhere(home: Path) -> dict[str, str]:
    """What tasks on other machines need: kpipe's code, and an interpreter with its packages."""
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
        "spark.ui.enabled": "true",  # where people see what their cluster does
        "spark.executor.defaultJavaOptions": jvm.DENY_ATTACH,
    }


def started() -> bool:
    """Whether this process has a SparkContext already."""
    module = sys.modules.get("pyspark")
    return module is not None and module.SparkContext._active_spark_context is not None


def start(home: Path, master: str | None = None) -> SparkContext:
    """The process's SparkContext, started when there is none. Costs about 3 s the first time.

    Raises:
        NotAvailable: no Java.
        KpipeError: Spark does not start; the message holds the last lines of its log.
    """
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    asked = settings(home, master)
    with prepared(home, asked):
        context = SparkContext(conf=SparkConf().setAll(list(asked.items())))
    _let_the_jvm_go_first(context)
    stop_at_exit(context)
    return context


def stop_at_exit(context: SparkContext) -> None:
    """When this process ends in order, so does the application: executors' pods go, and the resource manager is told.

    The JVM does that by itself when its parent has gone, but in a container it is killed together with that.
    """
    if not is_local(str(context.master)):
        atexit.register(_stop, context)


def _stop(context: SparkContext) -> None:
    with suppress(Exception):  # its JVM has ended already
        context.stop()


def _let_the_jvm_go_first(context: SparkContext) -> None:
    """A signal to the whole process group ends the JVM, too; PySpark's accumulators, which nobody uses here, would answer its
    closed connection with a traceback while this process finishes in order.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextmanager
def prepared(home: Path, asked: Mapping[str, str]) -> Iterator[None]:
    """Inside, a session may be started: Java is chosen, the JVM's own output goes to home/logs/spark.log, and YARN has answered.

    Args:
        home: KPIPE_HOME.
        asked: Spark's settings; the interpreter of tasks PySpark takes from the environment when the session starts.

    Raises:
        NotAvailable: no Java; YARN does not answer, or does not take the application.
        KpipeError: what is inside failed; the message holds the last lines of the log.
    """
    os.environ.update({**spark_environment(), "PYSPARK_PYTHON": asked["spark.pyspark.python"]})
    (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(home)
    log = home / "logs" / "spark.log"
    try:
        deny_tracing()
        with _stderr_to(log), jvm.started_clean():
            if asked["spark.master"] == "yarn":
                yarn.answers(asked)
            yield
    except KpipeError:
        raise
    except Exception as error:
        refusal = kubernetes.refusal(log)
        if refusal:
            raise KpipeError(f"Spark does not start: {refusal}", kubernetes.RIGHTS) from error
        told = yarn.refused(error)
        if told is not None:
            raise told from error
        said = [line for line in log.read_text(errors="replace").splitlines() if line and not line[0].isspace()]
        tail = "; ".join(said[-3:])
        raise KpipeError(f"Spark does not start: {type(error).__name__}: {tail[-600:]}", f"see {log}") from error


class _stderr_to:
    """While inside, the process's stderr (file descriptor 2, which a JVM inherits) goes to a file."""

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
    """Pieces of the batch for each task: ranges are split when cores would idle, small ones share a task.

    Args:
        batch: what to read.
        cores: tasks that run at once.
        smallest: offsets below which a range is not split.

    Returns:
        At most `cores` lists, none empty, of about the same number of offsets.
    """
    share = max(smallest, -(-batch.span // max(1, cores)))
    pieces = [
        Piece(step.source, part) for step in batch.steps for part in step.range.split(-(-len(step.range) // share), smallest)
    ]
    tasks: list[list[Piece]] = [[] for _ in range(min(cores, len(pieces)))]
    loads = [(0, at) for at in range(len(tasks))]  # a heap: with thousands of both, a search for each piece would be seconds
    for piece in sorted(pieces, key=lambda item: -len(item.range)):
        load, lightest = loads[0]
        tasks[lightest].append(piece)
        heapreplace(loads, (load + len(piece.range), lightest))
    return [sorted(task, key=lambda item: (item.source, item.range)) for task in tasks]


def run_pieces(context: SparkContext, job: Job, tasks: Sequence[Sequence[Piece]]) -> list[RangeReport]:
    """Run the tasks on Spark and collect their reports: facts only, records stay where they are.

    Raises:
        NotAvailable: the job contains credentials, and Spark's connections are not private.
        KpipeError: what the first failing piece raised.
        WorkerLost: a process that ran tasks died.
    """
    transport_security.check_private(context, job)
    context.setJobGroup(job.batch, f"kpipe batch {job.batch}")
    try:
        work = context.parallelize(list(tasks), len(tasks))
        results = work.mapPartitions(lambda items: _task(job, items)).collect()
    except Exception as error:  # a task that fails answers so; what is raised here is about Spark's own processes
        raise lost(f"batch {job.batch}", error) from error
    failures = [item for item in results if isinstance(item, Failure)]
    if failures:
        # An error that is worth another try must not hide one that is not.
        raise min((failure.error() for failure in failures), key=lambda error: error.retriable)
    return [item for item in results if isinstance(item, RangeReport)]


def lost(doing: str, error: Exception) -> KpipeError:
    """What Spark's own error means: a task that fails answers so, and raises nothing."""
    text, what = str(error), f"{doing}: Spark could not finish its tasks"
    missing = re.search(r"\(TID \d+\) \((\S+) executor \S+\): (.*)", text)
    if missing and (found := without_python(what, missing[1], missing[2])):
        return found
    if "SparkContext was shut down" in text or "SparkContext has been shutdown" in text:
        return KpipeError(f"{what}: the cluster has ended the application", "see its page there for the reason; run it again")
    died = re.search(r"Python worker [a-z ]*[a-z]|ExecutorLostFailure|cannot run anywhere", text)
    if died:
        return WorkerLost(f"{what}: {died[0]}", "killed, or out of memory? See dmesg; lower batch.max_offsets_per_partition")
    task = re.search(r"\(TID.*?\): (.+)", text)
    said = re.search(r"^: (?:[\w.$]+: )?(.+)", text, re.MULTILINE)  # behind Py4J's own line
    first = said[1] if said else text.strip().partition("\n")[0]
    reason = "its JVM has ended" if isinstance(error, ConnectionError) else task[1] if task else first
    return KpipeError(f"{what}: {reason or type(error).__name__}", "see logs/spark.log in KPIPE_HOME; run it again")


def without_python(doing: str, host: str, said: str) -> KpipeError | None:
    """The error, if that is what Spark said of a task on that worker."""
    program = re.search(r"Cannot run program \"([^\"]+)\"", said)
    if program is None:
        return None
    return KpipeError(
        f"{doing}: worker {host} has no Python {program[1]}",
        "run `kpipe environment`, so that Spark brings one along; or set KPIPE_SPARK_PYTHON to one that every worker has",
    )


def warm(context: SparkContext) -> None:
    """One empty task on each core, so that Python workers are there and have imported what they need (some 2 s)."""
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).mapPartitions(_import_worker).collect()


class Moved(Exception):
    """A task could not reach something from where it ran, and is to be run once more elsewhere: Spark's language for that."""


def _import_worker(items: Iterable[int]) -> Iterator[int]:
    _settle()
    yield sum(items)  # a worker that has not read all of its input is not used again


def _settle() -> None:
    """What this worker process has imported stays: PySpark collects garbage after each task, 20 ms with all of it."""
    from resources.spark.task import range_task  # noqa: F401  what is to stay

    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _task(job: Job, items: Iterable[Sequence[Piece]]) -> Iterator[RangeReport | Failure]:
    from pyspark import TaskContext

    from resources.spark.task import range_task

    _settle()
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for pieces in items:
        for item in range_task.run(job, pieces, attempt):
            if job.moves and attempt == 0 and isinstance(item, Failure) and item.may_be_of_the_place:
                raise Moved(item.what)
            yield item
