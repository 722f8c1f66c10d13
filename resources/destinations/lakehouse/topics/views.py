"""Compute the pipeline's views over the ledgers of its tables by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.pipeline_state import Notes
from resources.destinations.lakehouse.topics.seen import Seen
from resources.destinations.lakehouse.topics.split_commit import combined, newest_first
from resources.destinations.sql.ledger import table_definitions

__all__ = ["shown"]


def shown(
    name: str, limit: int | None, found: Sequence[Seen], record: Record, notes: Notes, folder: Folder
) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a view, newest first.

    Args:
        name: of the view, without `kpipe_`.
        limit: maximum of rows; None: all.
        found: the tables with commits.
        record: the ledger of the pipeline.
        notes: state and error events.
        folder: of kpipe's files beside the tables.
    """
    events = notes.events() if name in ("errors", "pipelines") else []
    with tables.desk(folder) as (connection, _):
        tables.lay_pipeline(connection, record, notes.state(), folder.place, len(events))
        if name in ("batches", "batches_summary"):
            items = combined(newest_first(_histories(found)), limit)
            commits = [{**item["commit"], "target_table": record.table} for item in items]
            table_definitions.COMMITS.insert(connection, tables.DIALECT, commits)
            table_definitions.BATCHES.insert(connection, tables.DIALECT, [row for item in items for row in item["ranges"]])
        if name == "errors":
            tables.lay_events(connection, events)
        rows = list(tables.shown(connection, name, record.pipeline, limit))
    if name != "errors":
        return rows
    for seen in found:
        if seen.record.dead_letters:
            rows += seen.place.view("errors", limit)
    return sorted(rows, key=lambda row: row["error_id"], reverse=True)[:limit]


def _histories(found: Sequence[Seen]) -> list[Iterator[dict[str, Any]]]:
    """Return the commits with ranges of each table, newest first."""
    return [(item for item in seen.items(newest_first=True) if item["ranges"]) for seen in found]
