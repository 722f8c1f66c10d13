"""A home beside a real Kafka, and a topic with orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import sql


@pytest.fixture
def near(tmp_path: Path, brokers: str) -> Iterator[Kpipe]:
    """A home and the session's Kafka, without Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.fixture
def orders(near: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> str:
    """A topic of three partitions with ten records each, and the pipeline `orders` over it."""
    name = topic(3)
    for partition in range(3):
        write(name, [json.dumps({"id": partition * 100 + at, "city": "Köln"}) for at in range(10)], partition)
    sql(near, f"CREATE PIPELINE orders AS LOAD DATA KAFKA '{near.brokers}/{name}' INTO TABLE orders FORMAT JSON")
    return name
