"""Dagster's daemon, which looks for new backfills every 5 s instead of every 30: so the UI launches several partitions.

Dagster has no setting for it, only this constant, which the loop reads whenever it starts. A Dagster without it would look
every 30 s again; tests/kpipe_assets/test_ui.py would say so.
"""

from __future__ import annotations

from dagster._daemon import controller
from dagster._daemon.cli import main

__all__ = ["INTERVAL_S", "look_often"]

#: As often as sensors are looked at.
INTERVAL_S = 5


def look_often() -> None:
    """Look for new backfills every `INTERVAL_S` in this process."""
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = INTERVAL_S


if __name__ == "__main__":
    look_often()
    main()
