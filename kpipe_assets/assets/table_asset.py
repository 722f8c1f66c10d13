"""The destination table as an asset with the topic's partitions. One run ingests all of them in batches on Spark."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

import dagster as dg

from kpipe.batch.batch import Committed, Counts
from kpipe.batch.host_stats import Work
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import AuditFailed, KpipeError
from kpipe.ingest.loop import Ingest
from kpipe.interfaces import Spread
from kpipe.tables.multi_table import table_pipelines
from kpipe.topics import Part, part
from kpipe_assets.assets.audit_checks import audit_news
from kpipe_assets.assets.topic_asset import source_keys, table_partitions
from kpipe_assets.assets.topic_table_assets import publish_topic_tables
from kpipe_assets.dagster_resources import Destinations, Stagers, Topicsources
from kpipe_assets.publishing.events import describe, publish_events, publish_in_run
from kpipe_assets.publishing.metadata import nothing_new, of_dead_letter_topic, of_table, of_work, rarer, run_cost
from kpipe_assets.publishing.newest_commits import newest_commits
from kpipe_assets.publishing.publisher import Publisher, materializations
from kpipe_assets.runs.dead_letter_topic import last_written
from kpipe_assets.runs.handover import Turn
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.runs.run_workers import orphaned
from kpipe_assets.runs.runner import Run
from resources.home import Home

__all__ = ["OP_TAG", "HowLong", "op_name", "table_asset", "table_key", "table_keys"]

#: Tag of the runs that a pipeline's sensor requests, for the queue's limit, and of the step in every run. A run that is started
#: in the UI has only that of its step; `pipeline_runs` finds both.
OP_TAG = "kpipe/pipeline"
# Shortest time between two events of a partition in a run: Dagster never deletes events, and one batch a second would
# write 86,400 a day for each partition. With many partitions the time is longer (`rarer`).
_EVENT_EVERY_S = 30.0


class HowLong(dg.Config):
    """Limits of a run's duration. If both are unset, a run ends when it has caught up."""

    max_seconds: float | None = None
    idle_seconds: float | None = None

    @property
    def continuous(self) -> bool:
        """True if the run waits for more records when it has caught up."""
        return self.max_seconds is not None or self.idle_seconds is not None


def table_key(pipeline: Pipeline) -> dg.AssetKey:
    """Return the key of the table's asset: the table's name. With tables by topic or by a field, that of their pipeline."""
    return dg.AssetKey(["pipelines", pipeline.name] if pipeline.into.is_template else [pipeline.into.table])


def table_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """Return the keys of the assets of all tables, in the order of the definition."""
    return [table_key(part) for part in table_pipelines(pipeline)]


def op_name(pipeline: Pipeline) -> str:
    """Return the name of the assets' op, which is also the key of its run config: the table's name.

    Names of ops and graphs are unique in a code location. Dagster's own graphs begin with `__`, all others of kpipe with
    `kpipe_`, which no table may.
    """
    table = pipeline.into.table
    return f"kpipe_pipelines__{pipeline.name}" if pipeline.into.is_template or table.startswith("__") else table


def table_asset(pipeline: Pipeline, home: Home, code_version: str) -> dg.AssetsDefinition:
    """Build the assets of a pipeline's tables, materialized together. A run reads only the selected partitions.

    Args:
        pipeline: the definition.
        home: KPIPE_HOME.
        code_version: hash of definition and program.
    """
    shown = pipeline.asset

    specs = [
        dg.AssetSpec(
            key,
            deps=_deps(pipeline, home),
            group_name=shown.group,
            owners=list(shown.owners),
            tags={**shown.tags},
            kinds={"spark", pipeline.into.type},
            description=shown.description or _description(pipeline),
            code_version=code_version,
            metadata={
                **({} if pipeline.into.is_template else {"dagster/table_name": key.path[-1]}),
                "kpipe/pipeline": pipeline.name,
            },
        )
        for key in table_keys(pipeline)
    ]

    @dg.multi_asset(
        name=op_name(pipeline),
        specs=specs,
        partitions_def=table_partitions(pipeline),
        backfill_policy=dg.BackfillPolicy.single_run(),
        op_tags={OP_TAG: pipeline.name},
    )
    def table(
        context: dg.AssetExecutionContext,
        config: HowLong,
        kafka: dg.ResourceParam[Topicsources],
        spark: dg.ResourceParam[Stagers],
        destinations: dg.ResourceParam[Destinations],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        destination = destinations.open(pipeline)
        home.make()
        topics = list(source_keys(pipeline, home))
        others = partial(publish_topic_tables, context.instance, pipeline, destination)
        publisher = Publisher(context.instance, table_keys(pipeline), destination, home, pipeline.name, topics, others)
        turn = Turn(home, pipeline.name, context.run.run_id) if config.continuous else None
        began = time.monotonic()
        alone = orphaned(context.instance, context.run.run_id)

        def ended() -> bool:
            if alone() or (turn is not None and turn.is_over()):
                return True
            return config.max_seconds is not None and time.monotonic() - began > config.max_seconds

        stager = spark.stager(pipeline)
        loop = Ingest(
            pipeline,
            kafka.topics(pipeline),
            stager,
            destination,
            # Files may appear during a continuous run, which reads them, too.
            only=None if config.continuous and not pipeline.source.reads_topics else _chosen(context),
            run_id=context.run.run_id,
            version=stager.version,
            stopped=ended,
            contend=config.continuous,
        )
        run = Run(home, loop, ready=turn.take if turn is not None else lambda: None)
        if turn is not None:  # start Spark before the predecessor is stopped
            spark.warm()
        with at_work(home, pipeline.name):  # includes closing: else a sensor would publish the run's commits
            whole = _work(context, config, run, publisher)
            yield from _closing(context, run, topics, publisher, whole)

    return table


@dataclass
class _Tally:
    """Totals of batches: of the run, and since the last log line. A line for each batch would be most of the event log."""

    batches: int = 0
    counts: Counts = field(default_factory=Counts)
    last: int = 0
    core_seconds: float = 0.0

    def add(self, committed: Committed) -> None:
        commit = committed.commit
        self.batches, self.counts, self.last = self.batches + 1, self.counts + commit.totals, committed.seq
        self.core_seconds += sum(commit.task_seconds.values())

    def cost(self) -> dict[str, Any]:
        """Return the cost of a run's batches as metadata."""
        return run_cost(self.core_seconds, self.counts.rows, self.counts.bytes)

    def log(self, context: dg.AssetExecutionContext) -> None:
        if self.batches:
            counts = self.counts
            context.log.info(
                f"{self.batches} batches, up to commit {self.last}: {counts.messages:,} records, {counts.rows:,} rows,"
                f" {counts.dead_letters:,} dead letters, {counts.filtered:,} filtered"
            )
        self.batches, self.counts = 0, Counts()


def _work(context: dg.AssetExecutionContext, config: HowLong, run: Run, publisher: Publisher) -> _Tally:
    """Commit batch after batch, and publish an event for each partition every 30 s; with many partitions, less often.

    The first time, partitions without new records get an event, too. Until a run publishes one, Dagster shows the partition
    as in progress and starts no asset downstream, although continuous runs follow each other.

    The last batches of a bounded run are published by its closing event. Otherwise that event, which Dagster's pages show as
    the newest, would contain no records.

    Return the totals of the run.
    """
    shown_at = busy_at = time.monotonic()
    silent = set(context.partition_keys)
    every_s = _EVENT_EVERY_S * rarer(len(silent))
    whole, since, linked, audited = _Tally(), _Tally(), False, False
    try:
        for result in run.passes(follow=config.continuous):
            now = time.monotonic()
            linked = linked or _linked(context, run)
            last = not config.continuous
            if isinstance(result, Committed):
                busy_at = now
                since.add(result)
                whole.add(result)
                audited = audited or _audited(context, run)
                last = last and all(step.closed_by == "caught_up" for step in result.commit.steps)
            if now - shown_at >= every_s and not last:
                shown_at = now
                since.log(context)
                with publisher.waiting() as assets:
                    for at, (asset, events) in enumerate(assets.items()):
                        events |= _unchanged(silent - set(events), run, publisher, at)
                        publish_in_run(context, materializations(asset, events))
                    silent.clear()
            if config.idle_seconds is not None and now - busy_at > config.idle_seconds:
                break
    except KpipeError as error:
        if isinstance(error, AuditFailed):
            _audited(context, run)
        raise _failure(error) from error
    finally:
        since.log(context)
    return whole


def _audited(context: dg.AssetExecutionContext, run: Run) -> bool:
    """Publish changed results of the checks of `into.audit`: after the first published batch, and after a failed one."""
    for event in audit_news(context.instance, run.pipeline, run.destination, table_key(run.pipeline)):
        context.instance.report_runless_asset_event(event)
    return True


def _unchanged(keys: Collection[str], run: Run, publisher: Publisher, at: int) -> dict[str, dict[str, Any]]:
    """Build events of partitions without new records in one of the tables.

    If Dagster shows more than the ledger has, as after a backup was restored, the newest commits are those of the ledger.
    """
    if not keys:
        return {}
    asset, multi_topic, ledger = publisher.keys[at], run.pipeline.source.multi_topic, run.destination.ledger()[1]
    positions = {str(part(source, multi_topic)): offset for source, offset in ledger.current_positions(run.present).items()}
    shown = publisher.shown(keys, asset)
    newest = {key: (last.seq, last.batch) for key, last in shown.items()}
    if any(last.seq > ledger.seq or last.end > positions.get(key, 0) for key, last in shown.items()):
        known = newest_commits(run.pipeline, run.destination, asset.path[-1], first=at == 0)
        newest = {key: (known[key].seq, known[key].batch) if key in known else (0, "") for key in keys}
    return {key: nothing_new(positions.get(key, 0), *newest[key]) for key in newest}


def _closing(
    context: dg.AssetExecutionContext, run: Run, topics: Sequence[dg.AssetKey], publisher: Publisher, whole: _Tally
) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield the results with an event for every partition of the run: Dagster expects one also without new records.

    The result is yielded inside the publisher's context, so commits are marked as published after Dagster has stored it.
    """
    keys = context.partition_keys  # read once: each access reads all keys from Dagster's database
    with publisher.waiting() as assets:
        for at, (asset, events) in enumerate(assets.items()):
            events |= _unchanged(set(keys) - set(events), run, publisher, at)
            describe(context, asset, {key: events.pop(key) for key in keys})
            # Partitions outside of this run may have unpublished commits, too.
            publish_events(context.instance, materializations(asset, events))
            letters = of_dead_letter_topic(last_written(run.home, run.pipeline))
            shown = {**of_table(run.destination, topics, at), **of_work(_done(run)), **whole.cost(), **letters}
            yield dg.MaterializeResult(asset_key=asset, metadata=shown)


def _done(run: Run) -> Work:
    return run.loop.stager.work() if isinstance(run.loop.stager, Spread) else Work()


def _linked(context: dg.AssetExecutionContext, run: Run) -> bool:
    """Publish an event with a link to Spark's page of the run, if there is one. Return whether it was published."""
    done = _done(run)
    if done.url:
        key = table_key(run.pipeline)
        linked = dg.AssetObservation(
            key, description="Spark's page of this run, available until the run ends", metadata=of_work(done)
        )
        publish_in_run(context, [linked])
    return bool(done.url)


def _chosen(context: dg.AssetExecutionContext) -> frozenset[Part]:
    return frozenset(key if ":" in key else int(key) for key in context.partition_keys)


def _deps(pipeline: Pipeline, home: Home) -> list[dg.AssetDep]:
    """Return the topics as dependencies. A table of several topics depends on all their partitions."""
    several = pipeline.source.multi_topic and pipeline.source.reads_topics  # other sources have no partitions
    mapping = dg.AllPartitionMapping() if several else None
    return [dg.AssetDep(key, partition_mapping=mapping) for key in source_keys(pipeline, home)]


def _failure(error: KpipeError) -> dg.Failure:
    """Convert an error to a failure of the run, with the hint and whether Dagster may retry."""
    return dg.Failure(
        description=str(error),
        metadata={"error": type(error).__name__, "what to do": error.hint or "run it again"},
        allow_retries=error.retriable,
    )


def _description(pipeline: Pipeline) -> str:
    program = f", through `{PurePath(pipeline.transform.program).name}`" if pipeline.transform else ""
    source = pipeline.source
    if not source.reads_topics:
        return f"Records of the {'files' if source.files is not None else 'table'} **{source}**{program}, exactly once."
    topics = f"Kafka topic **{source}**" if not source.multi_topic else f"Kafka topics **{source}**"
    return f"Rows of {topics}{program}, exactly once."
