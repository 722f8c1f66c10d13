"""What Dagster knows of a topic: a sensor that is on from the start, reads metadata only, and starts nothing."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import time
from collections.abc import Iterator

import dagster as dg

from kpipe.errors import KpipeError
from kpipe.pipeline import Pipeline
from kpipe.plan import lag
from kpipe.source import TopicSnapshot
from kpipe_assets.assembly import is_running
from kpipe_assets.edges import Destinations, Topicsources
from kpipe_assets.publisher import Publisher
from kpipe_assets.tables import table_key
from kpipe_assets.topics import missing_partitions, observations, partitions, topic_key
from resources.home import Home

__all__ = ["metadata_sensor"]

_INTERVAL_S = 30
# A partition that changes is observed at most so often, by whichever sensor comes first.
_OBSERVE_S = 60.0


def metadata_sensor(pipeline: Pipeline, home: Home) -> dg.SensorDefinition:
    """The pipeline's sensor `NAME_metadata`: without it a table has no partitions to choose until it is ingested."""
    topic = pipeline.source.topic or ""

    @dg.sensor(
        name=f"{pipeline.name}_metadata",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Partitions and high watermarks of {topic}, and what was committed outside of Dagster. Reads no records and"
            " starts no runs."
        ),
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult | dg.SkipReason:
        home.make()
        destination = destinations.open(pipeline)
        try:
            _, ledger = destination.ledger()
            snapshot = kafka.topics(pipeline).snapshot()
        except KpipeError as error:
            return dg.SkipReason(str(error))
        shown = 0
        if not is_running(home, pipeline.name):  # a run tells itself what it has committed, and shows it as its own
            key, source = table_key(pipeline), topic_key(topic)
            shown = Publisher(context.instance, key, destination, home, pipeline.name, source).publish()
        new = missing_partitions(snapshot, topic, context.instance)
        if new:
            return dg.SensorResult(dynamic_partitions_requests=[partitions(topic).build_add_request(new)])
        changed = list(_changed(context.instance, snapshot, topic))
        if not changed:
            return dg.SkipReason(f"nothing new in {topic}" if not shown else f"{shown} partitions shown")
        return dg.SensorResult(asset_events=observations(snapshot, lag(ledger, snapshot), topic, changed))

    return sensor


def _changed(instance: dg.DagsterInstance, snapshot: TopicSnapshot, topic: str) -> Iterator[str]:
    """Partitions of which the event log does not tell the newest, and has not told anything for a minute."""
    for source, state in snapshot.partitions.items():
        key = str(source.partition)
        found = instance.fetch_observations(dg.AssetRecordsFilter(topic_key(topic), asset_partitions=[key]), limit=1).records
        event = found[0].asset_observation if found else None
        told = event.metadata.get("kpipe/high_watermark") if event is not None else None
        if told is None or (told.value != state.high and time.time() - found[0].timestamp >= _OBSERVE_S):
            yield key
