"""A pipeline with a program, a writer that remembers, and the oracle that judges what became of it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe.failpoints import POINTS
from kpipe_assets.chaos.processes import Run, stopped
from tests.commandline import Kpipe
from tests.patience import looks
from tests.survival.landings import DuckDBFile
from tests.survival.oracle import Oracle
from tests.survival.small import Small, run
from tests.survival.truth import Writer

PARTITIONS = 3
CANARY = "canary-8f1c2b7e-in-no-file-log-or-argv"
# Passes its lines through, after it has looked for what it must not find: the variable that only kpipe's own processes
# are to see, and the secret in anybody's arguments.
PROGRAM = """#!{python} -IS
import os, sys
if "KPIPE_FAULT" in os.environ:
    sys.exit("the program was given KPIPE_FAULT")
secret = os.environ["CANARY"]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if secret.encode() in open(f"/proc/{{pid}}/cmdline", "rb").read():
            sys.exit("the secret is in the arguments of " + pid)
    except OSError:
        pass
sys.stderr.write("at work with " + secret + "\\n")
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
"""


#: While a run is at one of these it has DuckDB's file, also when it is stopped: no successor can commit before it goes on.
HOLDING = DuckDBFile.holding
#: It has not committed yet: whoever commits first fences it.
EARLY = POINTS[: POINTS.index("commit.begin")]
#: Its batch is committed, and maybe nobody knows that yet.
LANDED = ("readback", "publish.before", "gc.unlink")
#: Reached inside of Spark's workers (and in the driver only when it looks for columns, which an old table makes needless).
IN_WORKERS = POINTS[POINTS.index("read.first") : POINTS.index("collect.all")]


#: Begun in this test: who is still there at its end is killed (conftest.py), as one that is stopped may hold what the next needs.
BEGUN: list[Small | Real] = []


def passes(point: str, *once: str) -> int:
    """At which passing something happens: in the middle of a run, where a point is passed more than once.

    `plan.offsets` is passed at the end, too; before that once, as batches behind the first are planned while one commits.
    Who is stopped in such a plan (`plan.frozen`) is stopped anywhere in that commit.
    """
    return 1 if point.startswith("gc") or point in once else 2


@dataclass
class Site:
    """One pipeline on one home, its topic and those who know what is right.

    Attributes:
        kpipe: the home and its command line.
        name: of the pipeline.
        writer: of the topic.
        oracle: of the table.
        notes: a folder for what runs say.
    """

    kpipe: Kpipe
    name: str
    writer: Writer
    oracle: Oracle
    notes: Path

    @property
    def staging(self) -> set[str]:
        """Batches that have staged files."""
        return {entry.name for entry in (self.kpipe.home / "staging").iterdir()}

    @property
    def variables(self) -> dict[str, str]:
        """That a run and its program need."""
        return {"CANARY": CANARY, **self.oracle.landing.variables}

    def define(self, **fields: Any) -> None:
        """The pipeline, with these fields changed."""
        program = self.kpipe.home.parent / "program.py"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        usual = {
            # A machine that does many things at once may take its time, and a killed run is not to be told from a slow one.
            "source": {"config": {"operation.timeout.ms": 60_000}},
            "batch": {"max_offsets_per_partition": 25, "interval_ms": 20, "max_retries": 0},
            "transform": {"program": str(program), "env": ["CANARY"]},
            "into": {**self.oracle.landing.into, "table": self.name},
        }
        self.kpipe.define(self.name, self.oracle.observer.topic, **{**usual, **fields})

    def small(self, fault: str = "", follow: bool = False, **more: str) -> Small:
        """Begin a run without a JVM in a process of its own."""
        begun = Small(self.kpipe.home, self.name, self.note(), fault, follow, **self.variables, **more)
        BEGUN.append(begun)
        return begun

    def real(self, fault: str = "", *arguments: str) -> Real:
        """Begin `kpipe run`, as people do."""
        more = {failpoints.VARIABLE: fault} if fault else {}
        begun = Real(self.kpipe, self.name, self.note(), arguments, {**self.variables, **more})
        BEGUN.append(begun)
        return begun

    def note(self) -> Path:
        """An empty file for what a run says: nothing waits for a reader, as it would at the end of a pipe."""
        handle, path = tempfile.mkstemp(".txt", "said-", self.notes)
        os.close(handle)
        return Path(path)

    def go_on(self, lock_timeout_s: float | None = None) -> list[Committed]:
        """A run without a JVM in this process, until caught up."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            return list(run(self.kpipe.home, self.name, lock_timeout_s))

    def go_on_patiently(self, within: float = 300) -> None:
        """The same, for as long as errors say that it may be tried again: a broker that comes back takes its time."""
        until = time.monotonic() + within
        while True:
            try:
                self.go_on()
            except KpipeError as error:
                if not error.retriable or time.monotonic() > until:
                    raise
            else:
                return

    def exact(self) -> None:
        """A run until caught up ends exact, and one more does nothing."""
        self.go_on()
        problems = self.oracle.problems()
        assert not problems, problems
        assert self.go_on() == []

    def processes(self, within: float = 300) -> list[str]:
        """What is still there of this home's processes after they had time to notice that their parent is gone."""
        return self.kpipe.left_behind(within)


class Real(Run):
    """`kpipe run` in a process and session of its own."""

    def __init__(self, kpipe: Kpipe, name: str, said: Path, arguments: Sequence[str], more: Mapping[str, str]) -> None:
        self.said_file = said
        super().__init__([sys.executable, "-m", "kpipe_assets.cli", "run", name, *arguments], kpipe.environment(**more), said)

    def end(self, within: float = 600) -> tuple[int, str]:
        """Exit status and what it said, errors last."""
        return self._process.wait(within), self.output.read_text() + self.errors.read_text()


def kill(one: Small | Real) -> tuple[int, str]:
    """All of it, as a power cut would: nobody has time to say goodbye."""
    for send in (os.killpg, os.kill):  # the second for one that has just begun, and has no group of its own yet
        with suppress(ProcessLookupError):
            send(one.pid, signal.SIGKILL)
    return one.end(300)


def wait_stopped(run: Small | Real, within: float = 300) -> psutil.Process:
    """The process of the run that has stopped itself: its own, or a worker below it."""
    for _ in looks(within, 0.01):
        assert run.poll() is None, f"ended with {run.poll()} instead of stopping"
        if (found := stopped(run.pid)) is not None:
            return found
    raise AssertionError("nothing has stopped itself")
