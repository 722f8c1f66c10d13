"""Read the newest result of an asset check from Dagster's event log."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

__all__ = ["latest_record", "latest_result"]


def latest_record(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> AssetCheckExecutionRecord | None:
    """Return the record of the newest evaluation, also if an unfinished run has only planned it; None: there is none.

    A run that was cancelled, deleted, or failed before its checks, will never evaluate what it has planned.
    """
    record = instance.get_latest_asset_check_evaluation_record(key)
    if record is None or isinstance(record.evaluation, dg.AssetCheckEvaluation):
        return record
    run = instance.get_run_by_id(record.run_id)
    return None if run is None or run.is_finished else record


def latest_result(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation; None: there is none, or it is only planned."""
    record = latest_record(instance, key)
    event = record.evaluation if record is not None else None
    return event if isinstance(event, dg.AssetCheckEvaluation) else None
