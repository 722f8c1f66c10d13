"""What Dagster knows of a topic: a sensor that is on from the start, reads metadata only, and starts nothing."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.sensors.ingest_sensor import Pace
from kpipe_assets.sensors.tick import look
from resources.home import Home

__all__ = ["metadata_sensor"]


def metadata_sensor(pipeline: Pipeline, home: Home, pace: Pace = Pace()) -> dg.SensorDefinition:  # noqa: B008
    """The pipeline's sensor `NAME_metadata`: without it a table has no partitions to choose until it is ingested."""

    @dg.sensor(
        name=f"{pipeline.name}_metadata",
        minimum_interval_seconds=pace.metadata_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Partitions and high watermarks of {pipeline.source}, and what was committed outside of Dagster. Reads no records"
            " and starts no runs."
        ),
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult | dg.SkipReason:
        try:
            seen = look(context, pipeline, home, kafka, destinations)
        except KpipeError as error:
            return dg.SkipReason(str(error))
        if seen.trouble:
            return seen.result(f"needs an operator: {seen.trouble}")
        return seen.result(f"{seen.shown} events of the table shown" if seen.shown else f"{seen.behind:,} offsets behind")

    return sensor
