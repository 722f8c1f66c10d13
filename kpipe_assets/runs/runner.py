"""Puts a pipeline's parts together: real brokers, real Spark, a real destination, this home."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NeedsOperator
from kpipe.ingest.loop import Decisions, Event, Ingest
from kpipe.interfaces import Destination, GroupFollower, Stager, Topics
from kpipe.planning.planner import Idle
from kpipe.tables.upsert import with_key
from kpipe.topics import Part
from kpipe_assets.runs.run_locks import marked
from kpipe_assets.runs.stop_requests import Ear
from kpipe_assets.validation import Needs, validate
from resources.destinations import open_destination, required_columns
from resources.home import Home
from resources.lookups.table_source import asking
from resources.spark.cluster.master import check as check_master
from resources.spark.staging.staged_files import collect_garbage, discard

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Run", "ingest", "real_stager"]


@dataclass
class Run:
    """One run of one pipeline in this process, with everything around the loop.

    Attributes:
        pipeline: the definition.
        home: where it keeps things.
        topics, stager, destination: the edges (kpipe/interfaces.py).
        only: partitions; None: all.
        decisions: what an operator decided.
        run_id: who runs it.
        version: of definition and program.
        tell: called with every event of the loop.
        wait, stopped: see `Ingest`.
        contend: see `Ingest`.
        ready: called when the first pass is about to begin.
    """

    pipeline: Pipeline
    home: Home
    topics: Topics
    stager: Stager
    destination: Destination
    only: Collection[Part] | None = None
    decisions: Decisions = field(default_factory=Decisions)
    run_id: str = ""
    version: str = ""
    tell: Callable[[Event], None] = lambda _: None
    wait: Callable[[float], None] = time.sleep
    stopped: Callable[[], bool] = lambda: False
    contend: bool = False
    ready: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._ear = Ear(self.home, self.pipeline.name, restarts=self.contend)

    @classmethod
    def real(cls, pipeline: Pipeline, home: Home, spark: Callable[[], SparkContext], **more: Any) -> Run:
        """A run with real brokers, Spark and destination.

        Args:
            pipeline: the definition.
            home: where it keeps things.
            spark: gives the SparkContext when the first batch is read.
            more: the other attributes.

        Raises:
            NotAvailable, InvalidPipeline: the definition cannot be run here.
        """
        from resources.kafka.topic_metadata import KafkaTopics
        from resources.spark.driver.stager import version

        check_master()
        home.make()
        with home.placing(pipeline):
            validate(pipeline, home, Needs.FILES, environ=os.environ)
        destination = open_destination(pipeline, home)
        return cls(
            pipeline,
            home,
            KafkaTopics(pipeline.source),
            real_stager(pipeline, home, spark, destination),
            destination,
            version=version(pipeline),
            **more,
        )

    def batches(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed]:
        """Commit batch after batch; see `Ingest.run`."""
        for result in self.passes(max_batches, follow):
            if isinstance(result, Committed):
                yield result

    def passes(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed | Idle]:
        """Commit batch after batch; see `Ingest.passes`. The pipeline's state is noted on the way.

        Raises:
            KpipeError: the run failed.
        """
        loop = Ingest(
            pipeline=self.pipeline,
            topics=self.topics,
            stager=self.stager,
            destination=self.destination,
            only=self.only,
            decisions=self.decisions,
            seen=self.home.seen(self.pipeline.name),
            run_id=self.run_id or f"pid-{os.getpid()}",
            version=self.version,
            tell=self.tell,
            wait=lambda seconds: self._ear.wait(seconds, self.wait),
            stopped=lambda: self.stopped() or self._ear.asked(),
            contend=self.contend,
        )
        with marked(self.home, self.pipeline.name, self.run_id or str(os.getpid())):
            landed = {entry.batch for entry in self.destination.history()}
            for root in self.home.roots:
                collect_garbage(root, landed.__contains__)
            self._note("running")
            self.ready()
            try:
                with self.home.placing(self.pipeline):
                    validate(self.pipeline, self.home, destination=self.destination)
                with closing(loop.passes(max_batches, follow)) as passes:
                    for result in passes:
                        if isinstance(result, Committed):
                            discard(self.home.stage, result.commit.id)
                            if isinstance(self.topics, GroupFollower):
                                self.topics.follow(result.heads())
                        yield result
            except NeedsOperator as error:
                self._note("needs_operator", error)
                raise
            except KpipeError as error:
                self._note("error", error)
                raise
            except BaseException:
                with suppress(KpipeError):
                    self._note("stopped")
                raise
            self._note("stopped")

    def asked_to_stop(self) -> bool:
        """Whether another process has asked for it (kpipe_assets/runs/stop_requests.py)."""
        return self._ear.asked()

    def _note(self, state: str, error: KpipeError | None = None) -> None:
        """For people; it must not hide the error that is on its way."""
        try:
            self.home.note(self.pipeline.name, state, str(error) if error else "")
            self.destination.record_state(state, str(error) if error else "", type(error).__name__ if error else "")
        except KpipeError:
            if error is None:
                raise


def real_stager(pipeline: Pipeline, home: Home, spark: Callable[[], SparkContext], destination: Destination) -> Stager:
    """The stager on Spark, with all that it has to know of the destination: key, columns that take no NULL, lookups.

    Raises:
        InvalidPipeline, NotAvailable: the definition cannot be run here.
    """
    from resources.spark.driver.stager import SparkStager

    return SparkStager(
        with_key(pipeline, destination),
        home,
        spark,
        required=lambda part: required_columns(part, home),
        ask=asking(pipeline, home),
    )


def ingest(
    pipeline: Pipeline, home: Home | None = None, max_batches: int | None = None, follow: bool = False
) -> Iterator[Committed]:
    """Run a pipeline from Python: commits batch after batch until caught up, giving each one.

    Args:
        pipeline: the definition.
        home: KPIPE_HOME by default.
        max_batches: end after so many.
        follow: go on when caught up.

    Raises:
        KpipeError: see kpipe/errors.py.
    """
    from resources.spark.driver.session import start

    place = home or Home.from_env()
    yield from Run.real(pipeline, place, lambda: start(place.path)).batches(max_batches, follow)
