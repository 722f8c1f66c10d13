"""Measure CPU seconds by test and by fixture: `pytest -p tests.cpu_usage --cpu-usage=FILE`.

Each line of FILE has the worker, CPU seconds, wall seconds, the phase and the test or fixture. CPU seconds
include processes that the test started, also those that outlive it: brokers, database servers, Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARKER = "KPIPE_CPU_USAGE"
_SHORT_S = 0.1  # the clocks of other processes are read only after phases that took longer


class CpuUsage:
    """Write the CPU seconds of each phase and fixture to a file.

    Args:
        path: file to append to; all xdist workers write to the same one.
        worker: name of this process.
    """

    def __init__(self, path: Path, worker: str) -> None:
        self.worker = worker
        self.file = path.open("a", encoding="utf-8", buffering=1)
        self.tick = os.sysconf("SC_CLK_TCK")
        os.environ[MARKER] = f"{os.getpid()}-{worker}"
        self.others = 0.0

    def own(self) -> float:
        """Return the CPU seconds of this process and of children that it waited for."""
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def living(self) -> float:
        """Return the CPU seconds of existing descendants, and of processes that inherited this run's environment."""
        marker = f"{MARKER}={os.environ[MARKER]}".encode()
        stats: dict[int, list[str]] = {}
        marked = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
                    if marker in (folder / "environ").read_bytes():
                        marked.add(int(folder.name))
                except OSError:  # it ended
                    continue
        return sum(
            sum(map(int, fields[11:15])) / self.tick
            for number, fields in stats.items()
            if number in marked or self._descends(number, stats)
        )

    def _descends(self, number: int, stats: dict[int, list[str]]) -> bool:
        """Return whether a process descends from this one: Spark and brokers start with an environment of their own."""
        while number in stats:
            number = int(stats[number][1])
        return number == os.getpid()

    def measure(self, phase: str, name: str) -> Iterator[None]:
        """Measure what runs between two steps of this generator."""
        begun, own = time.monotonic(), self.own()
        try:
            return (yield)
        finally:
            wall, used = time.monotonic() - begun, self.own() - own
            if wall > _SHORT_S:
                # A process that ended has left `living` for `own`. One that another process waited for is not counted.
                before, self.others = self.others, self.living()
                used = max(0.0, used + self.others - before)
            self.write(phase, name, used, wall)

    def write(self, phase: str, name: str, used: float, wall: float) -> None:
        """Append a line."""
        self.file.write(f"{self.worker}\t{used:.3f}\t{wall:.3f}\t{phase}\t{name}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test without its fixtures."""
        return (yield from self.measure("call", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Measure the end of a test and of the fixtures that end with it."""
        return (yield from self.measure("teardown", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
        """Measure a fixture without the fixtures that it depends on."""
        return (yield from self.measure("fixture", f"{fixturedef.argname} {fixturedef.scope} {request.node.nodeid}"))

    def pytest_collection_finish(self) -> None:
        """Report what imports and collection took."""
        self.write("collect", "collection", self.own(), 0.0)

    def pytest_sessionfinish(self) -> None:
        """Report the CPU seconds of the process."""
        self.write("total", "process", self.own() + self.living(), 0.0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cpu-usage`."""
    parser.addoption("--cpu-usage", metavar="FILE", help="append CPU seconds by test and by fixture to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Measure if the option is given."""
    if path := config.getoption("cpu_usage"):
        worker = getattr(config, "workerinput", {}).get("workerid", "main")
        config.pluginmanager.register(CpuUsage(Path(path).absolute(), worker), "kpipe-cpu-usage")
