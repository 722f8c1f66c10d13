"""The stager of kpipe/interfaces.py on Spark: ships the program, spreads the ranges, gives back reports."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.column_growth import Closed, named, widened
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.expressions.projection import Selection, field_of, shown_field
from kpipe.ingest.prefetch import filled
from kpipe.ledger.ledger import Step
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from kpipe.tables.multi_table import is_several, targets
from kpipe.tables.upsert import KeyRule, keeps_originals
from kpipe.topics import PartitionId
from resources.decode.factory import sampled
from resources.decode.growth_guard import bound_of
from resources.decode.schema_files import with_files
from resources.destinations import WITHOUT_NUL
from resources.destinations.value_limits import limits_of
from resources.duckdb_engine.expression_checks import check
from resources.home import Home
from resources.kafka.client_config import client_config, registry_access, secrets
from resources.lookups.loader import Lookups, no_tables
from resources.lookups.table_source import Asking
from resources.schema_registry.config import check_registry
from resources.spark.cluster.master import is_local
from resources.spark.driver.remote_workers import Away, stored
from resources.spark.driver.session import run_pieces, share_out
from resources.spark.driver.ship_program import ship
from resources.spark.task import range_task
from resources.spark.task.projection import Selector, selector
from resources.spark.task.projection_plan import shaped
from resources.spark.task.task_spec import Job, ProgramSpec
from transforms.preflight import Resolved, resolve

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkStager", "asked", "selection", "version"]

# Columns are inferred from this many records of each of at most so many partitions, or of one partition of each of so many
# topics; what the sample lacks is found when the batch is read (`new_columns`), so it only has to be good enough to make a
# second reading rare.
_SAMPLE_RECORDS = 500
_SAMPLE_PARTITIONS = 4
_SAMPLE_TOPICS = 16
#: Destinations whose readers are promised the order of a partition.
_ORDERED = ("kafka", "webhook")


def version(pipeline: Pipeline) -> str:
    """Short hash of the definition and of the program: kept with every commit, and shown by Dagster as code version.

    Raises:
        InvalidPipeline: the program cannot be run, or a file with a schema cannot be read.
    """
    text = json.dumps(with_files(pipeline).to_dict(), sort_keys=True)
    program = _resolved(pipeline)
    return hashlib.sha256(f"{text}{program.sha256 if program else ''}".encode()).hexdigest()[:12]


def selection(pipeline: Pipeline) -> Selection | None:
    """The pipeline's expressions, as far as they can be checked without a record.

    Raises:
        InvalidPipeline: one cannot be run.
    """
    found = Selection.of(pipeline)
    for field, text in found.says() if found is not None else ():
        try:
            check(text, f"pipeline {pipeline.name}: {shown_field(field)}")
        except InvalidPipeline as error:
            error.about(*field_of(pipeline, field))
            raise
    return found


def asked(selections: Iterable[Selection | None]) -> Selection:
    """The lookups of all tables' expressions together."""
    return Selection(calls=tuple(call for chosen in selections if chosen is not None for call in chosen.calls))


def _resolved(pipeline: Pipeline) -> Resolved | None:
    transform = pipeline.transform
    return resolve(transform.program, transform.archive, transform.args, Path.cwd()) if transform else None


class SparkStager:
    """Stages the batches of one pipeline.

    Args:
        pipeline: the definition.
        home: where files are staged.
        spark: gives the SparkContext; called at the first batch, so that a run with nothing to do starts no JVM.
        environ: where templates and the program's variables are taken from.
        required: gives the table's columns that take no NULL; asked once, and only where such rows do not fail the batch.
        ask: asks the destination for lookups.

    Raises:
        InvalidPipeline: the program cannot be run, or a variable is not set.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        spark: Callable[[], SparkContext],
        environ: Mapping[str, str] | None = None,
        required: Callable[[Pipeline], Collection[str]] = lambda _: (),
        ask: Asking = no_tables,
    ) -> None:
        self._pipeline, self._home, self._spark, self._required = with_files(pipeline), home, spark, required
        self._targets, self._several = targets(self._pipeline), is_several(pipeline)
        self._stage = home.stage
        self._environ = os.environ if environ is None else environ
        self._config = client_config(pipeline.source, self._environ)
        self._access = registry_access(pipeline.source, self._environ)
        for kind in (pipeline.format, pipeline.key_format):
            check_registry(kind, self._access)
        self._program = _resolved(pipeline)
        self._selections = [selection(part) for part in self._targets]
        self._lookups = Lookups(pipeline, asked(self._selections), ask, self._environ)
        self._never_null: list[frozenset[str]] | None = None
        self._seen: Columns | None = None  # columns of a sample, once a run
        self._shipped: ProgramSpec | None = None
        self._context: SparkContext | None = None
        self._away = Away(home.path / "logs" / "spark.log")
        self._group = ""  # under which Spark runs the batch at hand
        self._killers, self._refused = dict[PartitionId, Mapping[int, str]](), dict[PartitionId, Mapping[int, str]]()
        if self._program is not None:
            self._spec(str(self._program.file))  # a variable that is missing is said before anything starts

    def columns(self, batch: Batch, table: int = 0) -> Columns:
        """See `Stager`. Reads a few records in this process, through the program.

        Raises:
            InvalidPipeline: nothing says what the columns of a CSV pipeline are.
        """
        pipeline, chosen = self._targets[table], self._selections[table]
        if pipeline.format.type == "csv" and not (pipeline.format.fields or pipeline.declared):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: CSV has no names for columns, and there is no table {pipeline.into.table}",
                "name them in format.fields, declare `columns`, or create the table first",
            )
        seen = found = self.sampled(batch)
        if chosen is None:
            return found
        # As if the table had been made without the columns that expressions give: their types are what is asked for.
        widened = pipeline.model_copy(update={"evolution": "evolve"})
        if chosen.outputs is not None:
            found = found.without(name for name in found.names() if name.lower() not in (chosen.outputs or ()))
        declared = filled(pipeline, pipeline.declared)
        known = Columns((*declared.items, *found.without((*declared.names(), *chosen.targets)).items))
        job = replace(self._job(batch, known, None), shape=shaped(widened, chosen, known, lambda: seen))
        return Columns((*found.without(chosen.targets).items, *Selector(job).new_columns.items))

    def sampled(self, batch: Batch) -> Columns:
        """Columns of the first records, without what expressions make of them."""
        if self._seen is not None:
            return self._seen
        spec = self._spec(str(self._program.file)) if self._program else None
        job = self._job(batch, Columns(), spec)
        payloads: list[bytes] = []
        keys: list[bytes] = []
        topics = len({step.source.topic for step in batch.steps})
        for step in _spread(batch.steps)[: max(_SAMPLE_PARTITIONS, min(topics, _SAMPLE_TOPICS))]:
            part = Range(step.range.start, min(step.range.end, step.range.start + _SAMPLE_RECORDS))
            found, killers = range_task.sample(job, Piece(step.source, part), _SAMPLE_RECORDS)
            self._killers[step.source] = {**self._killers.get(step.source, {}), **killers}
            payloads += found
            if self._pipeline.key_format is not None:
                keys += range_task.sample_keys(job, Piece(step.source, part), _SAMPLE_RECORDS)
        # Where records add no columns, one with a name that no column can have is a row: column_growth.py omits the name.
        pipeline = self._pipeline
        kind = pipeline.into.type if widened(pipeline) else ""
        bounds = named(pipeline), kind, room(kind) if kind else None, filled(pipeline, pipeline.declared)
        columns = sampled(pipeline.format, payloads, pipeline.key_format, keys, self._access, *bounds)
        self._seen = columns.without(name for name in columns.names() if name.lower().startswith("_kafka_"))
        return self._seen

    def stage(
        self, batch: Batch, columns: Columns, also: Sequence[Columns] = (), closed: Sequence[Closed] = ()
    ) -> Sequence[RangeReport]:
        """See `Stager`."""
        context = self._context = self._context or self._spark()
        job = self._shaped(batch, columns, self._ship(context), also, closed)
        held = self._lookups.shipped(context)
        job = replace(job, lookups=held, also=tuple(replace(part, lookups=held) for part in job.also))
        self._group = batch.id
        try:
            if is_local(str(context.master)):
                reports = run_pieces(context, stored(job), share_out(batch, context.defaultParallelism))
            else:
                reports = self._away.run(context, job, batch)
            self._away.took(reports)
        finally:
            self._group = ""
        for report in reports:
            if report.killers:
                self._killers[report.source] = {**self._killers.get(report.source, {}), **report.killers}
        return sorted(reports, key=lambda report: (report.source, report.range))

    def work(self) -> Work:
        """See `Spread`."""
        return self._away.work(self._context)

    def refuse(self, records: Mapping[PartitionId, Mapping[int, str]]) -> bool:
        """See `Refusing`."""
        new = {source: {**self._refused.get(source, {}), **found} for source, found in records.items() if found}
        more = any(len(found) > len(self._refused.get(source, {})) for source, found in new.items())
        self._refused = {**self._refused, **new}
        return more

    def give_up(self) -> None:
        """See `Stager`."""
        if self._group and self._context is not None:
            self._context.cancelJobGroup(self._group)

    def _shaped(
        self, batch: Batch, columns: Columns, program: ProgramSpec | None, also: Sequence[Columns] = (),
        closed: Sequence[Closed] = (),
    ) -> Job:  # fmt: skip
        """The job with what expressions and constraints make of its records, for every table."""
        if self._never_null is None:
            looked = self._pipeline.errors.constraint != "fail"
            self._never_null = [frozenset(self._required(part) if looked else ()) for part in self._targets]
        parts = [self._part(batch, at, mine, program) for at, mine in enumerate((columns, *also))]
        whys: Sequence[Closed | None] = closed or [None] * len(parts)
        bounds = [bound_of(*of) for of in zip(self._targets, whys, (columns, *also), strict=True)]
        first, *more = [replace(part, bound=bound) for part, bound in zip(parts, bounds, strict=True)]
        return replace(first, also=tuple(more)) if more else first

    def _part(self, batch: Batch, at: int, columns: Columns, program: ProgramSpec | None) -> Job:
        """The job as it would be if that table were the only one."""
        pipeline, chosen = self._targets[at], self._selections[at]
        assert self._never_null is not None
        no_nul = pipeline.errors.constraint != "fail" and pipeline.into.type in WITHOUT_NUL
        shape = shaped(pipeline, chosen, columns, lambda: self.sampled(batch), self._never_null[at], no_nul)
        job = replace(self._job(batch, columns, program), shape=shape, table=pipeline.into.table if at else "")
        job = replace(job, originals=keeps_originals(pipeline), **_keyed(pipeline, columns))
        selector(job)  # what does not fit the columns is said here, once, and not by every task
        return job

    def _job(self, batch: Batch, columns: Columns, program: ProgramSpec | None) -> Job:
        errors, extras = self._pipeline.errors, ("topic", "key", "headers")
        # Found once, whether for the sample or for a batch that is staged again; of no use behind their batch.
        ranges = {step.source: step.range for step in batch.steps}
        self._killers, self._refused = _inside(self._killers, ranges), _inside(self._refused, ranges)
        return Job(
            batch=batch.id,
            config=self._config,
            staging=self._stage,
            programs=str(self._home.path / "programs"),
            format=self._pipeline.format,
            columns=columns,
            parse=errors.parse,
            transform=errors.transform,
            constraint=errors.constraint,
            extras=tuple(name for name in extras if name in self._pipeline.coordinates),
            program=program,
            key=self._pipeline.key_format,
            access=self._access,
            killers=self._killers,
            refused=self._refused,
            lookups=self._lookups.of_batch(batch.id),
            several=self._several,
            limits=limits_of(self._pipeline),
            divided=self._pipeline.into.parts,
            ordered=self._pipeline.into.type in _ORDERED,
        )

    def _ship(self, context: SparkContext) -> ProgramSpec | None:
        """Give the program to Spark, once a session."""
        if self._program is not None and self._shipped is None:
            self._shipped = self._spec(ship(context, self._home, self._program))
        return self._shipped

    def _spec(self, file: str) -> ProgramSpec:
        transform, program = self._pipeline.transform, self._program
        assert transform and program
        missing = [name for name in transform.env if name not in self._environ]
        if missing:
            raise InvalidPipeline(f"transform.env names {missing[0]}, which is not set", f"export {missing[0]}=...")
        return ProgramSpec(
            file=file,
            member=program.member,
            sha256=program.sha256,
            args=program.args,
            stdin=transform.stdin,
            mode=transform.mode,
            idle_timeout_s=transform.idle_timeout_s,
            trial_timeout_s=transform.trial_timeout_s,
            memory_bytes=transform.memory_mb << 20 if transform.memory_mb else None,
            max_output_bytes=transform.max_output_mb << 20,
            env={name: self._environ[name] for name in transform.env},
            secrets=(*secrets(self._pipeline.source, self._environ), *(self._environ[name] for name in transform.env)),
        )


def _keyed(pipeline: Pipeline, columns: Columns) -> dict[str, Any]:
    """What tasks need to know of the key; nothing where rows have none.

    Raises:
        SchemaConflict: rows do not have a column of the key.
    """
    rule, names = KeyRule.of(pipeline), pipeline.into.key
    if rule is None or names is None or not columns:  # without columns nothing becomes a row
        return {}
    missing = [name for name in names if name not in columns]
    if missing:
        raise SchemaConflict(
            f"pipeline {pipeline.name}: there is no column {missing[0]}, which is of the key",
            "declare it under `columns`, or name another key: into.key",
        )
    key = Columns(tuple((name, kind) for name, kind in columns if name.lower() in {key.lower() for key in names}))
    return {"unique": key, "deletes": rule.deletes}


def _spread(steps: Sequence[Step]) -> list[Step]:
    """The steps in an order in which each topic comes with its first partition before any comes with its second."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Step]] = []
    for step in steps:
        ranked.append((seen[step.source.topic.name], len(ranked), step))
        seen[step.source.topic.name] += 1
    return [step for *_, step in sorted(ranked, key=lambda item: item[:2])]


def _inside(
    known: Mapping[PartitionId, Mapping[int, str]], ranges: Mapping[PartitionId, Range]
) -> dict[PartitionId, Mapping[int, str]]:
    """What is known of the records of a batch."""
    return {
        source: {offset: why for offset, why in found.items() if source in ranges and offset in ranges[source]}
        for source, found in known.items()
    }
