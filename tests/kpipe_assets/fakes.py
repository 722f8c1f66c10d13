"""A pipeline over fakes in a Dagster instance of its own: no Kafka, no Spark, no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager, Topics
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import FakeTopics
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.sensors.ingest_sensor import Pace, ingest_sensor
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from resources.home import Home

KEY = dg.AssetKey(["tweets"])
PIPELINE = Pipeline.model_validate(
    {
        "name": "tweets",
        "source": {"brokers": "b", "topic": "tweets"},
        "into": {"table": "tweets"},
        "batch": {"interval_ms": 20},
    }
)


@dataclass
class World:
    """A pipeline over fakes, in a home and an instance of its own."""

    home: Home
    instance: dg.DagsterInstance
    topics: FakeTopics
    stager: FakeStager
    warmed: int = 0
    store: MemoryStore = field(default_factory=MemoryStore)
    pipeline: Pipeline = field(default_factory=lambda: PIPELINE)

    @property
    def destination(self) -> MemoryDestination:
        return MemoryDestination(self.store, "tweets", self.pipeline.into.table)

    @property
    def resources(self) -> dict[str, Any]:
        world = self

        class Kafka:
            def topics(self, _: Pipeline) -> Topics:
                return world.topics

        class Spark:
            def stager(self, _: Pipeline) -> Stager:
                return world.stager

            def warm(self) -> None:
                world.warmed += 1

        class Destinations:
            def open(self, _: Pipeline) -> Destination:
                return world.destination

        return {"kafka": Kafka(), "spark": Spark(), "destinations": Destinations()}

    @property
    def table(self) -> dg.AssetsDefinition:
        return table_asset(self.pipeline, self.home, "v1")

    def grow(self) -> None:
        keys = [str(source.partition) for source in sorted(self.topics.snapshot().partitions)]
        self.instance.add_dynamic_partitions("kafka/tweets", keys)

    def run(self, first: str = "0", last: str | None = None, **config: Any) -> dg.ExecuteInProcessResult:
        self.grow()
        last = last or str(len(self.topics.snapshot().partitions) - 1)
        return dg.materialize(
            [topic_spec(self.pipeline), self.table],
            resources=self.resources,
            instance=self.instance,
            run_config={"ops": {"tweets": {"config": config}}} if config else None,
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
            raise_on_error=False,
        )

    def events(self, key: str | None = None) -> list[dg.AssetMaterialization]:
        """All materializations, oldest first."""
        asked = dg.AssetRecordsFilter(asset_key=KEY, asset_partitions=[key] if key else None)
        found = self.instance.fetch_materializations(asked, limit=1000).records
        return [record.asset_materialization for record in reversed(found) if record.asset_materialization]

    def value(self, event: dg.AssetMaterialization, name: str) -> Any:
        return event.metadata[name].value

    def all_published(self) -> None:
        """Every commit is told of by exactly one event of each of its partitions."""
        told: dict[str, list[int]] = {}
        for event in self.events():
            records = event.metadata["kpipe/ranges"].value.records if "kpipe/ranges" in event.metadata else ()
            told.setdefault(str(event.partition), []).extend(int(record.data["commit"]) for record in records)
        committed: dict[str, list[int]] = {}
        for row in self.destination.view("batches"):
            committed.setdefault(str(row["batch_source_partition_id"]), []).append(int(row["seq"]))
        assert {key: sorted(value) for key, value in told.items() if value} == {key: sorted(v) for key, v in committed.items()}
        assert not self.destination.unpublished()


def _ingest_without_dagster(world: World) -> Any:
    from kpipe.ingest.loop import Ingest

    return Ingest(world.pipeline, world.topics, world.stager, world.destination).run()


def tick(world: World, cursor: str | None = None, pace: Pace = Pace(), metadata: bool = False) -> dg.SensorResult:  # noqa: B008
    """One tick as the daemon does it: what is to be told is told, and partitions are added."""
    table = world.table
    sensor = metadata_sensor(world.pipeline, world.home) if metadata else ingest_sensor(world.pipeline, world.home, table, pace)
    defs = dg.Definitions([topic_spec(world.pipeline), table], sensors=[sensor], resources=world.resources)
    context = dg.build_sensor_context(
        instance=world.instance,
        cursor=cursor,
        definitions=defs,
        resources={k: world.resources[k] for k in ("kafka", "destinations")},
    )
    result = sensor(context)
    assert isinstance(result, dg.SensorResult), result
    for event in result.asset_events:
        world.instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests or ():
        world.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return result


def said(result: dg.SensorResult) -> str:
    """Why no run was started."""
    assert not result.run_requests
    return str(result.skip_reason.skip_message) if isinstance(result.skip_reason, dg.SkipReason) else str(result.skip_reason)


def observed(result: dg.SensorResult) -> list[str | None]:
    """The partitions of a tick's observations; its other events are results of checks."""
    return [event.partition for event in result.asset_events if isinstance(event, dg.AssetObservation)]
