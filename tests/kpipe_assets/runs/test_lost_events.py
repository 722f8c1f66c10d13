"""Run workers killed between commit and event: the next tick or run publishes what is missing, once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import KafkaResource
from kpipe_assets.dagster_server.instance import make_storage, open_instance, prepare
from kpipe_assets.sensors.ingest_sensor import ingest_sensor
from resources.home import Home
from tests.kpipe_assets.dying import POINTS, Destinations, killed
from tests.kpipe_assets.runs.dagster_site import PARTITIONS, all_published

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@dataclass
class Site:
    """A pipeline with three partitions, and Dagster's storage on disk."""

    home: Home
    instance: dg.DagsterInstance
    pipeline: Pipeline
    write: Callable[..., int]

    def fill(self) -> None:
        for partition in range(PARTITIONS):
            self.write(self.pipeline.source.topic, ['{"id": 1}', '{"id": 2}'], partition)

    def tick(self) -> dg.SensorResult:
        """One tick of the ingest sensor, as the daemon does it."""
        table = table_asset(self.pipeline, self.home, "v1")
        sensor = ingest_sensor(self.pipeline, self.home, table)
        resources = {"kafka": KafkaResource(), "destinations": Destinations(self.home)}
        defs = dg.Definitions([topic_spec(self.pipeline), table], sensors=[sensor], resources={**resources, "spark": None})
        result = sensor(dg.build_sensor_context(instance=self.instance, definitions=defs, resources=resources))
        assert isinstance(result, dg.SensorResult)
        return result


@pytest.fixture(scope="module")
def mirror(brokers: str, kafka_broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Home(tmp_path_factory.mktemp("mirror") / "home").make()
    kafka_broker.create_topic("mirror", PARTITIONS)
    make_storage(prepare(home, {}))
    limits = BatchLimits(max_offsets_per_partition=1)
    pipeline = Pipeline(name="mirror", source=Source(brokers=brokers, topic="mirror"), batch=limits, into=Into(table="mirror"))
    home.save(pipeline)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})

    def write(topic: str, values: list[str], partition: int) -> int:
        for value in values:
            producer.produce(topic, value, partition=partition)
        return producer.flush(120)

    with open_instance(home.dagster) as instance:
        instance.add_dynamic_partitions("kafka/mirror", [str(number) for number in range(PARTITIONS)])
        yield Site(home, instance, pipeline, write)
    kafka_broker.delete_topic("mirror")


SAMPLE = ("committed, nothing asked", "one event stored")  # the others in `make chaos`


@pytest.mark.parametrize(
    ("point", "live"),
    [
        pytest.param(point, bool(number % 2), marks=[] if point in SAMPLE else pytest.mark.chaos)
        for number, point in enumerate(POINTS)
    ],
)
def test_killed_between_commit_and_event_the_next_tick_or_run_tells_what_is_missing_once(
    mirror: Site, point: str, live: bool
) -> None:
    mirror.fill()
    assert killed(mirror.home, "mirror", point, live) == -signal.SIGKILL
    if live:  # here the next run comes first, there a tick
        assert killed(mirror.home, "mirror", "") == 0
        all_published(mirror.home, mirror.instance, mirror.pipeline)
    mirror.tick()
    all_published(mirror.home, mirror.instance, mirror.pipeline)
    wedged = mirror.instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    assert not wedged, "who was killed is reported"
