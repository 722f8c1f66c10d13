"""A pipeline with a program, a writer that remembers, and the oracle that judges what became of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from kpipe import faults
from kpipe.batch import Committed
from resources.local.broker import LocalBroker
from tests.commandline import Kpipe
from tests.survival import small
from tests.survival.oracle import Observer, Oracle
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


@dataclass
class Site:
    """One pipeline on one home, its topic and those who know what is right.

    Attributes:
        kpipe: the home and its command line.
        name: of the pipeline.
        writer: of the topic.
        oracle: of the table.
    """

    kpipe: Kpipe
    name: str
    writer: Writer
    oracle: Oracle

    @property
    def staging(self) -> set[str]:
        """Batches that have staged files."""
        return {entry.name for entry in (self.kpipe.home / "staging").iterdir()}

    def define(self, **fields: Any) -> None:
        """The pipeline, with these fields changed."""
        program = self.kpipe.home.parent / "program.py"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        usual = {
            "batch": {"max_offsets_per_partition": 25, "interval_ms": 20, "max_retries": 0},
            "transform": {"program": str(program), "env": ["CANARY"]},
        }
        self.kpipe.define(self.name, self.oracle.observer.topic, **{**usual, **fields})

    def small(self, fault: str = "") -> small.Small:
        """Begin a run without a JVM in a process of its own."""
        return small.Small(self.kpipe.home, self.name, fault, CANARY=CANARY)

    def real(self, fault: str = "", *arguments: str) -> subprocess.Popen[str]:
        """Begin `kpipe run`, as people do."""
        more = {faults.VARIABLE: fault} if fault else {}
        return self.kpipe.start("run", self.name, *arguments, CANARY=CANARY, **more)

    def go_on(self, lock_timeout_s: float | None = None) -> list[Committed]:
        """A run without a JVM in this process, until caught up."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CANARY", CANARY)
            return small.run(self.kpipe.home, self.name, lock_timeout_s)

    def exact(self) -> None:
        """A run until caught up ends exact, and one more does nothing."""
        self.go_on()
        assert self.oracle.problems() == []
        assert self.go_on() == []

    def processes(self, within: float = 20) -> list[str]:
        """What is still there of this home's processes after they had time to notice that their parent is gone."""
        until = time.monotonic() + within
        while (left := self.kpipe.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return left


@pytest.fixture(scope="module")
def site(kafka_broker: LocalBroker, brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    """`site(name)`: a pipeline of that name on a home and a topic of its own."""
    made: list[Site] = []

    def make(name: str, address: str = brokers, broker: LocalBroker = kafka_broker, seed: int = 1) -> Site:
        topic = f"survival-{name}-{os.getpid()}-{len(made)}"
        broker.create_topic(topic, PARTITIONS)
        home = tmp_path_factory.mktemp(name) / "home"
        writer = Writer(address, topic, PARTITIONS, random.Random(seed))
        observer = Observer(address, topic, PARTITIONS)
        found = Site(Kpipe(home, address), name, writer, Oracle(home, name, observer, writer.truth, CANARY))
        made.append(found)
        found.define()
        return found

    yield make
    for one in made:
        for process in psutil.process_iter(["environ", "cmdline"]):
            if process.pid != os.getpid() and str(one.kpipe.home) in f"{process.info['environ']} {process.info['cmdline']}":
                process.kill()


def wait_stopped(run: subprocess.Popen[str] | small.Small, within: float = 90) -> psutil.Process:
    """The process of the run that has stopped itself: its own, or a worker below it."""
    until = time.monotonic() + within
    top = psutil.Process(run.pid)
    while time.monotonic() < until:
        assert run.poll() is None, f"ended with {run.poll()} instead of stopping"
        with suppress(psutil.NoSuchProcess):
            for one in (top, *top.children(recursive=True)):
                if one.status() == psutil.STATUS_STOPPED:
                    return one
        time.sleep(0.01)
    raise AssertionError("nothing has stopped itself")
