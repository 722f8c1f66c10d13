"""A world with several topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kpipe.conftest import World
from tests.kpipe.ingest.several_topics import world_of


@pytest.fixture
def two(tmp_path: Path) -> World:
    """Topics a (2 partitions) and b (1), some records in each."""
    world = world_of(tmp_path, {"a": 2, "b": 1})
    for topic, number, count in (("a", 0, 10), ("a", 1, 4), ("b", 0, 7)):
        world.topics.numbered(number, count, topic=topic)
    return world


@pytest.fixture
def web(tmp_path: Path) -> World:
    """Topics web.x and web.y that a pattern finds, and one that it does not."""
    world = world_of(tmp_path, {"web.x": 1, "web.y": 1, "other": 1}, pattern=r"^web\.")
    for topic in ("web.x", "web.y"):
        world.topics.numbered(0, 5, topic=topic)
    return world
