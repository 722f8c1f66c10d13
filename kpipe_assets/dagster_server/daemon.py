"""Run Dagster's daemon with a check for new backfills every 5 s instead of 30: the UI launches several partitions as one.

Dagster has no setting for it, only this constant, which the loop reads at its start. If a later Dagster does not use it,
tests/kpipe_assets/dagster_server/test_ui.py fails.
"""

from __future__ import annotations

from dagster._daemon import controller
from dagster._daemon.cli import main

__all__ = ["INTERVAL_S", "look_often"]

#: The interval of sensors.
INTERVAL_S = 5


def look_often() -> None:
    """Check for new backfills every `INTERVAL_S` in this process."""
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = INTERVAL_S


if __name__ == "__main__":
    look_often()
    main()
