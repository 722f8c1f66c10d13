"""Execute TEST, EXTRACT and INFER PIPELINE: read a few records without a commit."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Piece, RangeReport, TableReport, total
from kpipe.batch.table_write import BatchTables
from kpipe.definition.formats import Format
from kpipe.definition.json_path import write_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement, KpipeError
from kpipe.ingest.staging import staged_for
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, arrivals, check_source, plan
from kpipe.planning.seek import no_partition
from kpipe.planning.start_offsets import beginnings
from kpipe.schema.columns import Columns
from kpipe.sql.renderer import to_sql
from kpipe.sql.source_positions import pointing
from kpipe.sql.statements import Extract, Infer, Test
from kpipe.tables.changes import HIDDEN, is_changes
from kpipe.tables.field_tables import refused_by_field
from kpipe.tables.multi_table import table_pipelines
from kpipe.tables.topic_tables import batch_tables
from kpipe.tables.upsert import with_key
from kpipe.topics import TopicSnapshot, chosen
from kpipe_assets.statements.excerpt import in_definition
from kpipe_assets.statements.result import Result
from kpipe_assets.statements.seek import check_named
from kpipe_assets.validation import Needs, validate
from kpipe_assets.wording import count
from resources.destinations import open_destination, required_columns
from resources.home import Home
from resources.lookups.table_source import asking

__all__ = ["extract", "infer", "test"]

# Offsets without LIMIT: enough for an overview, few enough to read at once.
_TEST_OFFSETS = 100
_EXTRACT_OFFSETS = 1000
_INFER_OFFSETS = 500


def test(home: Home, statement: Test) -> Result:
    """Execute TEST PIPELINE: transform and decode the next offsets of each partition, return the rows, commit nothing.

    Raises:
        KpipeError: an error that would end a run.
    """
    pipeline = home.pipeline(statement.pipeline)
    with in_definition(pipeline):
        return _tested(home, pipeline, statement.limit)


def _tested(home: Home, pipeline: Pipeline, limit: int | None) -> Result:
    from resources.sources.open_source import topics_of
    from resources.spark.driver.sample_stager import LocalStager

    destination = open_destination(pipeline, home)
    validate(pipeline, home, destination=destination)
    place = Home(home.make().staging / f"test-{uuid.uuid4().hex}")
    place.staging.mkdir(mode=0o700, parents=True)
    try:
        topics = topics_of(pipeline)
        keyed = with_key(pipeline, destination)
        stager = LocalStager(keyed, place, required=lambda part: required_columns(part, home), ask=asking(pipeline, home))
        ledger, snapshot = _as_if_begun(pipeline, topics, destination)
        limits = pipeline.batch
        bounds = Limits(limit or _TEST_OFFSETS, limits.max_bytes_per_partition, limits.max_partitions)
        batch = plan(ledger, snapshot, bounds, uuid.uuid4().hex)
        if isinstance(batch, Idle):
            return Result(f"pipeline {pipeline.name}: nothing to read: {batch.reason.replace('_', ' ')}; nothing was written")
        sample = partial(stager.sampled, batch)
        validate(pipeline, home, Needs.RECORDS, destination, sample)
        batch, columns, _, reports = staged_for(pipeline, destination, stager, batch, lambda _: None)
        return _shown(batch_tables(pipeline, batch), columns, reports)
    finally:
        shutil.rmtree(place.path, ignore_errors=True)


def _as_if_begun(pipeline: Pipeline, topics: Topics, destination: Destination) -> tuple[Ledger, TopicSnapshot]:
    """Return the ledger with all partitions, as for the first batch. It is not written."""
    _, ledger = destination.ledger()
    snapshot = topics.snapshot()
    check_source(ledger, snapshot)
    fresh = arrivals(ledger, snapshot)
    if fresh:
        ledger = ledger.after(beginnings(pipeline.source, topics, ledger, snapshot, fresh))
    return ledger, snapshot


def _shown(tables: BatchTables, columns: Sequence[Columns], reports: Sequence[RangeReport]) -> Result:
    """Build the result: rows, and in the message a line for each dead letter. With several tables, rows have a table column."""
    import duckdb

    rows: list[Sequence[Any]] = []
    names: list[str] = list(columns[0].names()) if columns else []
    aside: list[str] = []
    parts = tables.parts
    found_in: list[list[TableReport]] = [[] for _ in parts]
    for report in reports:
        for at, table in zip(tables.of(report.source), report.tables, strict=True):
            found_in[at].append(table)
    with duckdb.connect(":memory:") as connection:
        for at, part in enumerate(parts):
            paths = [file.path for table in found_in[at] for file in table.files]
            if paths and len(parts) == 1:
                query = "SELECT COLUMNS(lambda c: c NOT IN $2) FROM read_parquet($1, hive_partitioning = false)"
                found = connection.execute(query, [paths, list(HIDDEN)])
                names = [column[0] for column in found.description or ()]
                rows += found.fetchall()
            elif paths:  # tables differ in their columns
                query = "SELECT $2, to_json(r) FROM read_parquet($1, hive_partitioning = false) AS r"
                rows += connection.execute(query, [paths, part.into.table]).fetchall()
        for report in reports:
            if report.dead_letters is not None:
                query = 'SELECT "offset", stage, reason FROM read_parquet($1, hive_partitioning = false)'
                found = connection.execute(query, [report.dead_letters.path])
                aside += [f"{report.source} offset {at}, {stage}: {reason}" for at, stage, reason in found.fetchall()]
    counts = total(report.counts for report in reports)
    staged = [sum(table.counts.rows for table in mine) for mine in found_in]
    named = [f" of {part.into.table}" if len(parts) > 1 else "" for part in parts]
    each = [f"{count(rows_of, 'row')}{name}" for rows_of, name in zip(staged, named, strict=True)]
    words = [
        f"{count(sum(len(report.range) for report in reports), 'offset')} of {count(len(reports), 'partition')}:"
        f" {', '.join(each)}, {count(counts.dead_letters, 'dead letter')}, {counts.filtered:,} filtered;"
        " nothing was written",
        *aside,
    ]
    return Result("\n".join(words), names if len(parts) == 1 else ("table", "row"), rows)


def extract(home: Home, statement: Extract) -> Result:
    """Execute EXTRACT PIPELINE: write records to a file in the format of a program's stdin, to test it with `program < file`.

    Raises:
        InvalidStatement: the partition or the offsets do not exist, or the file exists.
    """
    from resources.sources.open_source import topics_of
    from resources.spark.driver.sample_stager import extract as written

    pipeline = home.pipeline(statement.pipeline)
    check_named(pipeline, statement.partition)
    _, ledger = open_destination(pipeline, home).ledger()
    snapshot = topics_of(pipeline).snapshot()
    source, span = _chosen(statement, ledger, snapshot)
    path = Path(statement.file).expanduser()
    try:
        with path.open("xb") as file:
            records, excluded = written(pipeline, Piece(source, span), file.write)
    except FileExistsError:
        raise InvalidStatement(f"{path} exists already", "name another file, or remove it") from None
    except OSError as error:
        raise KpipeError(f"{path}: cannot be written: {error.strerror}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    rest = f", {count(excluded, 'record')} excluded that a program cannot receive" if excluded else ""
    return Result(f"{count(records, 'record')} of {source} {span} in {path}{rest}; nothing was written to the table")


def _chosen(statement: Extract, ledger: Ledger, snapshot: TopicSnapshot) -> tuple[Any, Range]:
    """Return a partition and a range: the range of the statement, else the next unread offsets, else the last ones."""
    name = statement.partition
    parts = [item for item in sorted(snapshot.partitions) if name is None or chosen(item, [name])]
    if name is not None and not parts:
        raise no_partition(name, snapshot)
    at = ledger.positions()
    unread = [item for item in parts if at.get(item, snapshot.partitions[item].log_start) < snapshot.partitions[item].end]
    source = (unread or parts)[0]
    state = snapshot.partitions[source]
    if statement.offsets is not None:
        span = statement.offsets
        if not state.log_start <= span.start < span.end <= state.end:
            raise InvalidStatement(f"{source}: expected offsets within [{state.log_start}, {state.end}), found {span}")
        return source, span
    start = max(state.log_start, at.get(source, state.log_start))
    if start >= state.end:
        start = max(state.log_start, state.end - _EXTRACT_OFFSETS)
    return source, Range(start, min(state.end, start + _EXTRACT_OFFSETS))


def infer(home: Home, statement: Infer) -> Result:
    """Execute INFER PIPELINE: return CREATE TABLE and CREATE PIPELINE from the first records of up to four partitions.

    Raises:
        KpipeError: no record exists, or none can be decoded.
    """
    from resources.sources.open_source import topics_of
    from resources.spark.driver.sample_stager import LocalStager

    pipeline = statement.pipeline
    with pointing(statement.places, pipeline.name):
        validate(pipeline, home, Needs.FILES)
        refused_by_field(pipeline, "INFER PIPELINE", "name one table, and TEST PIPELINE shows the tables")
    topics = topics_of(pipeline)
    snapshot = topics.snapshot()
    empty = Ledger(pipeline.name)
    begun = empty.after(beginnings(pipeline.source, topics, empty, snapshot, arrivals(empty, snapshot)))
    batch = plan(begun, snapshot, Limits(_INFER_OFFSETS), uuid.uuid4().hex)
    stager = LocalStager(pipeline, home.make())
    parts = batch_tables(pipeline, batch).parts if isinstance(batch, Batch) else table_pipelines(pipeline)
    inferred = [stager.columns(batch, at) if isinstance(batch, Batch) else Columns() for at in range(len(parts))]
    if not any(inferred):
        raise KpipeError(
            "no columns inferred: the topic contains no record that FORMAT " + pipeline.format.type.upper() + " can decode",
            "produce records, or choose another FORMAT",
        )
    rows = [(_table(part.into.table, columns),) for part, columns in zip(parts, inferred, strict=True)]
    if is_changes(pipeline) and pipeline.into.key is None and isinstance(batch, Batch) and (names := stager.key_names(batch)):
        pipeline = pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"key": list(names)})})
    mapped = _mapped(pipeline, inferred[0]) if len(parts) == 1 else pipeline
    return Result(columns=("statement",), rows=[*rows, (to_sql(mapped),)], text=True)


def _table(name: str, columns: Columns) -> str:
    lines = ",\n".join(f"    {_quoted(column)} {kind}" for column, kind in columns)
    return f"CREATE TABLE {_quoted(name)} (\n{lines}\n);"


def _mapped(pipeline: Pipeline, columns: Columns) -> Pipeline:
    """Return the pipeline with an explicit mapping of its columns, if its format supports one."""
    if pipeline.format.mapping is not None or pipeline.format.type not in ("json", "avro", "protobuf"):
        return pipeline
    mapping = {name: write_path((name,)) for name in columns.names()}
    fields = {
        **pipeline.format.model_dump(by_alias=True, exclude_defaults=True),
        "type": pipeline.format.type,
        "mapping": mapping,
        **({"booleans": "number"} if pipeline.format.type == "json" and not pipeline.format.schemas_enable else {}),
    }
    return pipeline.model_copy(update={"format": Format.model_validate(fields)})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
