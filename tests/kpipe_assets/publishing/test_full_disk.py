"""Dagster's own database cannot be written: rows are where they belong, and what was not told is told later, once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import FakeTopics
from kpipe.verification.verify import audit
from kpipe_assets.publishing.publisher import Publisher
from resources.home import Home
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if subprocess.run(["mount", "--bind", str(folder), str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_what_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    topics = FakeTopics({"tweets": 3})
    for name in ("staged", "dagster"):
        (tmp_path / name).mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        world = World(Home(tmp_path / "home").make(), instance, topics, FakeStager(topics, tmp_path / "staged"))
        for partition in range(3):
            topics.produce(partition, *({"id": 10 * partition + n} for n in range(4)))
        assert world.run().success
        world.all_published()
        told = len(world.events())

        topics.produce(0, *({"id": 100 + n} for n in range(5)))
        publisher = Publisher(instance, KEY, world.destination, world.home, "tweets")
        with read_only(tmp_path / "dagster"):
            assert list(_ingest_without_dagster(world)), "rows do not wait for Dagster"
            with pytest.raises(Exception, match=r"readonly|read-only|unable to open|Read-only"):
                publisher.publish()
            assert world.destination.unpublished()
        found = audit(world.destination.ledger()[1], world.destination.history(), world.destination.recount())
        assert found.ok and found.counts.rows == 17
        assert publisher.publish() == 1
        world.all_published()
        assert len(world.events()) == told + 1
        assert publisher.publish() == 0
