"""Run a pipeline with real brokers, Spark and destination."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, InvalidPipeline, KpipeError, LedgerMismatch, NeedsOperator
from kpipe.ingest.loop import Ingest
from kpipe.interfaces import Destination, GroupFollower
from kpipe.planning.planner import Idle
from kpipe.run_events import Event
from kpipe.tables.upsert import with_key
from kpipe.topics import PartitionId
from kpipe_assets.runs.dead_letter_topic import DeadLetterTopic
from kpipe_assets.runs.rebuilt import finish, is_outdated, was_exchanged
from kpipe_assets.runs.retries import count_retry
from kpipe_assets.runs.run_locks import marked
from kpipe_assets.runs.run_spark import run_spark
from kpipe_assets.runs.status import note_waits
from kpipe_assets.runs.stop_requests import StopRequests
from kpipe_assets.telemetry.observers import observed
from kpipe_assets.validation import Needs, validate
from resources.destinations import open_destination, required_columns
from resources.extras import require
from resources.home import Home
from resources.object_store.config import PACKAGES
from resources.object_store.uri import is_remote, kind
from resources.spark.cluster.master import check as check_master
from resources.spark.staging.staged_files import collect_garbage, discard

if TYPE_CHECKING:
    from pyspark import SparkContext

    from resources.spark.driver.batch_runner import BatchRunner
    from resources.spark.driver.definition_version import ResolvedPipeline
    from resources.spark.driver.stager import SparkStager

__all__ = ["Run", "ingest", "real_stager"]

_COLLECT_EVERY_S = 3600.0


@dataclass
class Run:
    """A run of one pipeline in this process: locks, stop requests, garbage collection and state around the loop.

    Attributes:
        home: KPIPE_HOME.
        loop: the ingest loop. The run adds the home's last-seen commit and stop requests of other processes.
        ready: called before the first pass.
        ended_by: why the run ended before it had caught up, although no stop was requested: `exchange` of its table, or `edit`
            of its definition; empty: it did not.
        present: partitions that the brokers had at the last pass; empty before the first one.
    """

    home: Home
    loop: Ingest
    ready: Callable[[], None] = lambda: None
    ended_by: str = field(default="", init=False)
    present: Collection[PartitionId] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._observe: Callable[[Event], None] = lambda _: None
        self._stop_requests = StopRequests(self.home, self.pipeline.name, restarts=self.loop.contend)

    @classmethod
    def real(cls, pipeline: Pipeline, home: Home, spark: Callable[[], SparkContext | BatchRunner], **options: Any) -> Run:
        """Return a run with real brokers, Spark and destination.

        Args:
            pipeline: the definition.
            home: KPIPE_HOME.
            spark: returns the SparkContext, or what runs batches instead; called for the first batch.
            options: further attributes of `Ingest`.

        Raises:
            NotAvailable, InvalidPipeline: the pipeline cannot run here.
        """
        from resources.sources.open_source import topics_of
        from resources.spark.driver.deferred_stager import DeferredStager
        from resources.spark.driver.definition_version import ResolvedPipeline
        from resources.spark.driver.ship_program import check_variables

        check_master()
        home.make()
        pipeline = finish(home, pipeline.name) or pipeline
        with home.placing(pipeline):
            validate(pipeline, home, Needs.FILES, environ=os.environ)
        destination = open_destination(pipeline, home)
        _check_staging(home)
        check_variables(pipeline, os.environ)
        resolved = ResolvedPipeline.of(pipeline, home)
        stager = DeferredStager(lambda: real_stager(resolved, home, spark, destination))
        return cls(home, Ingest(pipeline, topics_of(pipeline), stager, destination, version=resolved.version, **options))

    @property
    def pipeline(self) -> Pipeline:
        """Definition of the pipeline."""
        return self.loop.pipeline

    @property
    def destination(self) -> Destination:
        """Destination of the pipeline."""
        return self.loop.destination

    def batches(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed]:
        """Commit batch after batch; see `Ingest.run`."""
        for result in self.passes(max_batches, follow):
            if isinstance(result, Committed):
                yield result

    def passes(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed | Idle]:
        """Commit batch after batch and record the pipeline's state; see `Ingest.passes`.

        Raises:
            KpipeError: the run failed.
        """
        loop, name, seen = self.loop, self.pipeline.name, self.home.seen(self.pipeline.name)
        run = loop.run_id or f"pid-{os.getpid()}"
        passes = replace(
            loop,
            seen=seen,
            run_id=run,
            wait=lambda seconds: self._stop_requests.wait(seconds, loop.wait),
            stopped=lambda: loop.stopped() or self._stop_requests.asked(),
            on_event=self._counting,
        ).passes(max_batches, follow)
        watched = observed(self.home, self.pipeline, run, follow)
        with marked(self.home, name, loop.run_id or str(os.getpid())), watched as self._observe:
            collected = self._collect(self._landed)
            if is_outdated(self.home, self.pipeline, seen.uid):
                self._end("exchange")
                return
            if self._is_edited():
                self._end("edit")
                return
            self._note("running")
            self.ready()
            letters = DeadLetterTopic(self.home, self.pipeline, self.destination)
            try:
                with self.home.placing(self.pipeline):
                    validate(self.pipeline, self.home, destination=self.destination)
                with closing(passes), closing(letters):
                    letters.publish()  # those of a killed run
                    for result in passes:
                        if isinstance(result, Committed):
                            discard(self.home.stage, result.commit.id)
                            if isinstance(loop.topics, GroupFollower):
                                loop.topics.follow(result.heads())
                        letters.passed(result)
                        yield result
                        if time.monotonic() - collected > _COLLECT_EVERY_S:  # a run that follows leaves what it gave up, too
                            collected = self._collect(self._landed)
                    letters.end()
            except KpipeError as error:
                if (cause := self._cause(error, seen.uid)) is None:
                    self._end("exchange")
                    return
                self._note("needs_operator" if isinstance(cause, NeedsOperator) else "error", cause)
                if cause is not error:
                    raise cause from error
                raise
            except BaseException:
                with suppress(KpipeError):
                    self._note("stopped")
                raise
            self._note("stopped")

    def _is_edited(self) -> bool:
        """Return whether the definition in the home was changed after it was loaded, and before the run read the stop requests.

        Only a run that starts again by itself ends for that. The home does not define the pipelines of Dagster components.
        """
        if not self.loop.contend or type(self.pipeline) is not Pipeline or self.pipeline.name not in self.home.names():
            return False
        return self.home.pipeline(self.pipeline.name).to_dict() != self.pipeline.to_dict()

    def _cause(self, error: KpipeError, uid: str) -> KpipeError | None:
        """Return the error to report; None if the cause is an exchange of the table, which is complete now.

        Args:
            error: that ended the run.
            uid: registration id of the ledger that the run has seen.
        """
        try:
            exchanged = isinstance(error, LedgerMismatch | Fenced) and was_exchanged(self.home, self.pipeline.name, uid)
        except KpipeError as other:  # the exchange could not be completed
            return other
        return None if exchanged else error

    def _end(self, why: str) -> None:
        """End a run that has an old definition."""
        self.ended_by = why
        what, then = "the definition was changed", ""
        if why == "exchange":
            what, then = "the table was rebuilt and exchanged", ": start it again"
        self._counting(Event("decided", text=f"{what}; this run has the old definition and ends{then}"))
        self._note("stopped")

    def _collect(self, landed: Callable[[str], bool]) -> float:
        """Remove staged files that no batch needs, and return the time on the monotonic clock. See `collect_garbage`."""
        for root in self.home.roots:
            collect_garbage(root, landed)
        return time.monotonic()

    def _landed(self, batch: str) -> bool:
        """Return whether the ledger contains a batch. Read the history at the first call only."""
        return batch in self._history

    @cached_property
    def _history(self) -> frozenset[str]:
        return frozenset(entry.batch for entry in self.destination.history())

    def _counting(self, event: Event) -> None:
        """Note the partitions, count retries, and pass the event to observers and caller."""
        self._observe(event)
        if event.snapshot is not None:
            self.present = event.snapshot.partitions
        if event.kind in ("idle", "planned"):
            note_waits(self.home, self.pipeline, event.detail)
        if event.kind == "retry":
            with suppress(OSError):  # for metrics only
                count_retry(self.home, self.pipeline.name)
        self.loop.on_event(event)

    def asked_to_stop(self) -> bool:
        """Return whether another process has requested a stop (kpipe_assets/runs/stop_requests.py)."""
        return self._stop_requests.asked()

    def _note(self, state: str, error: KpipeError | None = None) -> None:
        """Record the pipeline's state. A failure must not hide the error that is recorded."""
        try:
            self.home.note(self.pipeline.name, state, str(error) if error else "")
            self.destination.record_state(state, str(error) if error else "", type(error).__name__ if error else "")
        except KpipeError:
            if error is None:
                raise


def real_stager(
    resolved: ResolvedPipeline, home: Home, spark: Callable[[], SparkContext | BatchRunner], destination: Destination
) -> SparkStager:
    """Create the Spark stager with the destination's key and NOT NULL columns, and the lookups.

    Args:
        resolved: the definition, as the run read it at its start.
        home: KPIPE_HOME.
        spark: see `Run.real`.
        destination: of the pipeline.

    Raises:
        InvalidPipeline, NotAvailable: the pipeline cannot run here.
    """
    from resources.lookups.table_source import asking
    from resources.spark.driver.stager import SparkStager

    _check_staging(home)
    return SparkStager(
        replace(resolved, pipeline=with_key(resolved.pipeline, destination)),
        home,
        spark,
        required=lambda part: required_columns(part, home),
        ask=asking(resolved.pipeline, home),
    )


def _check_staging(home: Home) -> None:
    if is_remote(home.stage):
        from resources.object_store.clients import store

        require(PACKAGES[kind(home.stage)][1], f"KPIPE_STAGING {home.stage}")
        try:
            store(home.stage)
        except OSError as error:
            raise InvalidPipeline(f"KPIPE_STAGING {home.stage}: {error}", "set the variables of the store") from error


def ingest(
    pipeline: Pipeline, home: Home | None = None, max_batches: int | None = None, follow: bool = False
) -> Iterator[Committed]:
    """Run a pipeline from Python: commit batch after batch until caught up, and yield each one.

    Args:
        pipeline: the definition.
        home: default: KPIPE_HOME.
        max_batches: stop after this many batches.
        follow: keep running when caught up.

    Raises:
        KpipeError: see kpipe/errors.py.
    """
    opened = home or Home.from_env()
    yield from Run.real(pipeline, opened, run_spark(opened)).batches(max_batches, follow)
