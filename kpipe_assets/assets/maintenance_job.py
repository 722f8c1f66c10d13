"""A job that maintains the table of a pipeline with `into.maintenance`, and its schedule."""

# No `from __future__ import annotations`: Dagster reads the annotations of ops as objects.

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_key
from kpipe_assets.runs.maintenance import maintained
from resources.home import Home

__all__ = ["maintenance_defs"]


def maintenance_defs(pipeline: Pipeline, home: Home) -> dg.Definitions:
    """Return the job `NAME_maintenance`, and with `into.maintenance.cron` its schedule, which is running by default.

    A run records an observation of the table's asset, with the numbers of `kpipe maintain --json`.
    """
    rules = pipeline.into.maintenance
    if rules is None:
        return dg.Definitions()
    name = f"{pipeline.name}_maintenance"

    @dg.op(name=f"kpipe_maintenance_step__{pipeline.name}", description="Compact the table; see `kpipe maintain`.")
    def step(context: dg.OpExecutionContext) -> None:
        done = maintained(pipeline, home, rules, context.log.info)
        numbers = {f"kpipe/{key}": value for key, value in done.to_dict().items()}
        context.log_event(dg.AssetObservation(table_key(pipeline), description="maintenance", metadata=numbers))

    @dg.graph(name=f"kpipe_maintenance__{pipeline.name}")  # that of the job may be a table's, which is the name of its op
    def steps() -> None:
        step()

    job = steps.to_job(name=name, description=f"Compact table {pipeline.into.table}, beside running ingest.")
    if rules.cron is None:
        return dg.Definitions(jobs=[job])
    schedule = dg.ScheduleDefinition(
        name=f"{name}_schedule", job=job, cron_schedule=rules.cron, default_status=dg.DefaultScheduleStatus.RUNNING
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])
