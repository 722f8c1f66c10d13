"""TEST, EXTRACT, INFER: a few records looked at. Nothing is committed, and no position moves."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Piece, RangeReport, total
from kpipe.definition.formats import Format
from kpipe.definition.json_path import write_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement, KpipeError
from kpipe.ingest.loop import Ingest
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, arrivals, check_source, plan
from kpipe.planning.seek import no_partition
from kpipe.planning.start_offsets import beginnings
from kpipe.schema.columns import Columns
from kpipe.sql.renderer import to_sql
from kpipe.sql.source_positions import pointing
from kpipe.sql.statements import Extract, Infer, Test
from kpipe.tables.multi_table import targets
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

# Without LIMIT: enough to see something, few enough to be read at once.
_TEST_OFFSETS = 100
_EXTRACT_OFFSETS = 1000
_INFER_OFFSETS = 500


def test(home: Home, statement: Test) -> Result:
    """TEST PIPELINE: the next batch, of so many offsets of each partition, through program and format, and away with it.

    Raises:
        KpipeError: what would stop a run stops a test.
    """
    pipeline = home.pipeline(statement.pipeline)
    with in_definition(pipeline):
        return _tested(home, pipeline, statement.limit)


def _tested(home: Home, pipeline: Pipeline, limit: int | None) -> Result:
    from resources.kafka.topic_metadata import KafkaTopics
    from resources.spark.driver.sample_stager import LocalStager

    destination = open_destination(pipeline, home)
    validate(pipeline, home, destination=destination)
    place = Home(home.make().staging / f"test-{uuid.uuid4().hex}")
    place.staging.mkdir(mode=0o700, parents=True)
    try:
        topics = KafkaTopics(pipeline.source)
        keyed = with_key(pipeline, destination)
        stager = LocalStager(keyed, place, required=lambda part: required_columns(part, home), ask=asking(pipeline, home))
        loop = Ingest(pipeline, topics, stager, destination)
        ledger, snapshot = _as_if_begun(loop)
        limits = pipeline.batch
        bounds = Limits(limit or _TEST_OFFSETS, limits.max_bytes_per_partition, limits.max_partitions)
        batch = plan(ledger, snapshot, bounds, uuid.uuid4().hex)
        if isinstance(batch, Idle):
            return Result(f"pipeline {pipeline.name}: nothing to read: {batch.reason.replace('_', ' ')}; nothing was written")
        sample = partial(stager.sampled, batch)
        validate(pipeline, home, Needs.RECORDS, destination, sample)
        columns, _, reports = loop.stage(batch)
        return _shown(pipeline, columns, reports)
    finally:
        shutil.rmtree(place.path, ignore_errors=True)


def _as_if_begun(loop: Ingest) -> tuple[Ledger, TopicSnapshot]:
    """The ledger with every partition in it, as the first batch would find it; only here, in memory."""
    _, ledger = loop.destination.ledger()
    snapshot = loop.topics.snapshot()
    check_source(ledger, snapshot)
    fresh = arrivals(ledger, snapshot)
    if fresh:
        ledger = ledger.apply(beginnings(loop.pipeline.source, loop.topics, ledger, snapshot, fresh))
    return ledger, snapshot


def _shown(pipeline: Pipeline, columns: Sequence[Columns], reports: Sequence[RangeReport]) -> Result:
    """Rows, with a line for each dead letter in the message. Of several tables, each row stands behind the name of its own."""
    import duckdb

    rows: list[Sequence[Any]] = []
    names: list[str] = list(columns[0].names())
    aside: list[str] = []
    parts = targets(pipeline)
    with duckdb.connect(":memory:") as connection:
        for at, part in enumerate(parts):
            files = (file for report in reports for file in (report.files if not at else (report.also[at - 1].rows,)))
            paths = [file.path for file in files if file is not None]
            if paths and len(parts) == 1:
                found = connection.execute("SELECT * FROM read_parquet($1, hive_partitioning = false)", [paths])
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
    each = [f"{count(sum(r.also[at].count for r in reports), 'row')} of {part.into.table}" for at, part in enumerate(parts[1:])]
    first = count(counts.rows, "row") + (f" of {pipeline.into.table}" if each else "")
    words = [
        f"{count(sum(len(report.range) for report in reports), 'offset')} of {count(len(reports), 'partition')}:"
        f" {', '.join([first, *each])}, {count(counts.dead_letters, 'dead letter')}, {counts.filtered:,} filtered;"
        " nothing was written",
        *aside,
    ]
    return Result("\n".join(words), names if len(parts) == 1 else ("table", "row"), rows)


def extract(home: Home, statement: Extract) -> Result:
    """EXTRACT PIPELINE: records into a file, as a program would get them: `transforms/programs/x < file` tries it.

    Raises:
        InvalidStatement: there is no such partition, no such offsets, or the file is there already.
    """
    from resources.kafka.topic_metadata import KafkaTopics
    from resources.spark.driver.sample_stager import extract as written

    pipeline = home.pipeline(statement.pipeline)
    check_named(pipeline, statement.partition)
    _, ledger = open_destination(pipeline, home).ledger()
    snapshot = KafkaTopics(pipeline.source).snapshot()
    source, span = _chosen(statement, ledger, snapshot)
    path = Path(statement.file).expanduser()
    try:
        with path.open("xb") as file:
            given, left = written(pipeline, Piece(source, span), file.write)
    except FileExistsError:
        raise InvalidStatement(f"{path} is there already", "name another file, or remove it") from None
    except OSError as error:
        raise KpipeError(f"{path} cannot be written: {error.strerror}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    rest = f", {count(left, 'record')} left out that a program could not get" if left else ""
    return Result(f"{count(given, 'record')} of {source} {span} in {path}{rest}; nothing was written to the table")


def _chosen(statement: Extract, ledger: Ledger, snapshot: TopicSnapshot) -> tuple[Any, Range]:
    """The partition, and the offsets of it: those that were named, else the next ones, else the last ones."""
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
            raise InvalidStatement(f"{source} does not hold {span}", f"it holds [{state.log_start}, {state.end})")
        return source, span
    start = max(state.log_start, at.get(source, state.log_start))
    if start >= state.end:
        start = max(state.log_start, state.end - _EXTRACT_OFFSETS)
    return source, Range(start, min(state.end, start + _EXTRACT_OFFSETS))


def infer(home: Home, statement: Infer) -> Result:
    """INFER PIPELINE: CREATE TABLE and CREATE PIPELINE, from the first records of up to four partitions.

    Raises:
        KpipeError: nothing can be read, or nothing of it decoded.
    """
    from resources.kafka.topic_metadata import KafkaTopics
    from resources.spark.driver.sample_stager import LocalStager

    pipeline = statement.pipeline
    with pointing(statement.places, pipeline.name):
        validate(pipeline, home, Needs.FILES)
    topics = KafkaTopics(pipeline.source)
    snapshot = topics.snapshot()
    empty = Ledger(pipeline.name)
    begun = empty.apply(beginnings(pipeline.source, topics, empty, snapshot, arrivals(empty, snapshot)))
    batch = plan(begun, snapshot, Limits(_INFER_OFFSETS), uuid.uuid4().hex)
    stager = LocalStager(pipeline, home.make())
    parts = targets(pipeline)
    found = [stager.columns(batch, at) if isinstance(batch, Batch) else Columns() for at in range(len(parts))]
    if not any(found):
        raise KpipeError(
            "no column can be seen: the topic holds no record that FORMAT " + pipeline.format.type.upper() + " can read",
            "write records, or another FORMAT",
        )
    rows = [(_table(part.into.table, columns),) for part, columns in zip(parts, found, strict=True)]
    made = _mapped(pipeline, found[0]) if len(parts) == 1 else pipeline
    return Result(columns=("statement",), rows=[*rows, (to_sql(made),)], text=True)


def _table(name: str, columns: Columns) -> str:
    lines = ",\n".join(f"    {_quoted(column)} {kind}" for column, kind in columns)
    return f"CREATE TABLE {_quoted(name)} (\n{lines}\n);"


def _mapped(pipeline: Pipeline, columns: Columns) -> Pipeline:
    """The pipeline with its columns spelt out, where its format takes paths."""
    if pipeline.format.mapping is not None or pipeline.format.type not in ("json", "avro", "protobuf"):
        return pipeline
    mapping = {name: write_path((name,)) for name in columns.names()}
    fields = {
        **pipeline.format.model_dump(by_alias=True, exclude_defaults=True),
        "type": pipeline.format.type,
        "mapping": mapping,
        **({"booleans": "number"} if pipeline.format.type == "json" else {}),
    }
    return pipeline.model_copy(update={"format": Format.model_validate(fields)})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
