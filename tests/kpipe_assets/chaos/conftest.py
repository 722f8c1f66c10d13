"""A pipeline on a home of its own, a topic with records, and runs of copies without a JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kpipe_assets.chaos import session
from kpipe_assets.chaos.faults import Fault
from kpipe_assets.chaos.processes import Run
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.chaos.spark_free import ForkedRun

RECORDS = 24
"""In each of two partitions. One of each is no JSON, one has no value."""

END = Fault(0, "fail at a failpoint", point="gc.scan", nth=4)
"""A fault that no run reaches: the run catches up."""


class Chosen:
    """Faults of a test in place of a seed's; afterwards runs catch up."""

    def __init__(self, faults: Sequence[Fault], batches: int = 8) -> None:
        self._faults, self._batches = list(faults), batches

    def batches(self, _: int) -> int:
        return self._batches

    def next(self) -> Fault:
        return self._faults.pop(0) if self._faults else END


class Site:
    """A pipeline, and `kpipe chaos` for it."""

    def __init__(self, kpipe: Kpipe, topic: str) -> None:
        self.kpipe, self.topic, self.home = kpipe, topic, Home.at(kpipe.home)
        self.plan: list[str] = []
        self.progress: list[str] = []

    def define(self, **fields: Any) -> None:
        """Define the pipeline `orders`."""
        self.kpipe.define("orders", self.topic, **fields)

    def program(self, code: str) -> str:
        """Write a program, and return its path."""
        path = self.kpipe.home.parent / "program.py"
        path.write_text(f"#!{sys.executable} -IS\n{code}")
        path.chmod(0o755)
        return str(path)

    def chaos(self, *faults: Fault, seed: int = 1, minutes: float = 10, **options: Any) -> dict[str, Any]:
        """Disturb copies in this process; their runs have no JVM."""
        request = session.Request(seed, minutes, **options)
        found = session.execute(self.home.pipeline("orders"), self.home, request, self.plan.append, self.progress.append)
        assert found is not None
        return found


@pytest.fixture
def site(
    tmp_path: Path, brokers: str, topic: Callable[..., str], write: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> Site:
    """A topic of two partitions, and no definition yet."""
    name = topic(2)
    for partition in range(2):
        items: list[Any] = [json.dumps({"id": partition * 1000 + at, "text": f"é{at}"}) for at in range(RECORDS)]
        items[3], items[5] = "{broken", None
        write(name, items, partition)
    monkeypatch.setattr(Run, "of", ForkedRun)  # not in other processes, such as those of Kpipe.outside
    return Site(Kpipe(tmp_path / "home", brokers), name)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`chosen(*faults, batches=8)`: the faults of the next campaign, which has one round."""

    def choose(*faults: Fault, batches: int = 8) -> None:
        monkeypatch.setattr(session, "Choice", lambda *_: Chosen(faults, batches))

    return choose
