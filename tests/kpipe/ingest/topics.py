"""Fill the topics of a small world for tests of the loop."""

from __future__ import annotations

from typing import Any

World = Any


def fill(world: World) -> None:
    """Two partitions with everything that a log can hold, ending in a control record."""
    for partition in (0, 1):
        world.topics.numbered(partition, 5)
        world.topics.mark(partition)
        world.topics.produce(partition, None, {"id": 7})
        world.topics.produce(partition, {"id": 8}, bad=True)
        world.topics.numbered(partition, 2)
        world.topics.compact(partition, 2, 10)
        world.topics.mark(partition)
