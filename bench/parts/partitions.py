"""Measure the cost of a batch as the partitions of its topic grow: a real broker, real Spark, the real DuckDB.

One Spark session, in a process of its own. Each batch reads the record written to every partition since the last one, without
a program. Reports wall-clock seconds, and CPU seconds of the driver (Python), of Spark's JVM, and of its Python workers.
Figures are medians; two warm-up batches are not counted.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from bench.child import Child, clean_environment, serve
from bench.stage import Stage, say
from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source
from kpipe.ingest.loop import Ingest
from kpipe_assets.dagster_resources import DestinationResource, KafkaResource, SparkResource
from kpipe_assets.runs.runner import Run
from resources.home import Home

__all__ = ["measure"]

_UNCOUNTED = 2


def _cpu() -> dict[str, float]:
    """Return CPU seconds by kind of process, of this process and its descendants; without the broker."""
    found = {"driver": time.process_time(), "jvm": 0.0, "workers": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            words, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:
            continue
        kind = "jvm" if process.name() == "java" else "workers" if "python_daemon" in words else ""
        if kind:
            found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


def _write(brokers: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50})
    for partition in range(partitions):
        producer.produce(topic, b'{"id": 1}', partition=partition)
    assert producer.flush(120) == 0


def _batches(home: Home, spark: SparkResource, brokers: str, topic: str, partitions: int, batches: int) -> dict[str, Any]:
    source, limits = Source(brokers=brokers, topic=topic), BatchLimits(interval_ms=0)
    pipeline = Pipeline(name=topic, source=source, columns={"id": "BIGINT"}, into=Into(table=topic), batch=limits)
    home.save(pipeline)
    spent: list[dict[str, float]] = []
    for number in range(_UNCOUNTED + batches):
        _write(brokers, topic, partitions)
        destination = DestinationResource(home=str(home.path)).open(pipeline)
        run = Run(home, Ingest(pipeline, KafkaResource().topics(pipeline), spark.stager(pipeline), destination))
        before, began = _cpu(), time.monotonic()
        made = list(run.batches(1))
        took, after = time.monotonic() - began, _cpu()
        assert sum(len(step.range) for batch in made for step in batch.commit.steps) == partitions, made
        if number >= _UNCOUNTED:
            spent.append({"seconds": took, **{f"{kind}_cpu_s": after[kind] - before[kind] for kind in after}})
    return {name: round(statistics.median(one[name] for one in spent), 3) for name in spent[0]}


def measure(stage: Stage, sizes: Sequence[int], batches: int) -> list[dict[str, Any]]:
    """Return the medians of so many batches for each number of partitions."""
    runs = []
    folder = stage.folder("partitions-home")
    command = [sys.executable, "-m", "bench.parts.partitions", str(folder)]
    with Child(command, folder.with_suffix(".log"), clean_environment(PYTHONPATH=str(Path(__file__).parents[2]))) as child:
        for partitions in sizes:
            topic = f"many_{partitions}_{uuid.uuid4().hex[:8]}"
            stage.broker.create_topic(topic, partitions)
            figures = child.ask("batches", brokers=stage.brokers, topic=topic, partitions=partitions, batches=batches)
            runs.append({"name": "a batch", "partitions": partitions, **figures})
            say(f"  {partitions:,} partitions: {figures['seconds']:.2f} s a batch")
            stage.broker.delete_topic(topic)
    stage.settle(folder)
    return runs


def main() -> None:
    """Serve orders of the bench."""
    home = Home.at(Path(sys.argv[1])).make()
    spark = SparkResource(home=str(home.path))
    spark.warm()

    def batches(**order: Any) -> dict[str, Any]:
        return _batches(home, spark, **order)

    serve({"batches": batches}, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
