"""A home, its command line as a person uses it, and records with ids that an oracle can count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import Producer
from pyspark import SparkContext

from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import FakeTopics
from resources.home import Home
from resources.java import JavaHome
from resources.spark.jvm.session import start
from tests.commandline import Kpipe
from tests.kpipe_assets.fakes import World


@pytest.fixture(scope="session")
def spark(java: JavaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    """The session's Spark, which every run in this process finds and uses."""
    context = start(tmp_path_factory.mktemp("spark"))
    yield context
    context.stop()


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, spark: SparkContext) -> Iterator[Kpipe]:
    """The command line on a fresh home, with the session's Kafka."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.fixture
def offline(tmp_path: Path) -> Kpipe:
    """The command line on a fresh home, and brokers where nobody listens."""
    return Kpipe(tmp_path / "home", "127.0.0.1:1")


@pytest.fixture
def write(brokers: str) -> Iterator[Callable[..., int]]:
    """`write(topic, values, partition=0)`: produce and wait until the broker has them; gives their number."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True})

    def values(topic: str, items: Iterable[bytes | str | None], partition: int = 0, key: bytes | None = None) -> int:
        count = 0
        for item in items:
            producer.produce(topic, item, key, partition)
            count += 1
        assert producer.flush(120) == 0
        return count

    yield values


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A pipeline over fakes in a Dagster instance of its own, with four records in each of three partitions."""
    topics = FakeTopics({"tweets": 3})
    staged = tmp_path / "staged"
    staged.mkdir()
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(Home(tmp_path / "home").make(), instance, topics, FakeStager(topics, staged))
        for partition in range(3):
            topics.produce(partition, *({"id": 10 * partition + n} for n in range(4)))
        yield made
