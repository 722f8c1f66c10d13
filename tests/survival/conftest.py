"""Sites: see site.py."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from resources.dev_broker.broker import LocalBroker
from tests.commandline import Kpipe
from tests.survival.landings import DuckDBFile, Landing
from tests.survival.oracle import Observer, Oracle
from tests.survival.site import BEGUN, CANARY, PARTITIONS, Site, kill
from tests.survival.truth import Writer


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """A test that fails does not take those behind it along."""
    yield
    while BEGUN:
        one = BEGUN.pop()
        if one.poll() is None:
            kill(one)


@pytest.fixture(scope="module")
def site(kafka_broker: LocalBroker, brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    """`site(name)`: a pipeline of that name on a home and a topic of its own."""
    made: list[Site] = []

    def make(
        name: str,
        address: str = brokers,
        broker: LocalBroker = kafka_broker,
        seed: int = 1,
        at: Path | None = None,
        landing: Landing | None = None,
    ) -> Site:
        topic = f"survival-{name}-{os.getpid()}-{len(made)}"
        broker.create_topic(topic, PARTITIONS)
        home = (at or tmp_path_factory.mktemp(name)) / "home"
        writer = Writer(address, topic, PARTITIONS, random.Random(seed))
        observer = Observer(address, topic, PARTITIONS)
        found = Site(
            Kpipe(home, address),
            name,
            writer,
            Oracle(home, name, observer, writer.truth, CANARY, landing or DuckDBFile()),
            tmp_path_factory.mktemp("notes"),
        )
        made.append(found)
        found.define()
        return found

    yield make
    for one in made:
        for process in psutil.process_iter(["environ", "cmdline"]):
            if process.pid != os.getpid() and str(one.kpipe.home) in f"{process.info['environ']} {process.info['cmdline']}":
                with suppress(psutil.NoSuchProcess):  # it ended, perhaps with one that was killed before
                    process.kill()
