"""The three edges as Dagster resources: Kafka, Spark, destinations. Each connects when it is used.

Run config cannot change them: it comes from the launchpad and from GraphQL, and Spark's settings name the program that runs
as Python. Their settings come from the environment and from the pipelines' definitions.

Assets ask for them by name and by what they do, so a test may put anything in their place that has the same methods
(kpipe/testing holds fakes of what they give).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager, Topics
from resources.home import Home

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["DestinationResource", "Destinations", "KafkaResource", "SparkResource", "Stagers", "Topicsources", "real"]


class Topicsources(Protocol):
    """Gives the topics of a pipeline."""

    def topics(self, pipeline: Pipeline) -> Topics:
        """What the brokers know of the pipeline's topics."""
        ...


class Stagers(Protocol):
    """Gives what reads, transforms and stages a pipeline's batches."""

    def stager(self, pipeline: Pipeline) -> Stager:
        """A stager for the pipeline."""
        ...

    def version(self, pipeline: Pipeline) -> str:
        """Short hash of the definition and its program."""
        ...

    def warm(self) -> None:
        """Start what a batch will need, so that the first one costs no more than any other."""
        ...


class Destinations(Protocol):
    """Gives the destination of a pipeline."""

    def open(self, pipeline: Pipeline) -> Destination:
        """Its table and ledger."""
        ...


@dataclass(frozen=True)
class KafkaResource:
    """Kafka's side: metadata of topics. Brokers and credentials belong to each pipeline's definition.

    Attributes:
        operation_timeout_s: longest time for a metadata request; each pipeline's own setting by default.
    """

    operation_timeout_s: float | None = None

    def topics(self, pipeline: Pipeline) -> Topics:
        """See `Topicsources`."""
        from resources.kafka.topic_metadata import KafkaTopics

        return KafkaTopics(pipeline.source, timeout_s=self.operation_timeout_s)


@dataclass
class SparkResource:
    """Spark's side: a session of dagster-pyspark, started when the first batch is read, and never for a sensor.

    Attributes:
        home: KPIPE_HOME; scratch and staged files lie below it.
        master: Spark's master; KPIPE_SPARK_MASTER or `local[*]` by default.
        spark_config: further Spark settings, by their full names.
    """

    home: str
    master: str | None = None
    spark_config: Mapping[str, str] = field(default_factory=dict)
    _session: LazyPySparkResource | None = field(default=None, init=False, repr=False)

    def context(self) -> SparkContext:
        """The process's SparkContext."""
        from resources.spark.driver.session import prepared, settings, stop_at_exit

        if self._session is None:
            home = Home.at(self.home)
            configuration = {**settings(home.path, self.master), **self.spark_config}
            self._session = LazyPySparkResource(spark_config=configuration)
            with prepared(home.path, configuration):
                stop_at_exit(self._session.spark_context)
        return self._session.spark_context

    def stager(self, pipeline: Pipeline) -> Stager:
        """See `Stagers`.

        Raises:
            NotAvailable, InvalidPipeline: kpipe cannot run on that master.
        """
        from kpipe_assets.runs.runner import real_stager
        from resources.destinations import open_destination
        from resources.spark.cluster.master import check

        check(self.master)
        home = Home.at(self.home)
        return real_stager(pipeline, home, self.context, open_destination(pipeline, home))

    def warm(self) -> None:
        """See `Stagers`: the JVM, and on each core a Python worker with its imports."""
        from resources.spark.driver.session import warm

        warm(self.context())

    def version(self, pipeline: Pipeline) -> str:
        """See `Stagers`."""
        from resources.spark.driver.stager import version

        return version(pipeline)


@dataclass(frozen=True)
class DestinationResource:
    """The table's side: opens what a pipeline's `into` names.

    Attributes:
        home: KPIPE_HOME; the default destination lies below it.
    """

    home: str

    def open(self, pipeline: Pipeline) -> Destination:
        """See `Destinations`."""
        from resources.destinations import open_destination

        return open_destination(pipeline, Home.at(self.home))


def real(home: Home) -> dict[str, object]:
    """Return the three real resources of a home, by the names under which assets ask for them."""
    path = str(home.path)
    return {
        "kafka": _fixed(KafkaResource),
        "spark": _fixed(lambda: SparkResource(home=path)),
        "destinations": _fixed(lambda: DestinationResource(home=path)),
    }


def _fixed(make: Callable[[], object]) -> dg.ResourceDefinition:
    """Return a resource whose empty config schema makes Dagster reject run config for it."""
    return dg.ResourceDefinition(lambda _: make(), config_schema={})
