"""Dagster's event log in SQLite, many events in one transaction.

Dagster stores each event of a partition in transactions of its own, on connections of their own: 15 to 25 ms of CPU. It has
a way to hand over many at once, and a variable that turns it on; SQLite's storage then still takes them one by one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from dagster._core.events import ASSET_EVENTS
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite import sqlite_event_log

__all__ = ["in_batches"]

# At once; what is kept in memory meanwhile is some 5 kB each.
_MOST = 1000


def in_batches() -> None:
    """From now on in this process, and, for storages that can by themselves, in those that it starts."""
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", str(_MOST))
    sqlite_event_log.SqliteEventLogStorage.store_event_batch = _store  # type: ignore[method-assign, assignment]


def _store(self: sqlite_event_log.SqliteEventLogStorage, events: Sequence[EventLogEntry]) -> None:
    """What `store_event` does for each, in the same order of files: the run's own, then the index of all runs.

    In each file all of them are there, or none. Where the second fails, Dagster stores the events one by one: the run's page
    then shows them twice, those of assets and partitions once.
    """
    of_assets = [event for event in events if _of_asset(event)]
    rows = [self._event_to_row(event) for event in of_assets]
    for run in dict.fromkeys(event.run_id for event in of_assets):
        with self.run_connection(run) as connection:
            connection.execute(SqlEventLogStorageTable.insert(), [row for row in rows if row["run_id"] == run])
    if rows:
        with self.index_connection() as connection:
            ids = [connection.execute(SqlEventLogStorageTable.insert(), row).lastrowid for row in rows]
            self._store_asset_event_tags(connection, of_assets, ids)
            # A row for each asset tells of its newest event of each kind: only the last of them stays.
            last = {(event.get_dagster_event().asset_key, event.dagster_event_type): at for at, event in enumerate(of_assets)}
            for at in sorted(last.values()):
                self._store_asset_event(connection, of_assets[at], ids[at])
    for event in events:
        if not _of_asset(event):  # planned checks: a few
            self.store_event(event)


def _of_asset(event: EventLogEntry) -> bool:
    return event.is_dagster_event and event.dagster_event_type in ASSET_EVENTS
