"""A small world with several topics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import RECORD, FakeTopics
from kpipe.verification.verify import Audit, audit
from tests.kpipe.conftest import World

NAMED: dict[str, Any] = {"source": {"topic": None, "topics": ["a", "b"]}}


def world_of(folder: Path, topics: dict[str, int], pattern: str = "") -> World:
    world = World(folder)
    world.topics = FakeTopics(topics, pattern=pattern)
    world.stager = FakeStager(world.topics, folder)
    return world


def with_(pipeline: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {**pipeline, "source": {**pipeline["source"], **source}}


def proof(world: World) -> Audit:
    return audit(world.table.held, world.table.history(), world.table.recount(), multi_topic=True)


def prove(world: World) -> Audit:
    """Every record of every topic once, told apart by its topic, and the audit agrees."""
    found = Counter((row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in world.table.rows)
    there = Counter(
        (name, number, offset)
        for name, topic in world.topics._topics.items()
        for number, log in enumerate(topic.logs)
        for offset, slot in enumerate(log.slots)
        if slot.kind == RECORD and slot.value is not None
    )
    assert found == there
    report = proof(world)
    assert report.ok, report.problems
    return report
