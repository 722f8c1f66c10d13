"""Topics as partitioned source assets: one Dagster partition for each Kafka partition, growing by itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import dagster as dg

from kpipe.pipeline import Pipeline
from kpipe.source import PartitionId, TopicSnapshot
from kpipe_assets.shown import HIGH, RECORD, observed, partition_keys

__all__ = ["missing_partitions", "observations", "partitions", "topic_key", "topic_spec", "untold"]


def topic_key(topic: str) -> dg.AssetKey:
    """`kafka/TOPIC`."""
    return dg.AssetKey(["kafka", topic])


def partitions(topic: str) -> dg.DynamicPartitionsDefinition:
    """The topic's partitions; keys are Kafka's numbers."""
    return dg.DynamicPartitionsDefinition(name=f"kafka/{topic}")


def topic_spec(pipeline: Pipeline) -> dg.AssetSpec:
    """The pipeline's topic as a source asset. Two pipelines on one topic share it."""
    topic = pipeline.source.topic or ""
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


def missing_partitions(snapshot: TopicSnapshot, topic: str, store: dg.DagsterInstance) -> list[str]:
    """Partitions that Kafka has and Dagster does not know, in numeric order. Kafka never removes one."""
    known = set(store.get_dynamic_partitions(f"kafka/{topic}"))
    return [key for key in partition_keys([s.partition for s in snapshot.partitions]) if key not in known]


def untold(snapshot: TopicSnapshot, topic: str, instance: dg.DagsterInstance, seconds: float) -> list[PartitionId]:
    """Partitions of which Dagster's event log lacks the newest watermark, and of which it was told nothing for so long.

    The newest events of the topic, one query, have every partition that grows steadily; only others are looked up.
    """
    newest: dict[str, dg.EventLogRecord] = {}
    if snapshot.partitions:
        for record in instance.fetch_observations(topic_key(topic), limit=2 * len(snapshot.partitions)).records:
            newest.setdefault(str(record.partition_key), record)
    found = []
    for source, state in sorted(snapshot.partitions.items()):
        key = str(source.partition)
        if key not in newest:
            asked = dg.AssetRecordsFilter(topic_key(topic), asset_partitions=[key])
            for record in instance.fetch_observations(asked, limit=1).records:
                newest[key] = record
        if key not in newest or (_high(newest[key]) != state.high and newest[key].timestamp <= time.time() - seconds):
            found.append(source)
    return found


def _high(record: dg.EventLogRecord) -> object:
    event = record.asset_observation
    value = event.metadata.get(HIGH) if event is not None else None
    return value.value if value is not None else None


def observations(
    snapshot: TopicSnapshot, lag: Mapping[PartitionId, int], pipeline: Pipeline, only: Iterable[PartitionId]
) -> list[dg.AssetObservation]:
    """One observation for each of these partitions; the lag is the pipeline's.

    They carry no data version: Dagster would call the table "unsynced" from each look after a run until the next run,
    although it has read everything. How far it is behind is the lag's to say.
    """
    return [
        dg.AssetObservation(
            asset_key=topic_key(pipeline.source.topic or ""),
            partition=str(source.partition),
            metadata={**observed(snapshot.partitions[source], lag[source]), "kpipe/pipeline": pipeline.name},
        )
        for source in only
    ]
