"""The tables that one pipeline fills: a definition for each, so that each is treated as if it were the only one."""

from __future__ import annotations

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.expressions.select import unnests
from kpipe.interfaces import Destination, Several

__all__ = ["check_targets", "is_several", "paired", "targets"]


def targets(pipeline: Pipeline) -> tuple[Pipeline, ...]:
    """The definition for each table, that of `into` first, then those of `also` in their order.

    Each has no `also`, and its own table, key, expressions and declared columns; source, format and everything else are shared.
    """
    first = pipeline.model_copy(update={"also": []}) if pipeline.also else pipeline
    more = []
    for item in pipeline.also:
        into = {"table": item.table, "key": item.key, "on_conflict": item.on_conflict, "update": item.update}
        fields = {
            "into": pipeline.into.model_copy(update=into),
            "columns": {**pipeline.columns, **item.columns},
            "select": item.select,
            "where": item.where,
            "set": item.set,
        }
        more.append(first.model_copy(update=fields))
    return (first, *more)


def paired(pipeline: Pipeline, destination: Destination) -> list[tuple[Pipeline, Destination]]:
    """The definition for each table, with where the table can be asked.

    Raises:
        NotAvailable: the destination puts rows into one table only.
    """
    if pipeline.also and not isinstance(destination, Several):
        raise NotAvailable(
            f"pipeline {pipeline.name}: {destination.describe()} cannot change several tables at once (also)",
            "use into.type duckdb or postgres, or a pipeline for each table",
        )
    further = destination.further() if pipeline.also and isinstance(destination, Several) else ()
    return list(zip(targets(pipeline), (destination, *further), strict=True))


def is_several(pipeline: Pipeline) -> bool:
    """Whether a record may give several rows, in one table or over several: ranges then count records beside rows."""
    return bool(pipeline.also) or any(unnests(part.select) for part in targets(pipeline))


def check_targets(pipeline: Pipeline) -> None:
    """What cannot be done for several tables is refused by name.

    Raises:
        NotAvailable: names the field.
        InvalidPipeline: nothing says which field of a CSV record is which.
    """
    if not pipeline.also:
        return
    refused = {
        "into.on_null: delete": pipeline.into.on_null != "skip",
        "errors.duplicate_key: dead_letter": pipeline.errors.duplicate_key == "dead_letter",
    }
    for name, wanted in refused.items():
        if wanted:
            raise NotAvailable(
                f"pipeline {pipeline.name}: {name} beside also is not available", "see docs/guide/several-tables.md"
            )
    if pipeline.format.type == "csv" and pipeline.format.fields is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: also over CSV without names", "name the fields: format.fields")
