"""Compute the pipeline's views over the ledgers of its tables by topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.pipeline_state import Notes
from resources.destinations.lakehouse.topics.split_commit import combined
from resources.destinations.sql.ledger import table_definitions

if TYPE_CHECKING:
    from resources.destinations.lakehouse.topics.destination import Seen, TopicLakes

__all__ = ["shown"]


def shown(
    destination: TopicLakes, name: str, limit: int | None, found: Sequence[Seen], notes: Notes
) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a view, newest first.

    Args:
        destination: of the pipeline.
        name: of the view, without `kpipe_`.
        limit: maximum of rows; None: all.
        found: the tables with commits.
        notes: state and error events.
    """
    folder = destination.registry.folder
    events = notes.events() if name in ("errors", "pipelines") else []
    with tables.desk(folder) as (connection, _):
        tables.lay_pipeline(connection, destination.merged(found), notes.state(), folder.place, len(events))
        if name in ("batches", "batches_summary"):
            items = combined(destination.newest_first(found), limit)
            commits = [{**item["commit"], "target_table": destination.template} for item in items]
            table_definitions.COMMITS.insert(connection, tables.DIALECT, commits)
            table_definitions.BATCHES.insert(connection, tables.DIALECT, [row for item in items for row in item["ranges"]])
        if name == "errors":
            tables.lay_events(connection, events)
        rows = list(tables.shown(connection, name, destination.pipeline, limit))
    if name != "errors":
        return rows
    for seen in found:
        if seen.record.dead_letters:
            rows += seen.place.view("errors", limit)
    return sorted(rows, key=lambda row: row["error_id"], reverse=True)[:limit]
