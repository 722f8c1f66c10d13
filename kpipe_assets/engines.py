"""Dagster's SQLite files, opened through an engine of SQLAlchemy that is kept, in place of a new one for each statement.

An engine compiles each kind of statement once, and asks its first connection what the database can. Dagster makes one,
asks it once, and throws it away: half of what a question costs, and a tick is some ten. Connections are not kept, as before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage

__all__ = ["keep"]

# Each run has a file of its own, and is asked about while somebody looks at it. The three of all runs are always among them.
_MOST = 32


def keep() -> None:
    """From now on, in this process."""
    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        module.create_engine = _engine  # type: ignore[attr-defined]


def _engine(address: str, **options: Any) -> sqlalchemy.Engine:
    connect = options.pop("connect_args", {})
    return _kept(address, tuple(sorted(options.items())), tuple(sorted(connect.items())))


@lru_cache(_MOST)
def _kept(address: str, options: tuple[tuple[str, Any], ...], connect: tuple[tuple[str, Any], ...]) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(address, connect_args=dict(connect), **dict(options))
