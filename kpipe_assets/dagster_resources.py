"""Kafka, Spark and destinations as Dagster resources. Each connects on first use.

Settings come from the environment and from the pipelines' definitions. Run config cannot change them: clients of GraphQL
set it, and Spark's settings name the program that is executed as Python.

Assets request a resource by name and protocol. A test may pass any object with the same methods; kpipe/testing contains
fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NotAvailable
from kpipe.interfaces import Destination, Stager, Topics
from resources.home import Home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "DestinationResource",
    "Destinations",
    "KafkaResource",
    "SparkResource",
    "Stagers",
    "Topicsources",
    "VersionedStager",
    "real",
]


class Topicsources(Protocol):
    """A resource that provides the topics of a pipeline."""

    def topics(self, pipeline: Pipeline) -> Topics:
        """Return a client for the metadata of the pipeline's topics."""
        ...


class VersionedStager(Stager, Protocol):
    """A stager of the definition and the program that it read when it was created."""

    @property
    def version(self) -> str:
        """A short hash of both, stored with every commit."""
        ...


class Stagers(Protocol):
    """A resource that provides stagers, which read, transform and stage batches."""

    def stager(self, pipeline: Pipeline) -> VersionedStager:
        """Create a stager for the pipeline."""
        ...

    def warm(self) -> None:
        """Start the engine, so that the first batch is as fast as later ones."""
        ...


class Destinations(Protocol):
    """A resource that provides the destination of a pipeline."""

    def open(self, pipeline: Pipeline) -> Destination:
        """Open the pipeline's table and ledger."""
        ...


@dataclass(frozen=True)
class KafkaResource:
    """Metadata of Kafka topics. Brokers and credentials come from each pipeline's definition.

    Attributes:
        operation_timeout_s: timeout of a metadata request; default: the pipeline's setting.
    """

    operation_timeout_s: float | None = None

    def topics(self, pipeline: Pipeline) -> Topics:
        """See `Topicsources`."""
        from resources.sources.open_source import topics_of

        return topics_of(pipeline, timeout_s=self.operation_timeout_s)


@dataclass
class SparkResource:
    """Spark, started for the first batch and never by a sensor.

    Attributes:
        home: KPIPE_HOME, which contains scratch and staged files.
        master: Spark master; default: KPIPE_SPARK_MASTER, else `local[*]`.
        spark_config: additional Spark settings by full name.
    """

    home: str
    master: str | None = None
    spark_config: Mapping[str, str] = field(default_factory=dict)

    def context(self) -> SparkContext:
        """Return the SparkContext of this process; start it on the first call, with KPIPE_SPARK=service, too."""
        from resources.spark.jvm.session import start

        return start(Home.at(self.home).path, self.master, self.spark_config)

    def session(self) -> SparkSession:
        """Return a session of dagster-pyspark on this context, for assets that use Spark's SQL.

        Batches need none, and it takes more CPU to start than the context.
        """
        from dagster_pyspark import LazyPySparkResource

        self.context()
        session: SparkSession = LazyPySparkResource(spark_config=dict(self.spark_config)).spark_session
        return session

    def stager(self, pipeline: Pipeline) -> VersionedStager:
        """See `Stagers`.

        Raises:
            NotAvailable, InvalidPipeline: the Spark master is not supported, or the service's Spark has other settings.
        """
        from kpipe_assets.runs.run_spark import service_spark
        from kpipe_assets.runs.runner import real_stager
        from resources.destinations import open_destination
        from resources.spark.cluster.master import check
        from resources.spark.driver.definition_version import ResolvedPipeline

        check(self.master)
        home = Home.at(self.home)
        service, resolved = service_spark(home), ResolvedPipeline.of(pipeline, home)
        if service is None:
            return real_stager(resolved, home, self.context, open_destination(pipeline, home))
        if self.master is not None or self.spark_config:
            raise NotAvailable(
                "KPIPE_SPARK=service: the Spark resource has settings of its own, but runs use the Spark of kpipe serve",
                "remove `master` and `spark_config` from the resource, or unset KPIPE_SPARK",
            )
        return real_stager(resolved, home, lambda: service, open_destination(pipeline, home))

    def warm(self) -> None:
        """Start the JVM, and on each core a Python worker with its imports; see `Stagers`.

        With KPIPE_SPARK=service, let the service start its JVM. A failure is reported by the first batch.
        """
        from kpipe_assets.runs.run_spark import service_spark
        from resources.spark.workers.warm_up import warm

        service = service_spark(Home.at(self.home))
        if service is None:
            warm(self.context())
            return
        with suppress(KpipeError):
            service.connect()
        service.close()


@dataclass(frozen=True)
class DestinationResource:
    """Destinations as configured by a pipeline's `into`.

    Attributes:
        home: KPIPE_HOME, which contains the default DuckDB file.
    """

    home: str

    def open(self, pipeline: Pipeline) -> Destination:
        """See `Destinations`."""
        from resources.destinations import open_destination

        return open_destination(pipeline, Home.at(self.home))


def real(home: Home) -> dict[str, object]:
    """Return the production resources of a home by the names that assets use."""
    path = str(home.path)
    return {
        "kafka": _fixed(KafkaResource),
        "spark": _fixed(lambda: SparkResource(home=path)),
        "destinations": _fixed(lambda: DestinationResource(home=path)),
    }


def _fixed(make: Callable[[], object]) -> dg.ResourceDefinition:
    """Return a resource with an empty config schema, so that Dagster rejects run config for it."""
    return dg.ResourceDefinition(lambda _: make(), config_schema={})
