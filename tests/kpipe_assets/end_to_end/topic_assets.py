"""The assets of pipeline `web`, which has a table for each topic, as Dagster executes them."""

from __future__ import annotations

import dagster as dg

from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import real
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from resources.home import Home


def observe(home: Home, instance: dg.DagsterInstance) -> None:
    """Run the sensor of the topics once, and add the partitions that it requests."""
    sensor = metadata_sensor(home.pipeline("web"), home)
    with dg.build_sensor_context(instance=instance, resources=real(home)) as context:
        seen = sensor(context)
    assert isinstance(seen, dg.SensorResult)
    for request in seen.dynamic_partitions_requests or ():
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))


def materialize(home: Home, instance: dg.DagsterInstance, first: str, last: str) -> None:
    """Materialize the tables of two topics, from partition 0 of the first one to partition 0 of the last one."""
    pipeline = home.pipeline("web")
    done = dg.materialize(
        [*(topic_spec(pipeline, name) for name in (first, last)), table_asset(pipeline, home, "v1")],
        resources=real(home),
        instance=instance,
        tags={"dagster/asset_partition_range_start": f"{first}:0", "dagster/asset_partition_range_end": f"{last}:0"},
    )
    assert done.success


def check(home: Home, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Evaluate the checks of all tables."""
    return dg.materialize(
        [table_checks(home.pipeline("web"), home)], resources=real(home), instance=instance,
        selection=dg.AssetSelection.all_asset_checks(), raise_on_error=False,
    )  # fmt: skip
