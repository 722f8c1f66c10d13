"""A Dagster whose run workers die where a test needs it."""

from __future__ import annotations

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_key
from resources.destinations import open_destination
from resources.home import Home

PARTITIONS = 3


def all_published(home: Home, instance: dg.DagsterInstance, pipeline: Pipeline) -> None:
    """Every commit is told of by exactly one event of each of its partitions."""
    told: dict[str, list[int]] = {}
    for record in instance.fetch_materializations(table_key(pipeline), limit=10_000).records:
        event = record.asset_materialization
        assert event is not None
        ranges = event.metadata.get("kpipe/ranges")
        if ranges is not None:
            commits = [int(row.data["commit"]) for row in ranges.value.records]  # type: ignore[union-attr]
            assert len(commits) == event.metadata["kpipe/batches"].value, "an event of more commits than it lists"
            told.setdefault(str(event.partition), []).extend(commits)
    destination = open_destination(pipeline, home)
    committed: dict[str, list[int]] = {}
    for row in destination.view("batches"):
        committed.setdefault(str(row["batch_source_partition_id"]), []).append(int(row["seq"]))
    assert {key: sorted(value) for key, value in told.items()} == {key: sorted(value) for key, value in committed.items()}
    assert not destination.unpublished()
