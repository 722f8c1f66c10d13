"""List the runs of a pipeline in Dagster: those of its sensor, and those that an operator or an asset downstream started."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Sequence

import dagster as dg

from kpipe_assets.assets.table_asset import OP_TAG

__all__ = ["pipeline_runs"]


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
