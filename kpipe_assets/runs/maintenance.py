"""Maintain the table of a pipeline, for `kpipe maintain` and Dagster's job."""

from __future__ import annotations

from collections.abc import Callable

from kpipe.definition.lakehouse_options import Maintenance
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NotAvailable
from kpipe.maintenance.facts import Maintainable, Maintained
from kpipe.maintenance.plan import Limits
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["maintained"]


def maintained(
    pipeline: Pipeline, home: Home, rules: Maintenance, note: Callable[[str], None], dry_run: bool = False
) -> Maintained:
    """Compact the table, and remove old files if the rules have a retention time.

    Args:
        pipeline: the definition.
        home: contains temporary files.
        rules: thresholds.
        note: called with one line for each commit.
        dry_run: only plan.

    Raises:
        NotAvailable: the destination needs no maintenance by kpipe.
        KpipeError: see `Maintainable`.
    """
    destination = open_destination(pipeline, home)
    if not isinstance(destination, Maintainable):
        raise NotAvailable(
            f"pipeline {pipeline.name}: maintenance is not available for into.type {pipeline.into.type}",
            "use the commands of the database; kpipe maintains Iceberg and Delta tables",
        )
    limits = Limits(rules.target_file_mb, rules.min_input_files, rules.delete_ratio)
    retention = None if rules.retention_hours is None else rules.retention_hours * 3600.0
    return destination.maintain(limits, home.cache / "maintenance", dry_run, note, retention)
