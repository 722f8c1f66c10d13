"""Stage a batch into tables by a field: find the values of its records, then stage with a table for each (ADR 69)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.routes import Routes
from kpipe.column_growth import listed
from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager
from kpipe.run_events import Event
from kpipe.schema.columns import Columns
from kpipe.tables.field_tables import FieldTables, routes_of
from kpipe.tables.topic_tables import TopicTables

__all__ = ["opened", "routed"]


def opened(pipeline: Pipeline, destination: Destination, batch: Batch) -> tuple[Batch, list[Columns]]:
    """Return the batch with the existing tables of the pipeline, and their columns. Tables that were removed empty are left out.

    Raises:
        LedgerMismatch: a table is missing although rows were written to it.
    """
    assert isinstance(destination, FieldTables) and isinstance(destination, TopicTables)  # validated with the definition
    routes = routes_of(pipeline, destination.tables_written())
    found = destination.columns_of(routes.names)
    there = {name: columns for name, columns in zip(routes.names, found, strict=True) if columns is not None}
    return replace(batch, routes=routes.opened(there)), list(there.values())


def routed(
    batch: Batch, stager: Stager, columns: Sequence[Columns], on_event: Callable[[Event], None]
) -> tuple[Batch, Mapping[str, Columns], Sequence[RangeReport]]:
    """Stage a batch, and return it with the tables of all its records.

    Args:
        batch: with the existing tables (`opened`).
        stager: stages the batch.
        columns: columns of these tables.
        on_event: called with every event.

    Returns:
        The batch; the columns of the first records of each table that was added; and the reports, which are complete if none was.
    """
    routes = batch.routes
    assert isinstance(routes, Routes)
    reports = stager.stage(batch, columns)
    found: dict[str, Columns] = {}
    for report in reports:
        for value, new in report.found.items():
            found[value] = found.get(value, Columns()).joined(new)
    if not found:
        return batch, {}, reports
    wider = routes.widened(found)
    added = wider.values[len(routes.values) :]
    new_tables = listed(list(wider.tables[len(routes.values) :]), 20)
    on_event(Event("restaged", batch, text=f"new tables: {new_tables}"))
    return replace(batch, routes=wider), {value: found[value] for value in added}, reports
