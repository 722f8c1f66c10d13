"""Derive the definition of a copy: other names, another place, fixed offsets, small batches; everything else unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.definition.lookups import Lookup
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import is_credential, problems
from kpipe.definition.target import declarations
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination, Keyed
from kpipe.schema.columns import Columns
from kpipe.tables.field_tables import refused_by_field
from kpipe.tables.multi_table import table_destinations
from kpipe.tables.upsert import KeyRule
from kpipe_assets.chaos.window import Window

__all__ = ["PREFIX", "RealTable", "check_copyable", "copy_of", "read_tables", "table_name"]

#: Names that `kpipe chaos` creates begin with it.
PREFIX = "__kpipe_chaos_"
_TYPES = ("delta", "duckdb", "iceberg", "mysql", "parquet", "postgres")
_REFUSED = {
    "webhook": "a copy would send requests to your endpoint",
    "kafka": "a copy would write records and a ledger to topics of your cluster",
}


@dataclass(frozen=True)
class RealTable:
    """Facts about one of the pipeline's own tables. Nothing else is read of it.

    Attributes:
        name: its name.
        columns: payload columns; None: the table does not exist.
        key: columns of the key that identifies its rows; None: rows have no key.
    """

    name: str
    columns: Columns | None = None
    key: tuple[str, ...] | None = None


def check_copyable(pipeline: Pipeline) -> None:
    """Check that copies of the pipeline can be loaded without effects outside of them.

    Raises:
        NotAvailable: they cannot.
        InvalidPipeline: a field other than a credential contains a literal secret, which a copy's definition would contain, too.
    """
    where, kind = f"pipeline {pipeline.name}: kpipe chaos", pipeline.into.type
    if not pipeline.source.reads_topics:
        raise NotAvailable(f"{where}: not available for files and tables as a source: it needs topics", "")
    if kind not in _TYPES:
        why = _REFUSED.get(kind, f"it cannot create and remove tables in a destination of type {kind}")
        raise NotAvailable(f"{where}: not available for into.type {kind}: {why}", f"use one of: {', '.join(_TYPES)}")
    refused_by_field(pipeline, "kpipe chaos", "test a definition with one table")
    if pipeline.into.by_topic:
        raise NotAvailable(
            f"{where}: not available for into.table {pipeline.into.table}: a table for each topic",
            "test one of the topics: a definition with source.topic and the table's name",
        )
    if pipeline.delivery != "exactly_once":
        raise NotAvailable(
            f"{where}: not available for delivery: {pipeline.delivery}, which loses or repeats records of a killed run by design",
            "set delivery: exactly_once",
        )
    if pipeline.batch.cut == "transaction":
        raise NotAvailable(
            f"{where}: not available for batch.cut: transaction: a copy has fixed first and last offsets, which may be within a"
            " transaction of the source",
            "test a definition of another name without batch.cut",
        )
    for path, (what, hint) in problems(pipeline.to_dict()):
        if not is_credential(path):
            raise InvalidPipeline(f"{where}: {'.'.join(path)} {what}, which a copy would store", hint)


def read_tables(pipeline: Pipeline, destination: Destination) -> list[RealTable]:
    """Read columns and keys of the pipeline's tables.

    Raises:
        KpipeError: the destination cannot be read, or a table has no key although the definition requires one.
    """
    found = []
    for part, place in table_destinations(pipeline, destination):
        columns = place.columns()
        key = place.key() if KeyRule.of(part) is not None and isinstance(place, Keyed) else None
        found.append(RealTable(part.into.table, columns, key))
    return found


def table_name(copy: str, at: int) -> str:
    """Return the name of a copy's table, by its position in the definition."""
    return f"{copy}_t{at}" if at else copy


def copy_of(
    pipeline: Pipeline,
    name: str,
    into: Mapping[str, Any],
    window: Window,
    batch_offsets: int,
    tables: Sequence[RealTable],
    lookups: Mapping[str, Lookup],
) -> Pipeline:
    """Return the definition of a copy.

    Args:
        pipeline: the definition to copy.
        name: of the copy, and of its first table.
        into: fields of `into` that name the copy's place.
        window: offsets to load.
        batch_offsets: offsets of one partition in a batch.
        tables: the pipeline's tables; a copy's tables get their columns and keys.
        lookups: lookups to replace, by name.

    Raises:
        NotAvailable: the copy would have the place and the name of a real table.
    """
    fields = pipeline.model_dump(mode="json", by_alias=True)
    fields["name"] = name
    ranges = {str(key): span for key, span in window.named().items()}
    fields["source"].update(
        start={key: span.start for key, span in ranges.items()},
        end={key: span.end for key, span in ranges.items()},
        group=None,
    )
    if pipeline.source.topic_pattern is not None:  # topics that appear later are not part of the window
        fields["source"]["topic_pattern"] = f"^(?:{'|'.join(map(re.escape, window.topics))})$"
    fields["errors"]["topic"] = None
    fields["batch"]["max_offsets_per_partition"] = min(batch_offsets, pipeline.batch.max_offsets_per_partition)
    fields["into"].update(into, table=name)
    fields["columns"] = _declared(pipeline, pipeline.columns, tables[0])
    _set_key(fields["into"], tables[0])
    for at, (own, real) in enumerate(zip(pipeline.also, tables[1:], strict=True), 1):
        fields["also"][at - 1]["table"] = table_name(name, at)
        fields["also"][at - 1]["columns"] = _declared(pipeline, own.columns, real)
        _set_key(fields["also"][at - 1], real)
    for lookup, changed in lookups.items():
        fields["lookups"][lookup] = changed.model_dump(mode="json")
    copy = Pipeline.model_validate(fields)
    names = {part.table.lower() for part in pipeline.tables}
    if names & {part.table.lower() for part in copy.tables}:
        raise NotAvailable(f"pipeline {pipeline.name}: kpipe chaos: a table is named {name}", "rename the table")
    return copy


def _set_key(fields: dict[str, Any], real: RealTable) -> None:
    if real.key is not None:
        fields["key"] = list(real.key)


def _declared(pipeline: Pipeline, declared: Mapping[str, str], real: RealTable) -> dict[str, str]:
    """Return the declared columns, and those of the real table with their types."""
    if real.columns is None or pipeline.format.type == "raw":
        return dict(declared)
    known = {name.lower() for name in declared}
    table = {name: str(kind) for name, kind in real.columns if name.lower() not in known}
    return {**declared, **_possible(table.items())}


def _possible(columns: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the columns that a definition can declare; types nested too deeply are inferred again."""
    found = {}
    for name, kind in columns:
        try:
            found.update(declarations({name: kind}))
        except ValueError:
            continue
    return found
