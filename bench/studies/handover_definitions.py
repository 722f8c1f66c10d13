"""Define the code location of bench/studies/handover.py: the home's pipelines with short runs, for early handovers."""

import os

import dagster as dg

from kpipe_assets.component import catalog
from kpipe_assets.sensors.ingest_sensor import Pace
from resources.home import Home


@dg.definitions
def defs() -> dg.Definitions:
    """Define runs of KPIPE_BENCH_RUN_S seconds, with successors KPIPE_BENCH_LEAD_S before their end."""
    run_s, lead_s = float(os.environ["KPIPE_BENCH_RUN_S"]), float(os.environ["KPIPE_BENCH_LEAD_S"])
    found = catalog(Home.from_env(), Pace(run_s=run_s, lead_s=lead_s))
    return dg.Definitions.merge(found, dg.Definitions(executor=dg.in_process_executor))
