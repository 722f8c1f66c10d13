"""The resources that kpipe's assets use: Kafka, Spark, destinations."""

import dagster as dg

from kpipe_assets.dagster_resources import real
from resources.home import Home


@dg.definitions
def resources() -> dg.Definitions:
    """Return the resources of the home that KPIPE_HOME names."""
    return dg.Definitions(resources=real(Home.from_env().make()))
