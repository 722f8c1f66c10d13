"""Render the metrics of a home for Prometheus.

Each pipeline is read in its own thread, with a deadline for all of them. A pipeline that is not read in time has `kpipe_up` 0;
its thread goes on, and no second one is started for it meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import BoundedSemaphore, Lock, Thread

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Destination, Topics
from kpipe_assets.metrics.collector import Readings
from kpipe_assets.metrics.reading import Reader, Reading
from kpipe_assets.sensors.sensor_state import SensorStates
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["Exporter", "Settings", "answer", "exporter", "render"]

# Pipelines that are read at once.
_AT_ONCE = 16


@dataclass(frozen=True)
class Settings:
    """Bounds of a scrape.

    Attributes:
        max_partitions: most partitions of a pipeline with series of their own (KPIPE_METRICS_MAX_PARTITIONS).
        timeout_s: most seconds that a scrape waits for ledgers and brokers (KPIPE_METRICS_TIMEOUT_S).
    """

    max_partitions: int = 100
    timeout_s: float = 8.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables.

        Raises:
            InvalidPipeline: a variable is not a number in its range.
        """
        values = os.environ if environ is None else environ
        most = _number(values, "KPIPE_METRICS_MAX_PARTITIONS", cls.max_partitions, 1, 100_000)
        return cls(int(most), _number(values, "KPIPE_METRICS_TIMEOUT_S", cls.timeout_s, 0.1, 300))


def _number(values: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = values.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidPipeline(f"{name}: expected a number from {least:g} to {most:g}, found {text!r}", f"unset {name}")
    return number


class Exporter:
    """Read the metrics of all pipelines of a home. Calls may be concurrent: they share the reads.

    Args:
        home: KPIPE_HOME.
        settings: bounds of a scrape.
        destinations: opens the destination of a definition; None: the real one.
        topics: makes the client of its brokers; None: the real one.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings = Settings(),
        destinations: Callable[[Pipeline], Destination] | None = None,
        topics: Callable[[Pipeline], Topics] | None = None,
    ) -> None:
        self._home, self.settings = home, settings
        self._destinations = destinations or (lambda pipeline: open_destination(pipeline, home))
        self._topics = topics or self._kafka
        self._readers: dict[str, Reader] = {}
        self._running: dict[str, Future[Reading]] = {}
        self._lock, self._slots = Lock(), BoundedSemaphore(_AT_ONCE)

    def readings(self) -> list[Reading]:
        """Read every pipeline, and return within the timeout."""
        deadline = time.monotonic() + self.settings.timeout_s
        names = self._home.names()
        with SensorStates(self._home) as states:
            on, unserved = states.on(), states.unserved()
        with self._lock:
            for gone in self._readers.keys() - names:
                del self._readers[gone]
            asked = {name: self._start(name, name in on, name not in unserved) for name in names}
        wait(asked.values(), max(0.0, deadline - time.monotonic()))
        late = Reading("", {"ledger": "Timeout"}, now=time.time(), seconds=self.settings.timeout_s)
        return [future.result() if future.done() else replace(late, pipeline=name) for name, future in asked.items()]

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type: OpenMetrics if the client accepts it, else Prometheus' text.

        Args:
            accept: the header Accept of the request.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Readings(self.readings(), self.settings.max_partitions))
        encoder, content_type = choose_encoder(accept)
        return encoder(registry), content_type

    def _kafka(self, pipeline: Pipeline) -> Topics:
        from resources.sources.open_source import topics_of

        return topics_of(pipeline, timeout_s=self.settings.timeout_s)

    def _start(self, name: str, on: bool, served: bool) -> Future[Reading]:
        """Start to read a pipeline, unless a thread reads it already."""
        running = self._running.get(name)
        if running is not None and not running.done():
            return running
        reader = self._readers.get(name)
        if reader is None:
            reader = Reader(self._home, name, self._destinations, self._topics, self.settings.max_partitions)
            self._readers[name] = reader
        future: Future[Reading] = Future()
        self._running[name] = future

        def work() -> None:
            with self._slots:
                future.set_result(reader.read(on, served))

        # Not a pool: the process must be able to end while a destination does not answer.
        Thread(target=work, name=f"metrics of {name}", daemon=True).start()
        return future


@lru_cache(maxsize=8)
def exporter(home: Home) -> Exporter:
    """Return the exporter of a home, which caches sums between scrapes."""
    return Exporter(home, Settings.from_env())


def render(home: Home) -> bytes:
    """Return the metrics of a home in Prometheus' text format."""
    return exporter(home).render()[0]


def answer(home: Home, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics of a home and their content type; see `Exporter.render`."""
    return exporter(home).render(accept)
