"""Topics as partitioned source assets: one Dagster partition for each Kafka partition, growing by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from kpipe.pipeline import Pipeline
from kpipe.source import PartitionId, TopicSnapshot
from kpipe_assets.shown import RECORD, observed, partition_keys

__all__ = ["missing_partitions", "observations", "partitions", "topic_key", "topic_spec"]


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


def observations(
    snapshot: TopicSnapshot, lag: Mapping[PartitionId, int], topic: str, only: Iterable[str] | None = None
) -> list[dg.AssetObservation]:
    """One observation for each partition, or for some.

    They carry no data version: Dagster would call the table "unsynced" from each look after a run until the next run,
    although it has read everything. How far it is behind is the lag's to say.
    """
    wanted = None if only is None else set(only)
    return [
        dg.AssetObservation(
            asset_key=topic_key(topic),
            partition=str(source.partition),
            metadata=observed(state, lag[source]),
        )
        for source, state in sorted(snapshot.partitions.items())
        if wanted is None or str(source.partition) in wanted
    ]
