"""The stager of kpipe/interfaces.py on Spark: describe the job of a batch, have its tasks run, collect reports."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.column_growth import Closed
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.expressions.projection import Selection, lookups_of
from kpipe.ingest.staging import filled
from kpipe.schema.columns import Columns
from kpipe.tables.changes import KEEPING
from kpipe.tables.multi_table import fans_out, table_pipelines
from kpipe.tables.topic_tables import batch_tables
from kpipe.tables.upsert import KeyRule, keeps_originals
from kpipe.topics import PartitionId
from resources.decode.factory import sampled
from resources.decode.growth_guard import bound_of
from resources.destinations.value_limits import limits_of, types_without_nul
from resources.duckdb_engine.expression_checks import checked_selection
from resources.home import Home
from resources.kafka.client_config import client_config, registry_access
from resources.lookups.loader import Lookups, no_tables
from resources.lookups.table_source import Asking
from resources.schema_registry.config import check_registry
from resources.sources.open_source import connector_of, without_first_lines
from resources.spark.driver.batch_runner import BatchRunner
from resources.spark.driver.context_runner import ContextRunner
from resources.spark.driver.definition_version import ResolvedPipeline
from resources.spark.driver.sample_steps import bounds_of, reported, spread, typed
from resources.spark.driver.set_aside import SetAside
from resources.spark.driver.ship_program import check_variables
from resources.spark.task import range_task
from resources.spark.task.projection import Selector, selector
from resources.spark.task.projection_plan import shaped
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkStager"]

# Columns are inferred from the first records of a few partitions, or of one partition each of up to `_SAMPLE_TOPICS` topics; if
# these have no record, of the next ones. Columns that the sample lacks are found when the batch is read (`new_columns`), and make
# a second reading necessary.
_SAMPLE_RECORDS = 500
_SAMPLE_PARTITIONS = 4
_SAMPLE_TOPICS = 16
_SAMPLES_AT_ONCE = 8  # of tables by topic; each needs memory for `SAMPLE_BYTES`
#: Destinations that deliver a partition's rows in order.
_ORDERED = ("kafka", "webhook")


class SparkStager:
    """Stager of one pipeline's batches.

    Args:
        resolved: the definition, as the run read it at its start: its files are not read again.
        home: where files are staged.
        spark: returns the SparkContext, or what runs batches instead; called at the first batch, so that a run with nothing
            to do starts no JVM.
        environ: values for templates and for the program's variables.
        required: returns the table's NOT NULL columns; called once, and only if such rows do not fail the batch.
        `ask`: sends the queries of lookups to the destination.

    Raises:
        InvalidPipeline: a variable is not set.
    """

    def __init__(
        self,
        resolved: ResolvedPipeline,
        home: Home,
        spark: Callable[[], SparkContext | BatchRunner],
        environ: Mapping[str, str] | None = None,
        required: Callable[[Pipeline], Collection[str]] = lambda _: (),
        ask: Asking = no_tables,
    ) -> None:
        #: Version of what rows are staged with, for their commits.
        self.version = resolved.version
        pipeline, self._program = resolved.pipeline, resolved.program
        self._home, self._spark, self._required = home, spark, required
        self._defined, self._pipeline = pipeline, without_first_lines(pipeline)
        self._parts, self._fan_out = table_pipelines(self._pipeline), fans_out(pipeline)
        self._stage = home.stage
        self._environ = os.environ if environ is None else environ
        client_config(pipeline.source, self._environ, read=False)
        access = registry_access(pipeline.source, self._environ, read=False)
        for kind in (pipeline.format, pipeline.key_format):
            check_registry(kind, access)
        self._selections = [checked_selection(part) for part in self._parts]  # tables by topic share one
        self._lookups = Lookups(pipeline, lookups_of(self._selections), ask, self._environ)
        # By table: NOT NULL columns. By topic, if each has its own table: columns of samples, with the batch if only of it.
        # Read once a run.
        self._never_null, self._seen = dict[str, frozenset[str]](), dict[str, tuple[str, Columns]]()
        self._runner: BatchRunner | None = None
        self._given_up = threading.Event()
        self._aside = SetAside()
        self._spec()  # report a missing variable before anything starts

    def columns(self, batch: Batch, table: int) -> Columns:
        """See `Stager`. Passes a few records through the program in this process.

        Raises:
            InvalidPipeline: a CSV pipeline has no column names and no table.
        """
        self._name_fields(batch)
        pipeline, chosen = self._of_batch(batch)[table]
        if pipeline.format.type == "csv" and not (pipeline.format.fields or pipeline.declared):
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: CSV has no column names, and table {pipeline.into.table} does not exist",
                "name them in format.fields, declare `columns`, or create the table first",
            )
        seen = columns = self.sampled(batch, table)
        if chosen is None:
            return columns
        # Assume a table without the columns that expressions compute, so that the types of these are inferred.
        widened = pipeline.model_copy(update={"evolution": "evolve"})
        if chosen.outputs is not None:
            columns = columns.without(name for name in columns.names() if name.lower() not in (chosen.outputs or ()))
        declared = filled(pipeline, pipeline.declared)
        existing = Columns((*declared.items, *columns.without((*declared.names(), *chosen.targets)).items))
        spec = TableSpec(existing, shape=shaped(widened, chosen, existing, lambda: seen))
        computed = Selector(spec, self._lookups.of_batch(batch.id)).new_columns
        return Columns((*columns.without(chosen.targets).items, *computed.items))

    def sample(self, batch: Batch, tables: Sequence[int]) -> None:
        """See `Sampling`. Most of a sample's time is a wait for the broker; a program is run for one topic after the other."""
        if self._pipeline.into.by_topic and self._program is None:
            self._lookups.of_batch(batch.id)  # loads them once
            with ThreadPoolExecutor(_SAMPLES_AT_ONCE, "kpipe-sample") as pool:
                list(pool.map(partial(self.sampled, batch), tables))

    def sampled(self, batch: Batch, table: int = 0) -> Columns:
        """Return columns inferred from the first records for a table of the batch, before expressions are applied."""
        taken = batch_tables(self._pipeline, batch)
        by_field = self._pipeline.into.by_field  # the sample is then that of all tables
        mine = [step for step in batch.steps if by_field or table in taken.of(step.source)]
        # Records of the transaction topic are rows of no table.
        steps = [step for step in mine if step.source.topic.name != self._pipeline.transaction_topic] or mine
        topic = steps[0].source.topic.name if taken.topics is not None else ""
        if topic in self._seen and self._seen[topic][0] in ("", batch.id):
            return self._seen[topic][1]
        self._name_fields(batch)
        spec = self._spec()
        self._given_up.clear()
        job = replace(self._job(batch, (), spec), cancelled=self._given_up.is_set)
        payloads, keys, written = list[bytes](), list[bytes](), Columns()
        most = max(_SAMPLE_PARTITIONS, min(len({step.source.topic for step in steps}), _SAMPLE_TOPICS))
        for number, step in enumerate(spread(steps)):
            if number >= most and (payloads or keys or spec is not None):  # a program that filters is not run for all
                break
            piece, sample = Piece(step.source, step.range), list[bytes]()
            if spec is not None and spec.arrow:
                found, poison_records = range_task.sample_columns(job, piece, _SAMPLE_RECORDS)
                written = written.joined(found)
            else:
                sample, poison_records = range_task.sample(job, piece, _SAMPLE_RECORDS, framing=not payloads)
            self._aside.add_poison(step.source, poison_records)
            payloads += sample
            if self._pipeline.key_format is not None:
                keys += range_task.sample_keys(job, piece, _SAMPLE_RECORDS)
        pipeline, bounds, columns = self._pipeline, bounds_of(self._pipeline), written
        if pipeline.format.type != "arrow":
            access = registry_access(pipeline.source, self._environ)
            columns = sampled(pipeline.format, payloads, pipeline.key_format, keys, access, *bounds)
            columns = typed(pipeline, columns, job.connector, steps)
        columns = columns.without(name for name in columns.names() if name.lower().startswith("_kafka_"))
        self._seen[topic] = ("" if columns else batch.id, columns)  # the next batch may have records
        return columns

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        """See `Stager`."""
        runner = self._runner = self._runner or self._new_runner()
        reports = runner.run(batch, self._shaped(batch, tables, self._spec(), closed), self._pipeline.name)
        for report in reports:
            self._aside.add_poison(report.source, report.poison_records)
        return sorted(self._reported(batch, reports), key=lambda report: (report.source, report.range))

    def work(self) -> Work:
        """See `Spread`."""
        return self._runner.work() if self._runner is not None else Work()

    def refuse(self, records: Mapping[PartitionId, Mapping[int, str]]) -> bool:
        """See `Refusing`."""
        return self._aside.refuse(records)

    def give_up(self) -> None:
        """See `Stager`. Ends a program that runs for a sample, too."""
        self._given_up.set()
        if self._runner is not None:
            self._runner.cancel()

    def release(self) -> None:
        """See `Releasing`."""
        if self._runner is not None:
            self._runner.release()

    def _reported(self, batch: Batch, reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
        """Return the reports with the source's types; see `reported`."""
        connector = connector_of(self._pipeline, self._environ)
        return reported(self._pipeline, batch, reports, connector, [chosen for _, chosen in self._of_batch(batch)])

    def _new_runner(self) -> BatchRunner:
        spark = self._spark()
        return spark if isinstance(spark, BatchRunner) else ContextRunner(spark, self._home.path / "logs" / "spark.log")

    def _shaped(
        self, batch: Batch, tables: Sequence[Columns], program: ProgramSpec | None, closed: Sequence[Closed] = ()
    ) -> JobSpec:
        """Return the job with expressions and constraints for every table."""
        self._name_fields(batch)
        whys: Sequence[Closed | None] = closed or [None] * len(tables)
        of_tables = enumerate(zip(self._of_batch(batch), tables, whys, strict=True))
        return self._job(batch, [self._table(batch, at, *part, have, why) for at, (part, have, why) in of_tables], program)

    def _of_batch(self, batch: Batch) -> list[tuple[Pipeline, Selection | None]]:
        """Return the definition and the expressions of each table that the batch writes."""
        if not self._pipeline.into.is_template:
            return list(zip(self._parts, self._selections, strict=True))
        return [(part, self._selections[0]) for part in batch_tables(self._pipeline, batch).parts]

    def _required_of(self, part: Pipeline) -> frozenset[str]:
        """Return the NOT NULL columns of a table, read once a run and only if such rows do not fail the batch."""
        if self._pipeline.errors.constraint == "fail":
            return frozenset()
        if part.into.table not in self._never_null:
            self._never_null[part.into.table] = frozenset(self._required(part))
        return self._never_null[part.into.table]

    def _name_fields(self, batch: Batch) -> None:
        """Name the fields as the first file of a run does, if files name them; a task uses the names of its own file."""
        files = self._pipeline.source.files
        if files is None or not files.header or self._pipeline.format.fields is not None or not batch.steps:
            return
        connector = connector_of(self._defined, self._environ)
        names = connector.header(batch.steps[0].source.topic.name) if connector is not None else None
        kind = self._pipeline.format.model_copy(update={"fields": list(names or ())})
        self._pipeline = self._pipeline.model_copy(update={"format": kind})
        self._parts = table_pipelines(self._pipeline)

    def _table(
        self, batch: Batch, at: int, pipeline: Pipeline, chosen: Selection | None, columns: Columns, closed: Closed | None
    ) -> TableSpec:
        """Return a table's part of the job."""
        no_nul = types_without_nul(pipeline)
        shape = shaped(pipeline, chosen, columns, lambda: self.sampled(batch, at), self._required_of(pipeline), no_nul)
        spec = TableSpec(
            columns,
            name=pipeline.into.table if len(self._parts) > 1 or batch.routes is not None else "",
            position=at,
            shape=shape,
            originals=keeps_originals(pipeline),
            divided=pipeline.into.parts,
            bound=bound_of(pipeline, closed, columns),
            keeps=pipeline.into.type in KEEPING,
            **_keyed(pipeline, columns),
        )
        selector(spec, self._lookups.of_batch(batch.id))  # report a type error here, once, instead of in every task
        return spec

    def _job(self, batch: Batch, tables: Sequence[TableSpec], program: ProgramSpec | None) -> JobSpec:
        errors, extras = self._pipeline.errors, ("topic", "key", "headers")
        self._aside.keep_for(batch)
        return JobSpec(
            batch=batch.id,
            pipeline=self._pipeline.name,
            config=client_config(self._pipeline.source, self._environ),  # read again: credentials may have been replaced
            staging=self._stage,
            programs=str(self._home.path / "programs"),
            format=self._pipeline.format,
            tables=tuple(tables),
            topics=batch_tables(self._pipeline, batch).topics,
            routes=batch.routes,
            bounds=bounds_of(self._pipeline) if batch.routes is not None else (),
            parse=errors.parse,
            transform=errors.transform,
            constraint=errors.constraint,
            extras=tuple(name for name in extras if name in self._pipeline.coordinates),
            program=program,
            key=self._pipeline.key_format,
            access=registry_access(self._pipeline.source, self._environ),
            poison_records=self._aside.poison_records,
            refused=self._aside.refused,
            lookups=self._lookups.of_batch(batch.id),
            fan_out=self._fan_out,
            limits=limits_of(self._pipeline),
            connector=connector_of(self._defined, self._environ),
            ordered=self._pipeline.into.type in _ORDERED,
        )

    def _spec(self) -> ProgramSpec | None:
        """Return the program as tasks run it; None without one."""
        transform, program = self._pipeline.transform, self._program
        if transform is None or program is None:
            return None
        check_variables(self._pipeline, self._environ)
        return ProgramSpec(
            file=str(program.file),
            member=program.member,
            sha256=program.sha256,
            args=program.args,
            stdin=transform.stdin,
            mode=transform.mode,
            idle_timeout_s=transform.idle_timeout_s,
            trial_timeout_s=transform.trial_timeout_s,
            memory_bytes=transform.memory_mb << 20 if transform.memory_mb else None,
            max_output_bytes=transform.max_output_mb << 20,
            several_topics=self._pipeline.source.multi_topic,
            deletes=self._pipeline.into.on_null == "delete",
            env={name: self._environ[name] for name in transform.env},
            secrets=tuple(self._environ[name] for name in transform.env),
        )


def _keyed(pipeline: Pipeline, columns: Columns) -> dict[str, Any]:
    """Return the key's fields of a `TableSpec`; empty for a table without a key.

    Raises:
        SchemaConflict: rows lack a column of the key.
    """
    rule, names = KeyRule.of(pipeline), pipeline.into.key
    if rule is None or names is None or not columns:  # without columns no record becomes a row
        return {}
    missing = [name for name in names if name not in columns]
    if missing:
        raise SchemaConflict(
            f"pipeline {pipeline.name}: table {pipeline.into.table}: key column {missing[0]} does not exist",
            "declare it under `columns`, or name another key: into.key",
        )
    key = Columns(tuple((name, kind) for name, kind in columns if name.lower() in {key.lower() for key in names}))
    return {"unique": key, "deletes": rule.deletes}
