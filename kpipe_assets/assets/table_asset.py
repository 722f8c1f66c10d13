"""The destination table as an asset on the topic's partitions: one run for all of them, batch after batch, on Spark."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import dagster as dg

from kpipe.batch.batch import Committed, Counts
from kpipe.batch.host_stats import Work
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import AuditFailed, KpipeError
from kpipe.interfaces import Spread
from kpipe.tables.multi_table import targets
from kpipe.topics import Part, part
from kpipe_assets.assets.quality_checks import audit_news
from kpipe_assets.assets.topic_asset import table_partitions, topic_key, topic_names
from kpipe_assets.dagster_resources import Destinations, Stagers, Topicsources
from kpipe_assets.publishing.events import describe, tell, tell_in_run
from kpipe_assets.publishing.metadata import nothing_new, of_table, of_work, rarer
from kpipe_assets.publishing.publisher import Publisher, materializations
from kpipe_assets.runs.handover import Turn
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.runs.run_workers import orphaned
from kpipe_assets.runs.runner import Run
from resources.home import Home

__all__ = ["OP_TAG", "HowLong", "op_name", "table_asset", "table_key", "table_keys"]

#: Tag of every run of a pipeline, for the queue's limit and for the sensor.
OP_TAG = "kpipe/pipeline"
# While a run goes on, a partition gets an event at most this often: Dagster keeps events for ever, and a run of one
# batch a second would write 86,400 a day for each partition. With many partitions less often (`rarer`).
_EVENT_EVERY_S = 30.0


class HowLong(dg.Config):
    """How long a run goes on. Both unset: until it has caught up."""

    max_seconds: float | None = None
    idle_seconds: float | None = None

    @property
    def continuous(self) -> bool:
        """Whether to wait for more when caught up."""
        return self.max_seconds is not None or self.idle_seconds is not None


def table_key(pipeline: Pipeline) -> dg.AssetKey:
    """Key of the table's asset: the table's name."""
    return dg.AssetKey([pipeline.into.table])


def table_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """Keys of the assets of all its tables (`also`), the first one first."""
    return [table_key(part) for part in targets(pipeline)]


def op_name(pipeline: Pipeline) -> str:
    """Name of the op of the pipeline's assets, under which a run's configuration stands: Dagster makes it of the key."""
    return "__".join(table_key(pipeline).path)


def table_asset(pipeline: Pipeline, home: Home, code_version: str) -> dg.AssetsDefinition:
    """The assets of a pipeline's tables: one of each, materialized together. Selecting partitions ingests only those.

    Args:
        pipeline: the definition.
        home: where it keeps things.
        code_version: of definition and program.
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
            metadata={"dagster/table_name": key.path[-1], "kpipe/pipeline": pipeline.name},
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
        topics = [topic_key(topic) for topic in topic_names(pipeline, home)]
        publisher = Publisher(context.instance, table_keys(pipeline), destination, home, pipeline.name, topics)
        turn = Turn(home, pipeline.name, context.run.run_id) if config.continuous else None
        began = time.monotonic()
        alone = orphaned(context.instance, context.run.run_id)

        def ended() -> bool:
            if alone() or (turn is not None and turn.is_over()):
                return True
            return config.max_seconds is not None and time.monotonic() - began > config.max_seconds

        run = Run(
            pipeline,
            home,
            topics=kafka.topics(pipeline),
            stager=spark.stager(pipeline),
            destination=destination,
            only=_chosen(context),
            run_id=context.run.run_id,
            version=spark.version(pipeline),
            stopped=ended,
            contend=config.continuous,
            ready=turn.take if turn is not None else lambda: None,
        )
        if turn is not None:  # ready to read before the predecessor is sent home
            spark.warm()
        with at_work(home, pipeline.name):  # also while it closes: a sensor would show the run's commits as nobody's
            _work(context, config, run, publisher)
            yield from _closing(context, run, topics, publisher)

    return table


@dataclass
class _Tally:
    """Batches since the last line in the run's log: a line for each would be most of Dagster's event log."""

    batches: int = 0
    counts: Counts = field(default_factory=Counts)
    last: int = 0

    def add(self, committed: Committed) -> None:
        self.batches, self.counts, self.last = self.batches + 1, self.counts + committed.commit.totals, committed.seq

    def log(self, context: dg.AssetExecutionContext) -> None:
        if self.batches:
            counts = self.counts
            context.log.info(
                f"{self.batches} batches, up to commit {self.last}: {counts.messages:,} records, {counts.rows:,} rows,"
                f" {counts.dead_letters:,} dead letters, {counts.filtered:,} filtered"
            )
        self.batches, self.counts = 0, Counts()


def _work(context: dg.AssetExecutionContext, config: HowLong, run: Run, publisher: Publisher) -> None:
    """Batch after batch, with an event for each partition every 30 s, of very many less often.

    The first time also for partitions without news: until a run has told something of a partition, Dagster takes it for
    being computed, and no asset downstream would be started for as long as continuous runs follow each other.

    What a bounded run reads last is left to its closing event: told here, that one could only say "nothing new", and the
    newest event is what the pages show.
    """
    shown_at = busy_at = time.monotonic()
    silent = set(context.partition_keys)
    every_s = _EVENT_EVERY_S * rarer(len(silent))
    since, linked, audited = _Tally(), False, False
    try:
        for result in run.passes(follow=config.continuous):
            now = time.monotonic()
            linked = linked or _linked(context, run)
            last = not config.continuous
            if isinstance(result, Committed):
                busy_at = now
                since.add(result)
                audited = audited or _audited(context, run)
                last = last and all(step.closed_by == "caught_up" for step in result.commit.steps)
            if now - shown_at >= every_s and not last:
                shown_at = now
                since.log(context)
                with publisher.waiting() as assets:
                    for asset, events in assets.items():
                        events |= _unchanged(silent - set(events), run, publisher, asset)
                        tell_in_run(context, materializations(asset, events))
                    silent.clear()
            if config.idle_seconds is not None and now - busy_at > config.idle_seconds:
                break
    except KpipeError as error:
        if isinstance(error, AuditFailed):
            _audited(context, run)
        raise _failure(error) from error
    finally:
        since.log(context)


def _audited(context: dg.AssetExecutionContext, run: Run) -> bool:
    """Tell what the checks of `into.audit` say now: after the first batch that was published, and of one that was not."""
    for event in audit_news(context.instance, run.pipeline, run.destination, table_key(run.pipeline)):
        context.instance.report_runless_asset_event(event)
    return True


def _unchanged(keys: Collection[str], run: Run, publisher: Publisher, asset: dg.AssetKey) -> dict[str, dict[str, Any]]:
    """Events of partitions that have nothing new."""
    if not keys:
        return {}
    _, ledger = run.destination.ledger()
    several = run.pipeline.source.several
    positions = {str(part(source, several)): offset for source, offset in ledger.positions().items()}
    return {key: nothing_new(positions.get(key, 0), shown) for key, shown in publisher.shown(keys, asset).items()}


def _closing(
    context: dg.AssetExecutionContext, run: Run, topics: Sequence[dg.AssetKey], publisher: Publisher
) -> Iterator[dg.MaterializeResult[Any]]:
    """One event for every partition of the run, also for those that had nothing new (Dagster expects one of each).

    The result is given while the publisher still waits: only when Dagster has stored it, commits are marked.
    """
    keys = context.partition_keys  # asked for once: Dagster reads all of them from its database each time
    with publisher.waiting() as assets:
        for at, (asset, events) in enumerate(assets.items()):
            events |= _unchanged(set(keys) - set(events), run, publisher, asset)
            describe(context, asset, {key: events.pop(key) for key in keys})
            tell(
                context.instance, materializations(asset, events)
            )  # of others: a run of some must not swallow what they wait for
            yield dg.MaterializeResult(asset_key=asset, metadata={**of_table(run.destination, topics, at), **of_work(_done(run))})


def _done(run: Run) -> Work:
    return run.stager.work() if isinstance(run.stager, Spread) else Work()


def _linked(context: dg.AssetExecutionContext, run: Run) -> bool:
    """Once there is a page of the engine's that shows the run: an event with a link to it. Whether that was so."""
    done = _done(run)
    if done.url:
        key = table_key(run.pipeline)
        linked = dg.AssetObservation(key, description="Spark's page of this run, while it lasts", metadata=of_work(done))
        tell_in_run(context, [linked])
    return bool(done.url)


def _chosen(context: dg.AssetExecutionContext) -> frozenset[Part]:
    return frozenset(key if ":" in key else int(key) for key in context.partition_keys)


def _deps(pipeline: Pipeline, home: Home) -> list[dg.AssetDep]:
    """The topics. Partitions of one are the table's; of several, the table has those of all."""
    mapping = dg.AllPartitionMapping() if pipeline.source.several else None
    return [dg.AssetDep(topic_key(topic), partition_mapping=mapping) for topic in topic_names(pipeline, home)]


def _failure(error: KpipeError) -> dg.Failure:
    """The error as the run page shows it: what, what to do, and whether a person must."""
    return dg.Failure(
        description=str(error),
        metadata={"error": type(error).__name__, "what to do": error.hint or "run it again"},
        allow_retries=error.retriable,
    )


def _description(pipeline: Pipeline) -> str:
    program = f", through `{PurePath(pipeline.transform.program).name}`" if pipeline.transform else ""
    source = pipeline.source
    topics = f"Kafka topic **{source}**" if not source.several else f"Kafka topics **{source}**"
    return f"Rows of {topics}{program}, exactly once."
