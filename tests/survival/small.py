"""One run of a pipeline without a JVM: real Kafka, real reads, programs, files and DuckDB; only Spark is a stand-in.

The stand-in runs the tasks in this process, one after the other, through the same functions that Spark calls. It starts
in a second instead of six, so every crash-point can be tried often. What Spark itself does to a task that is killed is
shown by the tests that run `kpipe run` as people do.

`Small` begins such a run in a process of its own, forked from one that has imported everything already.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkFiles

from kpipe import failpoints
from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe_assets.runs.runner import Run
from resources.home import Home
from resources.spark.jvm import transport_security


class Context:
    """What kpipe uses of a SparkContext."""

    defaultParallelism = 2
    master = "local[2]"
    applicationId = "small"
    uiWebUrl = None

    def getConf(self) -> Mapping[str, str]:
        """As of a session on one machine. Nothing of this one leaves its process."""
        return transport_security.LOCAL

    def parallelize(self, items: Sequence[Any], slices: int) -> Context.Work:
        assert not items, "tasks find their part of the batch by their number"
        return Context.Work([[] for _ in range(slices)])

    def setJobGroup(self, name: str, description: str) -> None:
        """What is cancelled by that name would be this thread's work."""

    def cancelJobGroup(self, name: str) -> None:
        """It ends by itself."""

    def addFile(self, path: str) -> None:
        SparkFiles._root_directory = str(Path(path).parent)

    class Broadcast:
        """A value, which never leaves this process."""

        def __init__(self, value: Any) -> None:
            self.value = value

        def destroy(self, blocking: bool = False) -> None: ...

    def broadcast(self, value: Any) -> Context.Broadcast:
        return Context.Broadcast(value)

    class Work:
        def __init__(self, parts: list[list[Any]]) -> None:
            self._parts = parts

        def mapPartitionsWithIndex(self, function: Callable[[int, Iterator[Any]], Iterable[Any]]) -> Context.Work:
            return Context.Work([list(function(at, iter(part))) for at, part in enumerate(self._parts)])

        def collect(self) -> list[Any]:
            return [item for part in self._parts for item in part]


@contextmanager
def in_worker() -> Iterator[None]:
    """Shipped files are looked for as a worker does it."""
    kept = SparkFiles._is_running_on_worker, SparkFiles._root_directory
    SparkFiles._is_running_on_worker = True
    try:
        yield
    finally:
        SparkFiles._is_running_on_worker, SparkFiles._root_directory = kept


def run(home: Path, name: str, lock_timeout_s: float | None = None, follow: bool = False) -> Iterator[Committed]:
    """Batch after batch; until caught up, unless it follows.

    Raises:
        KpipeError: as `kpipe run`.
    """
    place = Home.at(home)
    context: Any = Context()
    whole = Run.real(place.pipeline(name), place, lambda: context)
    if lock_timeout_s is not None:
        held: Any = whole.destination
        owner = held if hasattr(held, "database") else held.engine
        (owner.database if hasattr(owner, "database") else owner.server).lock_timeout_s = lock_timeout_s
    with in_worker():
        yield from whole.batches(follow=follow)


# With this variable a run syncs nothing: a broken copy of kpipe, which a power cut must show.
UNSYNCED = "KPIPE_TEST_UNSYNCED"
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["tests.survival.small", "resources.spark.driver.stager", "resources.destinations.duckdb", "resources.kafka.topic_metadata"]
)


class Small:
    """A run in a process and session of its own.

    Args:
        home: KPIPE_HOME.
        name: of the pipeline.
        said: file for what it says.
        fault: as `KPIPE_FAULT`.
        follow: go on when caught up.
        more: further variables.
    """

    def __init__(self, home: Path, name: str, said: Path, fault: str = "", follow: bool = False, **more: str) -> None:
        self.said_file = said
        self._process = _processes.Process(target=_begin, args=(home, name, fault, follow, more, self.said_file))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def end(self, within: float = 300) -> tuple[int, str]:
        """Exit status and what it wrote to stderr."""
        self._process.join(within)
        status = self._process.exitcode
        assert status is not None, "it does not end"
        return status, self.said_file.read_text()


def killed(home: Path, name: str, point: str, **more: str) -> None:
    """Run a pipeline in a process of its own, which SIGKILL ends at a point of the driver (`commit.before:3`).

    It leaves what `kpipe run` leaves, and starts neither a Python nor a JVM. `kpipe run` itself is
    killed in test_spark.py.
    """
    said = home.parent / "killed.txt"
    said.touch()
    status, text = Small(home, name, said, f"{point}:kill", **more).end(600)
    assert status == -signal.SIGKILL, text


def _begin(home: Path, name: str, fault: str, follow: bool, more: dict[str, str], said: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    os.dup2(os.open(said, os.O_WRONLY), 2)
    os.environ.update(more)
    failpoints.arm(failpoints.Fault(fault) if fault else None)
    if UNSYNCED in more:
        os.fsync = lambda _: None
    try:
        for done in run(home, name, follow=follow):
            sys.stderr.write(f'{{"event": "batch", "seq": {done.seq}}}\n')
            sys.stderr.flush()
    except KpipeError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(error.exit_status)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
