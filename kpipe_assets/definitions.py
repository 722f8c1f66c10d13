"""The code location: every pipeline of KPIPE_HOME, and an asset downstream of the demo's table."""

from __future__ import annotations

import dagster as dg

from kpipe.process_isolation import deny_tracing
from kpipe_assets.component import catalog
from kpipe_assets.example.downstream import demos, downstream
from resources.home import Home

__all__ = ["defs"]

deny_tracing()


@dg.definitions
def defs() -> dg.Definitions:
    """Build the definitions. Dagster calls this again whenever the code location is reloaded."""
    home = Home.from_env()
    parts = [catalog(home), *(downstream(home, demo) for demo in demos(home))]
    # One process for each run: a process for the step would cost seconds and memory.
    # Security: run config must not choose the folder from which pickled values are loaded.
    values = dg.fs_io_manager.configured(lambda _: {}, config_schema={})
    shared = dg.Definitions(executor=dg.in_process_executor, resources={"io_manager": values})
    return dg.Definitions.merge(shared, *parts)
