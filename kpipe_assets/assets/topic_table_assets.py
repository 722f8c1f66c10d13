"""Tables by topic in Dagster: each is an asset with the partitions of its topic, which the pipeline's asset materializes.

The pipeline's asset `pipelines/NAME` has runs, sensors and the partitions of all topics. Its tables have events, and no runs of
their own: they are the topics that the home has seen when Dagster loads the definitions.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.table_template import problem_of
from kpipe.interfaces import Destination, Publication
from kpipe.tables.topic_tables import TopicTables, table_of_topic
from kpipe_assets.assets.topic_asset import partitions, topic_key, topic_names
from kpipe_assets.publishing.events import publish_events
from kpipe_assets.publishing.metadata import ROWS, column_lineage, column_schema, of_publications
from kpipe_assets.publishing.shown_commits import shown_commits, without_shown
from resources.home import Home

__all__ = ["publish_topic_tables", "topic_table_key", "topic_table_specs", "topics_with_tables"]


def topics_with_tables(pipeline: Pipeline, home: Home) -> tuple[str, ...]:
    """Return the topics whose tables are assets, in order; none unless each topic has a table of its own.

    A topic whose name gives no name of a table is an error of a run, which names it.
    """
    if not pipeline.into.by_topic:
        return ()
    names = (name for name in topic_names(pipeline, home) if name != pipeline.transaction_topic)
    return tuple(name for name in names if not problem_of(table_of_topic(pipeline, name)))


def topic_table_key(pipeline: Pipeline, topic: str) -> dg.AssetKey:
    """Return the key of the asset of a topic's table: the table's name."""
    return dg.AssetKey([table_of_topic(pipeline, topic)])


def topic_table_specs(pipeline: Pipeline, home: Home) -> list[dg.AssetSpec]:
    """Build the assets of the tables."""
    shown = pipeline.asset
    return [
        dg.AssetSpec(
            topic_table_key(pipeline, topic),
            deps=[topic_key(topic)],
            partitions_def=partitions(topic),
            group_name=shown.group,
            owners=list(shown.owners),
            tags={**shown.tags},
            kinds={pipeline.into.type},
            description=f"Rows of Kafka topic **{topic}**, exactly once. Runs of `pipelines/{pipeline.name}` load them.",
            metadata={"dagster/table_name": table_of_topic(pipeline, topic), "kpipe/pipeline": pipeline.name},
        )
        for topic in topics_with_tables(pipeline, home)
    ]


def publish_topic_tables(
    instance: dg.DagsterInstance, pipeline: Pipeline, destination: Destination, publications: Sequence[Publication]
) -> int:
    """Store an event for each partition of each table that these commits wrote, unless Dagster has it; return their number.

    The newest event of a table has its columns and the number of its rows.
    """
    if not pipeline.into.by_topic or not isinstance(destination, TopicTables):
        return 0
    by_topic: dict[str, list[Publication]] = {}
    for item in publications:
        topics: dict[str, dict[str, Any]] = {}
        for key, metadata in item.metadata.items():
            topic, _, number = key.rpartition(":")
            if topic != pipeline.transaction_topic:
                topics.setdefault(topic, {})[number] = metadata
        for topic, mine in topics.items():
            by_topic.setdefault(topic, []).append(Publication(item.batch, item.seq, mine))
    events: list[dg.AssetMaterialization | dg.AssetObservation] = []
    names = sorted(by_topic)
    rows = destination.rows_of_tables() if names else {}
    columns = destination.columns_of([table_of_topic(pipeline, topic) for topic in names])
    for topic, known in zip(names, columns, strict=True):
        asset = topic_table_key(pipeline, topic)
        shown = shown_commits(instance, asset, {key for item in by_topic[topic] for key in item.metadata})
        found = of_publications(without_shown(by_topic[topic], shown))
        for at, (key, metadata) in enumerate(sorted(found.items(), key=lambda item: int(item[0])), 1):
            table: dict[str, Any] = {ROWS: rows.get(asset.path[-1], 0)}
            if at == len(found) and known is not None:
                table["dagster/column_schema"] = column_schema(known)
                table["dagster/column_lineage"] = column_lineage(known, [topic_key(topic)])
            events.append(dg.AssetMaterialization(asset, partition=key, metadata={**metadata, **table}))
    publish_events(instance, events)
    return len(events)
