"""Tables by a field: `into.table` with `{field.NAME}` gives each value of a field a table of its own, in one commit (ADR 69).

The tables of a batch are those of its records, so they are known when it is staged (kpipe/ingest/field_staging.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from kpipe.batch.routes import Routes
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.table_template import field_of
from kpipe.definition.target import AT_ONCE
from kpipe.errors import InvalidPipeline, NotAvailable

__all__ = ["MOST_TABLES", "FieldTables", "check_by_field", "of_table", "refused_by_field", "routes_of"]

#: Most tables, unless the definition sets `into.max_tables`.
MOST_TABLES = 100
_FORMATS = ("json", "csv", "avro")


@runtime_checkable
class FieldTables(Protocol):
    """A destination with a table for each value of a field. The tables are those of the commit."""

    def tables_written(self) -> Sequence[str]:
        """Return the names of all tables that the pipeline has written according to the ledger."""
        ...


def of_table(pipeline: Pipeline, table: str) -> Pipeline:
    """Return the pipeline as seen by one of its tables."""
    return pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"table": table})})


def routes_of(pipeline: Pipeline, written: Iterable[str] = ()) -> Routes:
    """Return the routes of a pipeline whose ledger names these tables; none of them is open yet."""
    into = pipeline.into
    most = into.max_tables if into.max_tables is not None else MOST_TABLES
    return Routes(into.table, most, reserved="pg_" if into.type == "postgres" else "").known(written)


def check_by_field(pipeline: Pipeline) -> None:
    """Reject fields that tables by a field do not support.

    Raises:
        NotAvailable: such a field is set; the message names it.
        InvalidPipeline: the records have no such field, or rows have a key whose columns the definition does not name.
    """
    into, format = pipeline.into, pipeline.format
    name = field_of(into.table)
    if name is None:
        return
    where = f"pipeline {pipeline.name}: into.table {into.table}"
    if into.type not in AT_ONCE:
        raise NotAvailable(
            f"{where}: a table for each value of a field is not available for into.type {into.type}",
            f"use into.type: {', '.join(AT_ONCE)}; or several pipelines with `where`",
        ).about("into", "table")
    if format.type not in _FORMATS:
        raise NotAvailable(
            f"{where}: not available with format: {format.type}", f"use format: {', '.join(_FORMATS)}; or name the table"
        ).about("into", "table")
    refused = {
        ("also",): bool(pipeline.also),
        ("transform",): pipeline.transform is not None,
        ("select",): pipeline.select is not None,
        ("where",): pipeline.where is not None,
        ("set",): bool(pipeline.set),
        ("format", "explode"): format.several,
        ("format", "schemas_enable"): format.schemas_enable,
        ("into", "on_null"): into.on_null != "skip",
        ("errors", "duplicate_key"): pipeline.errors.duplicate_key == "dead_letter",
        ("delivery",): pipeline.delivery != "exactly_once",
        ("batch", "cut"): pipeline.batch.cut != "offset",
    }
    for path, wanted in refused.items():
        if wanted:
            raise NotAvailable(
                f"{where}: not available together with {'.'.join(path)}", "see docs/how-to/several-tables.md"
            ).about(*path)
    if format.type == "csv" and format.fields is None:
        raise InvalidPipeline(f"{where}: CSV fields have no names", "set format.fields").about("format", "fields")
    listed = format.listed
    if listed is not None and name.lower() not in map(str.lower, listed):
        raise InvalidPipeline(
            f"{where}: format lists no column {name}: expected one of {', '.join(listed)}", "correct the field, or list it"
        ).about("into", "table")
    keyed = into.on_conflict != "error" or pipeline.errors.duplicate_key != "fail"
    if keyed and into.key is None:
        raise InvalidPipeline(
            f"{where}: the tables have no common primary key", "name the key's columns, the same in each table: into.key"
        ).about("into", "on_conflict")
    # A table that appears must have them, whatever its first records contain.
    missing = [column for column in into.key or () if column not in pipeline.declared]
    if missing:
        raise InvalidPipeline(
            f"{where}: key column {missing[0]} has no type, and a table that appears may have no record with it",
            f"declare it: columns: {{{missing[0]}: BIGINT}}",
        ).about("into", "key")


def refused_by_field(pipeline: Pipeline, what: str, hint: str) -> None:
    """Reject a command that does not support tables by a field.

    Raises:
        NotAvailable: each value of a field has a table of its own.
    """
    if pipeline.into.by_field:
        raise NotAvailable(
            f"pipeline {pipeline.name}: {what}: not available for a table by a field: into.table {pipeline.into.table}", hint
        )
