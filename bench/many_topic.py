"""Measure the cost of a batch as the partitions of its topic grow: a real broker, real Spark, the real DuckDB.

    .venv/bin/python -m bench.many_topic                # 10, 100 and 1,000 partitions, five batches each
    .venv/bin/python -m bench.many_topic --records 100  # so many records in each partition and batch

One Spark session. Each batch reads the records written to every partition since the last one, without a program. Reports
wall-clock seconds, and CPU seconds of the driver (Python), of Spark's JVM, and of its Python workers. Figures are medians; two
warm-up batches are not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source
from kpipe.ingest.loop import Ingest
from kpipe_assets.dagster_resources import DestinationResource, KafkaResource, SparkResource
from kpipe_assets.runs.runner import Run
from resources.dev_broker.broker import LocalBroker
from resources.home import Home

_UNCOUNTED = 2


def _cpu() -> dict[str, float]:
    """Return CPU seconds by kind of process, of this process and its descendants; without the broker."""
    found = {"driver": time.process_time(), "jvm": 0.0, "workers": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            words, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:
            continue
        kind = "workers" if "python_daemon" in words else "jvm" if process.name() == "java" else ""
        if kind:
            found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


def _write(brokers: str, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(topic, b'{"id": %d}' % number, partition=partition)
            producer.poll(0)
    assert producer.flush(120) == 0


def measure(broker: LocalBroker, spark: SparkResource, home: Home, partitions: int, given: Any) -> dict[str, Any]:
    """Measure a row of the results."""
    topic, brokers = f"many{partitions}", str(broker.status().brokers)
    broker.create_topic(topic, partitions)
    source = Source(brokers=brokers, topic=topic)
    pipeline = Pipeline(
        name=topic, source=source, columns={"id": "BIGINT"}, into=Into(table=topic), batch=BatchLimits(interval_ms=0)
    )
    home.save(pipeline)
    spent: list[dict[str, float]] = []
    for number in range(_UNCOUNTED + given.batches):
        _write(brokers, topic, partitions, given.records)
        destination = DestinationResource(home=str(home.path)).open(pipeline)
        run = Run(home, Ingest(pipeline, KafkaResource().topics(pipeline), spark.stager(pipeline), destination))
        before, began = _cpu(), time.monotonic()
        made = list(run.batches(1))
        took, after = time.monotonic() - began, _cpu()
        assert sum(len(step.range) for batch in made for step in batch.commit.steps) == partitions * given.records, made
        if number >= _UNCOUNTED:
            spent.append({"s": took, **{kind: after[kind] - before[kind] for kind in after}, "batches": float(len(made))})
    middle = {name: round(statistics.median(one[name] for one in spent), 3) for name in spent[0]}
    return {"partitions": partitions, **middle, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    """Measure each size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", default="10,100,1000")
    options.add_argument("--batches", type=int, default=5)
    options.add_argument("--records", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kpipe-many-") as name:
        home, broker = Home.at(Path(name) / "home").make(), LocalBroker(Path(name) / "broker")
        spark = SparkResource(home=str(home.path))
        broker.start()
        try:
            spark.warm()
            for size in map(int, given.sizes.split(",")):
                print(measure(broker, spark, home, size, given), flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
