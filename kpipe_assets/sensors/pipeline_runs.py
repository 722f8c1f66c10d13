"""List the runs of a pipeline in Dagster: those of its sensor, and those that an operator or an asset downstream started.

A backfill of the UI is at first only requested: Dagster's daemon creates its runs later, at its next start if none runs.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Sequence

import dagster as dg
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill

from kpipe_assets.assets.table_asset import OP_TAG

__all__ = ["pipeline_runs", "requested_backfills"]


def pipeline_runs(
    instance: dg.DagsterInstance, name: str, table: dg.AssetKey | None, statuses: Sequence[dg.DagsterRunStatus]
) -> list[dg.RunRecord]:
    """List the runs of a pipeline with one of these statuses, newest first.

    Args:
        instance: Dagster instance.
        name: the pipeline's name: runs that its sensor requested have the tag.
        table: the pipeline's asset (`table_key`): other runs select it; None: Dagster has not loaded it.
        statuses: of runs in progress; of finished runs there may be very many.
    """
    records = instance.get_run_records(dg.RunsFilter(statuses=list(statuses)))
    return [
        record
        for record in records
        for run in [record.dagster_run]
        if run.tags.get(OP_TAG) == name or table in (run.asset_selection or ())
    ]


def requested_backfills(instance: dg.DagsterInstance, table: dg.AssetKey | None) -> list[PartitionBackfill]:
    """List the requested backfills of a pipeline for which Dagster has not created a run of its table yet.

    Args:
        instance: Dagster instance.
        table: the pipeline's asset (`table_key`); None: Dagster has not loaded it.
    """
    requested = instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED]))
    return [each for each in requested if table in (each.asset_selection or ()) and not _has_run(instance, each, table)]


def _has_run(instance: dg.DagsterInstance, backfill: PartitionBackfill, table: dg.AssetKey | None) -> bool:
    runs = instance.get_runs(dg.RunsFilter(tags=dg.DagsterRun.tags_for_backfill_id(backfill.backfill_id)))
    return any(table in (run.asset_selection or ()) for run in runs)
