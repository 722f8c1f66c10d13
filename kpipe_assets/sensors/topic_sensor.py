"""Topic metadata: a sensor, running by default, that adds partitions and watermarks to Dagster and starts no runs."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.sensors.ingest_sensor import Pace
from kpipe_assets.sensors.tick import check_sources, failed_tick
from resources.home import Home

__all__ = ["metadata_sensor"]


def metadata_sensor(pipeline: Pipeline, home: Home, pace: Pace = Pace()) -> dg.SensorDefinition:  # noqa: B008
    """Build the pipeline's sensor `NAME_metadata`. Without it, a table has no partitions in Dagster before its first run."""

    @dg.sensor(
        name=f"{pipeline.name}_metadata",
        minimum_interval_seconds=pace.metadata_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Publishes partitions and high watermarks of {pipeline.source}, and batches that were committed outside of"
            " Dagster. Reads no records and starts no runs."
        ),
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult:
        try:
            seen = check_sources(context, pipeline, home, kafka, destinations)
        except KpipeError as error:
            return failed_tick(context, pipeline, home, error)
        if seen.trouble:
            return seen.result(f"needs an operator: {seen.trouble}")
        return seen.result(f"{seen.shown} table events published" if seen.shown else f"{seen.behind:,} offsets behind")

    return sensor
