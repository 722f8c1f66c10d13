"""A Dagster whose run workers die where a test needs it."""

from __future__ import annotations

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_key
from kpipe_assets.publishing.metadata import _MOST_RANGES
from resources.destinations import open_destination
from resources.home import Home

PARTITIONS = 3


def all_published(home: Home, instance: dg.DagsterInstance, pipeline: Pipeline) -> None:
    """Check that exactly one event of each of its partitions reports each commit.

    An event counts all its commits and lists the last 50: those before are the partition's commits right before the list.
    """
    destination = open_destination(pipeline, home)
    committed: dict[str, list[int]] = {}
    for row in destination.view("batches"):
        committed.setdefault(str(row["batch_source_partition_id"]), []).append(int(row["seq"]))
    told: dict[str, list[int]] = {}
    for record in instance.fetch_materializations(table_key(pipeline), limit=10_000).records:
        event = record.asset_materialization
        assert event is not None
        ranges = event.metadata.get("kpipe/ranges")
        if ranges is not None:
            partition = str(event.partition)
            commits = [int(row.data["commit"]) for row in ranges.value.records]  # type: ignore[union-attr]
            unlisted = int(event.metadata["kpipe/batches"].value) - len(commits)  # type: ignore[arg-type]
            assert unlisted == 0 or (unlisted > 0 and len(commits) == _MOST_RANGES)
            before = sorted(seq for seq in committed[partition] if seq < min(commits))
            told.setdefault(partition, []).extend([*before[len(before) - unlisted :], *commits])
    assert {key: sorted(value) for key, value in told.items()} == {key: sorted(value) for key, value in committed.items()}
    assert not destination.unpublished()
