"""Stage a batch: choose the columns of each table, have its records staged, and widen the tables for new columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from kpipe.batch.batch import Batch, RangeReport
from kpipe.column_growth import Closed, Taken, listed, named, names_in, taken
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import SchemaConflict
from kpipe.expressions.projection import Selection
from kpipe.failpoints import failpoint
from kpipe.ingest.field_staging import opened, routed
from kpipe.interfaces import Destination, Stager
from kpipe.ledger.ledger import Ledger
from kpipe.run_events import Event
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from kpipe.tables.topic_tables import TopicTables, batch_columns, batch_tables
from kpipe.tables.upsert import naming_of
from kpipe.topics import TopicSnapshot

__all__ = ["Observed", "Sampling", "StagedBatch", "filled", "merged", "staged", "staged_for", "wanted"]

# Guards against an endless loop, if each pass finds new columns. Each pass reports all new columns of the whole batch,
# so a second pass finds none unless the records have changed, which Kafka excludes.
_MOST_STAGINGS = 3


@runtime_checkable
class Sampling(Protocol):
    """Optional interface of a stager: infer the columns of several tables at the same time."""

    def sample(self, batch: Batch, tables: Sequence[int]) -> None:
        """Read the samples of these tables of the batch, a bounded number at the same time; `Stager.columns` then reads none.

        Does nothing where samples have to be read one after the other.

        Raises:
            SourceError: a sample cannot be read.
        """
        ...


@dataclass(frozen=True)
class Observed:
    """Ledger and broker offsets at the start of a pass.

    Attributes:
        snapshot: topics and offsets of the brokers.
        ledger: the committed ledger.
        began: start on the monotonic clock, in seconds.
        started_ms: start on the wall clock, UTC.
    """

    snapshot: TopicSnapshot
    ledger: Ledger
    began: float
    started_ms: int


@dataclass(frozen=True)
class StagedBatch:
    """A batch whose rows are staged.

    Attributes:
        batch: the batch.
        snapshot: the broker offsets of its plan.
        ledger: the ledger of its plan, committed or expected.
        columns: columns of the staged rows, for each table of the batch (kpipe/tables/topic_tables.py).
        closed: for each table, limits for further columns (kpipe/column_growth.py); empty while all are accepted.
        reports: reports of the tasks.
        began: start on the monotonic clock, in seconds.
        started_ms: start on the wall clock, UTC.
    """

    batch: Batch
    snapshot: TopicSnapshot
    ledger: Ledger
    columns: tuple[Columns, ...]
    closed: tuple[Closed, ...]
    reports: Sequence[RangeReport]
    began: float
    started_ms: int


def wanted(pipeline: Pipeline, table: Columns | None, sample: Callable[[], Columns]) -> Columns:
    """Return the table's columns if it exists, else the declared ones followed by those of a sample (design.md 4.6).

    Raises:
        SchemaConflict: a declared type is incompatible with the table's.
    """
    declared = filled(pipeline, pipeline.declared)
    if table is not None:
        table = filled(pipeline, table)
        missing = declared.without(table.names())
        return merged(table, missing) if pipeline.evolution == "evolve" else table
    if pipeline.format.type == "raw":
        return filled(pipeline, Columns.of({"key": "BLOB", "value": "BLOB"}))
    return _taken(pipeline, declared, sample().without(declared.names()), 0).columns


def filled(pipeline: Pipeline, table: Columns) -> Columns:
    """Return the table's columns that rows have values for: all, unless the definition lists them; others get defaults."""
    format = pipeline.format
    if pipeline.select is not None:
        chosen = Selection.of(pipeline)
        given = chosen.outputs if chosen is not None else None
        return table if given is None else Columns(tuple((name, kind) for name, kind in table if name.lower() in given))
    if not (format.mapping or format.fields):
        return table
    key = pipeline.key_format
    if key is not None and not (key.mapping or key.fields):
        return table  # the key's columns are only known at decode time
    spelt = [name for part in (format, key) if part is not None for name in part.mapping or part.fields or ()]
    named = {name.lower() for name in (*spelt, *pipeline.set, *pipeline.columns)}
    return Columns(tuple((name, kind) for name, kind in table if name.lower() in named))


def staged(
    pipeline: Pipeline,
    stager: Stager,
    batch: Batch,
    columns: Sequence[Columns],
    on_event: Callable[[Event], None],
    known: Sequence[Columns] = (),
    closed: tuple[Closed, ...] = (),
    first: Sequence[RangeReport] | None = None,
) -> tuple[tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
    """Stage rows with the existing or new columns of the tables.

    The pipeline's schema policy decides about new columns in the records. `evolve` widens the tables within the limits and
    stages again; records with further columns become dead letters. `ignore` leaves new columns out; `fail` raises.

    Args:
        pipeline: the definition.
        stager: stages the batch.
        batch: the batch.
        columns: columns of each table.
        on_event: called with every event.
        known: columns of each table without those of a sample; empty: the same as `columns`.
        closed: limits from an earlier staging of the batch.
        first: reports of the first staging, if it has been done.

    Returns:
        Columns of each table, the limits for further columns, and the reports.

    Raises:
        SchemaConflict: the policy is `fail`, or types are incompatible.
    """
    failpoint("plan.frozen")
    columns = tuple(columns)
    tables = batch_tables(pipeline, batch)
    sampled = [_names(have) - _names(base) for have, base in zip(columns, known or columns, strict=True)]
    for attempt in range(1, _MOST_STAGINGS + 1):
        reports = first if first is not None and attempt == 1 else stager.stage(batch, columns, closed)
        new = [Columns() for _ in columns]
        for report in reports:
            for at, table in zip(tables.of(report.source), report.tables, strict=True):
                new[at] = new[at].joined(table.new_columns, apart=True)
        if not any(new) or pipeline.evolution == "ignore":
            return columns, closed, reports
        names = listed([f"{name} {kind}" for part in new for name, kind in part], 20)
        if pipeline.evolution == "fail":
            raise SchemaConflict(
                f"batch {batch.id}: records have columns that the table lacks: {names}",
                "add them to the table or to `columns`, or set schema: evolve or ignore",
            )
        wide = [_taken(*found) for found in zip(tables.parts, columns, new, sampled, strict=True)]
        sampled = [
            _names(after.columns) - _names(have) + count for after, have, count in zip(wide, columns, sampled, strict=True)
        ]
        columns, closed = tuple(found.columns for found in wide), tuple(found.closed for found in wide)
        if attempt < _MOST_STAGINGS:
            on_event(Event("restaged", batch, text=f"new columns: {names}"))
    raise SchemaConflict(f"batch {batch.id}: each read finds other new columns: {names}")


def staged_for(
    pipeline: Pipeline,
    destination: Destination,
    stager: Stager,
    batch: Batch,
    on_event: Callable[[Event], None],
) -> tuple[Batch, tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
    """Stage rows for tables as they are: `staged` with the columns of `wanted`.

    Args:
        pipeline: the definition.
        destination: has the tables.
        stager: stages the batch.
        batch: the batch.
        on_event: called with every event.

    Returns:
        The batch, with its tables if they depend on its records, and what `staged` returns.

    Raises:
        SchemaConflict: see `wanted` and `staged`; or `ignore` would leave out every column of a new table.
    """
    if pipeline.into.by_field:
        return _by_field(pipeline, destination, stager, batch, on_event)
    tables = batch_columns(pipeline, destination, batch)
    missing = [at for at, (part, table) in enumerate(tables) if table is None and part.format.type != "raw"]
    if len(missing) > 1 and isinstance(stager, Sampling):
        stager.sample(batch, missing)
    samples = [partial(stager.columns, batch, at) for at in range(len(tables))]
    columns = [wanted(part, table, sample) for (part, table), sample in zip(tables, samples, strict=True)]
    known = [wanted(part, table, Columns) for part, table in tables]
    found = staged(pipeline, stager, batch, columns, on_event, known)
    if pipeline.evolution == "ignore":
        _check_columns(pipeline, batch, [table for _, table in tables], found[0], found[2])
    return batch, *found


def _check_columns(
    pipeline: Pipeline, batch: Batch, there: Sequence[Columns | None], columns: Sequence[Columns], reports: Sequence[RangeReport]
) -> None:
    """Check that the rows of a new table have columns: with `ignore`, later records add none.

    Raises:
        SchemaConflict: they have none, as no record of the sample has a column.
    """
    tables = batch_tables(pipeline, batch)
    for report in reports:
        for at, table in zip(tables.of(report.source), report.tables, strict=True):
            if there[at] is None and not columns[at] and table.counts.rows:
                raise SchemaConflict(
                    f"batch {batch.id}: table {tables.parts[at].into.table} does not exist, and the first records have no columns"
                    " for it",
                    "declare them under `columns`, create the table, or set schema: evolve",
                )


def _by_field(
    pipeline: Pipeline, destination: Destination, stager: Stager, batch: Batch, on_event: Callable[[Event], None]
) -> tuple[Batch, tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
    batch, there = opened(pipeline, destination, batch)
    have = [wanted(part, table, Columns) for part, table in zip(batch_tables(pipeline, batch).parts, there, strict=True)]
    batch, new, reports = routed(batch, stager, have, on_event)
    if not new:
        return batch, *staged(pipeline, stager, batch, have, on_event, first=reports)
    parts = batch_tables(pipeline, batch).parts
    assert isinstance(destination, TopicTables)  # validated with the definition
    # Another program may have created a table that the ledger does not name.
    added = destination.columns_of([part.into.table for part in parts[len(there) :]])
    tables = list(zip(parts, (*there, *added), strict=True))
    samples = [*(Columns() for _ in have), *new.values()]
    columns = [wanted(part, table, partial(_same, sample)) for (part, table), sample in zip(tables, samples, strict=True)]
    known = [wanted(part, table, Columns) for part, table in tables]
    return batch, *staged(pipeline, stager, batch, columns, on_event, known)


def _same(columns: Columns) -> Columns:
    return columns


def _names(columns: Columns) -> int:
    return sum(names_in(kind) for _, kind in columns)


def _taken(pipeline: Pipeline, columns: Columns, new: Columns, before: int) -> Taken:
    try:
        return taken(columns, new, room(naming_of(pipeline)), named(pipeline), before)
    except ValueError as error:
        raise SchemaConflict(str(error), "declare the column's type under `columns`, or change the table") from error


def merged(columns: Columns, new: Columns) -> Columns:
    """Merge columns; a name in both gets the wider type.

    Raises:
        SchemaConflict: two types of one name are incompatible.
    """
    try:
        return columns.merged(new)
    except ValueError as error:
        raise SchemaConflict(str(error), "declare the column's type under `columns`, or change the table") from error
