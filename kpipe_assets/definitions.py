"""The code location: every pipeline of KPIPE_HOME, and what is built on the demo's table."""

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
    """All of it; read again whenever the code location is reloaded."""
    home = Home.from_env()
    parts = [catalog(home), *(downstream(home, demo) for demo in demos(home))]
    # One process for each run: a second one for the step would be seconds of start and a second Python for nothing.
    # Run config must not choose the folder that pickled values are loaded from.
    values = dg.fs_io_manager.configured(lambda _: {}, config_schema={})
    shared = dg.Definitions(executor=dg.in_process_executor, resources={"io_manager": values})
    return dg.Definitions.merge(shared, *parts)
