"""The code location: every pipeline of KPIPE_HOME, and what is built on the demo's table."""

from __future__ import annotations

import dagster as dg

from kpipe_assets.component import catalog
from kpipe_assets.example.downstream import downstream
from resources.home import Home

__all__ = ["defs"]


@dg.definitions
def defs() -> dg.Definitions:
    """All of it; read again whenever the code location is reloaded."""
    home = Home.from_env()
    found = catalog(home)
    return dg.Definitions.merge(found, downstream(home)) if "tweets" in home.names() else found
