"""Topics as partitioned source assets: one Dagster partition for each Kafka partition, growing by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.topics import PartitionId, PartitionState, TopicSnapshot
from kpipe_assets.publishing.events import newest
from kpipe_assets.publishing.metadata import HIGH, RECORD, observed, partition_keys
from resources.home import Home

__all__ = [
    "missing_partitions", "observations", "partitions", "remember", "table_partitions", "topic_key", "topic_names", "topic_spec",
    "untold",
]  # fmt: skip


def topic_key(topic: str) -> dg.AssetKey:
    """`kafka/TOPIC`."""
    return dg.AssetKey(["kafka", topic])


def partitions(topic: str) -> dg.DynamicPartitionsDefinition:
    """The topic's partitions; keys are Kafka's numbers."""
    return dg.DynamicPartitionsDefinition(name=f"kafka/{topic}")


def table_partitions(pipeline: Pipeline) -> dg.DynamicPartitionsDefinition:
    """Those of the pipeline's table: its topic's; with several topics, those of all, `TOPIC:NUMBER`."""
    source = pipeline.source
    return dg.DynamicPartitionsDefinition(name=f"kpipe/{pipeline.name}") if source.several else partitions(source.names[0])


def topic_names(pipeline: Pipeline, home: Home) -> tuple[str, ...]:
    """The pipeline's topics: those that are named; with a pattern, those that this home has seen it find, in order."""
    if pipeline.source.topic_pattern is None:
        return pipeline.source.names
    return tuple(name for name in home.found(pipeline.name) if re.search(pipeline.source.topic_pattern, name))


def remember(pipeline: Pipeline, home: Home, snapshot: TopicSnapshot) -> None:
    """Note what the pattern has found, so that definitions that are loaded later have these topics. One that is gone stays."""
    if pipeline.source.topic_pattern is not None:
        home.find(pipeline.name, (topic.name for topic in snapshot.topics()))


def topic_spec(pipeline: Pipeline, topic: str = "") -> dg.AssetSpec:
    """A topic of the pipeline (the first that it names by default) as a source asset. Two pipelines on one topic share it."""
    topic = topic or pipeline.source.names[0]
    return dg.AssetSpec(
        key=topic_key(topic),
        partitions_def=partitions(topic),
        group_name="kafka",
        kinds={"kafka"},
        description=f"Kafka topic **{topic}** on {pipeline.source.bootstrap}. One Dagster partition for each Kafka partition.",
        metadata={
            "dagster/uri": f"kafka://{pipeline.source.bootstrap}/{topic}",
            "dagster/column_schema": RECORD,
            "kpipe/brokers": pipeline.source.bootstrap,
        },
    )


def missing_partitions(pipeline: Pipeline, snapshot: TopicSnapshot, store: dg.DagsterInstance) -> dict[str, list[str]]:
    """Partitions that Kafka has and Dagster does not know, by the name of their definition, in order. Kafka never removes one."""
    there = {
        f"kafka/{topic.name}": partition_keys(s for s in snapshot.partitions if s.topic == topic) for topic in snapshot.topics()
    }
    if pipeline.source.several:
        there[str(table_partitions(pipeline).name)] = partition_keys(snapshot.partitions, several=True)
    missing = {}
    for name, keys in there.items():
        known = set(store.get_dynamic_partitions(name))
        missing[name] = [key for key in keys if key not in known]
    return {name: keys for name, keys in missing.items() if keys}


def untold(snapshot: TopicSnapshot, instance: dg.DagsterInstance, seconds: float) -> list[PartitionId]:
    """Partitions of which Dagster's event log lacks the newest watermark, and of which it was told nothing for so long."""
    found = []
    for topic in snapshot.topics():
        mine = {source: state for source, state in snapshot.partitions.items() if source.topic == topic}
        found += _untold(mine, topic.name, instance, seconds)
    return found


def _untold(
    states: Mapping[PartitionId, PartitionState], topic: str, instance: dg.DagsterInstance, seconds: float
) -> list[PartitionId]:
    told = newest(instance, topic_key(topic), [str(source.partition) for source in states], observed=True)
    found = []
    for source, state in sorted(states.items()):
        last = told.get(str(source.partition))
        if last is None or (_high(last) != state.high and last.timestamp <= time.time() - seconds):
            found.append(source)
    return found


def _high(record: dg.EventLogRecord) -> object:
    event = record.asset_observation
    value = event.metadata.get(HIGH) if event is not None else None
    return value.value if value is not None else None


def observations(
    snapshot: TopicSnapshot, lag: Mapping[PartitionId, int], pipeline: Pipeline, only: Iterable[PartitionId]
) -> list[dg.AssetObservation]:
    """One observation for each of these partitions, of its topic; the lag is the pipeline's.

    They carry no data version: Dagster would call the table "unsynced" from each look after a run until the next run,
    although it has read everything. How far it is behind is the lag's to say.
    """
    return [
        dg.AssetObservation(
            asset_key=topic_key(source.topic.name),
            partition=str(source.partition),
            metadata={**observed(snapshot.partitions[source], lag[source]), "kpipe/pipeline": pipeline.name},
        )
        for source in only
    ]
