"""Dagster's web server, which stores the events of a run that is launched from its pages many at once."""

from __future__ import annotations

from dagster_webserver.cli import main

from kpipe_assets import engines
from kpipe_assets.event_log import in_batches

if __name__ == "__main__":
    engines.keep()
    in_batches()
    main()
