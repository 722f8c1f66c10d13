"""Tables of one pipeline: a definition for each, as if it were the only table."""

from __future__ import annotations

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.expressions.select import unnests
from kpipe.interfaces import Destination, MultiTable

__all__ = ["check_tables", "fans_out", "field_of_table", "multiplies", "table_destinations", "table_pipelines"]

#: Fields of `into` that each table has for itself.
_OF_INTO = ("table", "key", "on_conflict", "update")


def table_pipelines(pipeline: Pipeline) -> tuple[Pipeline, ...]:
    """Return the pipeline as seen by each of its tables, in the order of the definition.

    Each has no `also`, but its table's own key, expressions and declared columns. Source, format and other fields are shared.
    """
    return tuple(
        pipeline.model_copy(
            update={
                "into": pipeline.into.model_copy(update={name: getattr(own, name) for name in _OF_INTO}),
                "columns": {**pipeline.columns, **own.columns},
                "select": own.select,
                "where": own.where,
                "set": own.set,
                "also": [],
            }
        )
        for own in pipeline.tables
    )


def field_of_table(at: int, *path: str) -> tuple[str, ...]:
    """Return the path of a table's field in the definition, from its path for the table of `into`."""
    return ("also", str(at - 1), *(path[1:] if path[:1] == ("into",) else path)) if at else path


def table_destinations(pipeline: Pipeline, destination: Destination) -> list[tuple[Pipeline, Destination]]:
    """Return each table's pipeline with the destination that reads the table.

    Raises:
        NotAvailable: the destination writes one table only.
    """
    if pipeline.also and not isinstance(destination, MultiTable):
        raise NotAvailable(
            f"pipeline {pipeline.name}: also: {destination.describe()} cannot write several tables in one commit",
            "use into.type: duckdb, postgres or mysql, or one pipeline for each table",
        )
    tables = destination.tables if isinstance(destination, MultiTable) else (destination,)
    return list(zip(table_pipelines(pipeline), tables, strict=True))


def fans_out(pipeline: Pipeline) -> bool:
    """Return whether ranges count records and rows: a record may give several rows with its offset, or rows of any table."""
    program = pipeline.transform
    has_offsets = program is None or program.traced or program.mode != "flatmap"
    return multiplies(pipeline) or (pipeline.format.fan_out and has_offsets)


def multiplies(pipeline: Pipeline) -> bool:
    """Return whether a record may give several rows, or rows of any table, for other reasons than its format."""
    program = pipeline.transform
    if program is not None and program.traced and program.mode == "flatmap":
        return True
    return bool(pipeline.also) or pipeline.into.by_field or any(unnests(part.select) for part in table_pipelines(pipeline))


def check_tables(pipeline: Pipeline) -> None:
    """Reject fields that several tables do not support.

    Raises:
        NotAvailable: such a field is set; the message names it.
        InvalidPipeline: the fields of a CSV record have no names.
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
                f"pipeline {pipeline.name}: {name}: not available together with also", "see docs/how-to/several-tables.md"
            )
    if pipeline.format.type == "csv" and pipeline.format.fields is None:
        raise InvalidPipeline(f"pipeline {pipeline.name}: also: CSV fields have no names", "set format.fields")
