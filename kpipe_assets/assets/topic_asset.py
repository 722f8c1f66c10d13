"""Topics as partitioned source assets: one Dagster partition for each Kafka partition, added automatically.

All files of a pipeline are one source asset without partitions; those of its topic are named by their file.
"""

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
    "missing_partitions", "observations", "partitions", "remember", "source_keys", "source_specs", "table_partitions",
    "topic_key", "topic_names", "topic_spec", "untold",
]  # fmt: skip


def topic_key(topic: str) -> dg.AssetKey:
    """Return the asset key of a topic: `kafka/TOPIC`."""
    return dg.AssetKey(["kafka", topic])


def source_keys(pipeline: Pipeline, home: Home) -> tuple[dg.AssetKey, ...]:
    """Return the asset keys of the pipeline's sources: its topics, `files/NAME`, or `tables/NAME`."""
    if not pipeline.source.reads_topics:
        return (dg.AssetKey(["files" if pipeline.source.files is not None else "tables", pipeline.name]),)
    return tuple(topic_key(topic) for topic in topic_names(pipeline, home))


def source_specs(pipeline: Pipeline, home: Home) -> list[dg.AssetSpec]:
    """Build the source assets of a pipeline."""
    files, table, lake = pipeline.source.files, pipeline.source.table, pipeline.source.lake
    if (http := pipeline.source.http) is not None:
        text = f"List **{http.name}**. kpipe reads each record of it once."
        return [dg.AssetSpec(key=source_keys(pipeline, home)[0], group_name="tables", kinds={"http", "json"}, description=text)]
    if lake is not None:
        text = f"Table **{lake.name}** ({lake.type}) in {lake.database}. kpipe reads each row that is appended to it once."
        return [
            dg.AssetSpec(key=source_keys(pipeline, home)[0], group_name="tables", kinds={lake.type, "table"}, description=text)
        ]
    if table is not None:
        text = f"Table **{table.name}** ({table.type}). kpipe reads each row of it once, in the order of {table.column}."
        key = source_keys(pipeline, home)[0]
        return [dg.AssetSpec(key=key, group_name="tables", kinds={table.type, "table"}, description=text)]
    if files is None:
        return [topic_spec(pipeline, topic) for topic in topic_names(pipeline, home)]
    return [
        dg.AssetSpec(
            key=source_keys(pipeline, home)[0],
            group_name="files",
            kinds={"parquet" if files.type == "parquet" else "file"},
            description=f"Files **{files.path}**. kpipe reads each record of them once.",
            metadata={"dagster/uri": files.path if files.remote else f"file://{files.path}"},
        )
    ]


def partitions(topic: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions definition of a topic. Keys are Kafka's partition numbers."""
    return dg.DynamicPartitionsDefinition(name=f"kafka/{topic}")


def table_partitions(pipeline: Pipeline) -> dg.DynamicPartitionsDefinition:
    """Return the partitions definition of the table: its topic's, or with several topics one with keys `TOPIC:NUMBER`."""
    source = pipeline.source
    return dg.DynamicPartitionsDefinition(name=f"kpipe/{pipeline.name}") if source.multi_topic else partitions(source.names[0])


def topic_names(pipeline: Pipeline, home: Home) -> tuple[str, ...]:
    """Return the pipeline's topics: the named ones, or the recorded matches of its pattern, in order; none for files."""
    if pipeline.source.topic_pattern is None:
        return pipeline.source.names
    return tuple(name for name in home.found(pipeline.name) if re.search(pipeline.source.topic_pattern, name))


def remember(pipeline: Pipeline, home: Home, snapshot: TopicSnapshot) -> None:
    """Record the topics that match the pattern, for definitions that are loaded later. Deleted topics stay recorded."""
    if pipeline.source.topic_pattern is not None:
        home.find(pipeline.name, (topic.name for topic in snapshot.topics()))


def topic_spec(pipeline: Pipeline, topic: str = "") -> dg.AssetSpec:
    """Build the source asset of a topic (default: the pipeline's first one). Pipelines on one topic share it."""
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
    """Return keys of partitions that are missing in Dagster, in order, by the name of their partitions definition.

    Keys are never removed: Kafka cannot remove a partition.
    """
    topics = () if snapshot.appearing else snapshot.topics()
    expected = {f"kafka/{topic.name}": partition_keys(s for s in snapshot.partitions if s.topic == topic) for topic in topics}
    if pipeline.source.multi_topic:
        expected[str(table_partitions(pipeline).name)] = partition_keys(snapshot.partitions, multi_topic=True)
    missing = {}
    for name, keys in expected.items():
        existing = set(store.get_dynamic_partitions(name))
        missing[name] = [key for key in keys if key not in existing]
    return {name: keys for name, keys in missing.items() if keys}


def untold(snapshot: TopicSnapshot, instance: dg.DagsterInstance, seconds: float) -> list[PartitionId]:
    """Return partitions whose watermark changed since their last observation in Dagster, if that is older than `seconds`.

    Files are not observed: there may be thousands.
    """
    outdated: list[PartitionId] = []
    for topic in () if snapshot.appearing else snapshot.topics():
        states = {source: state for source, state in snapshot.partitions.items() if source.topic == topic}
        outdated += _untold(states, topic.name, instance, seconds)
    return outdated


def _untold(
    states: Mapping[PartitionId, PartitionState], topic: str, instance: dg.DagsterInstance, seconds: float
) -> list[PartitionId]:
    records = newest(instance, topic_key(topic), [str(source.partition) for source in states], observed=True)
    outdated = []
    for source, state in sorted(states.items()):
        last = records.get(str(source.partition))
        if last is None or (_high(last) != state.high and last.timestamp <= time.time() - seconds):
            outdated.append(source)
    return outdated


def _high(record: dg.EventLogRecord) -> object:
    event = record.asset_observation
    value = event.metadata.get(HIGH) if event is not None else None
    return value.value if value is not None else None


def observations(
    snapshot: TopicSnapshot, lag: Mapping[PartitionId, int], pipeline: Pipeline, only: Iterable[PartitionId]
) -> list[dg.AssetObservation]:
    """Build one observation for each of these partitions, with the pipeline's lag.

    Observations have no data version. With one, Dagster would show the table as "unsynced" after each tick until the next
    run, although it has read all records. The lag shows how far the table is behind.
    """
    return [
        dg.AssetObservation(
            asset_key=topic_key(source.topic.name),
            partition=str(source.partition),
            metadata={**observed(snapshot.partitions[source], lag[source]), "kpipe/pipeline": pipeline.name},
        )
        for source in only
    ]
