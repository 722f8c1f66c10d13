"""Measure a table for each of many topics: an idle pass, a pass with records in every topic, and one with records in one topic.

    .venv/bin/python -m bench.studies.topic_tables                      # 300 topics, DuckDB
    .venv/bin/python -m bench.studies.topic_tables --table web          # the same topics into one table

Real broker and Spark. `first` creates the tables. CPU seconds are those of this process (driver, DuckDB) and of Spark's
processes; other work on the machine changes them little. Wall times are medians, for a quiet machine. Prints CSV.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.meter import cpu_seconds
from kpipe.batch.batch import Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.loop import Ingest
from kpipe_assets.dagster_resources import DestinationResource, KafkaResource, SparkResource
from resources.dev_broker.broker import LocalBroker
from resources.home import Home

_RECORDS = 20  # of a topic in a busy pass


class _Site:
    """Topics, and the loop that loads them."""

    def __init__(self, home: Home, brokers: str, given: Any, into: dict[str, Any]) -> None:
        self.names = [f"web.t{number:04d}" for number in range(given.topics)]
        admin = AdminClient({"bootstrap.servers": brokers})
        made = admin.create_topics([NewTopic(name, 1, 1) for name in self.names])
        for future in made.values():
            future.result(120)
        self.producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
        fields = {"name": "web", "source": {"brokers": brokers, "topic_pattern": r"^web\."}, "into": into}
        pipeline = Pipeline.model_validate({**fields, "batch": {"max_partitions": given.topics}})
        home.save(pipeline)
        spark = SparkResource(home=str(home.path))
        spark.warm()
        destination = DestinationResource(home=str(home.path)).open(pipeline)
        self.loop = Ingest(pipeline, KafkaResource().topics(pipeline), spark.stager(pipeline), destination)
        self.numbers = 0

    def write(self, topics: list[str]) -> None:
        """Write records with members of their topic's own."""
        for name in topics:
            for _ in range(_RECORDS):
                self.numbers += 1
                value = b'{"id": %d, "text": "tweet %d", "of_%s": 1.5}' % (self.numbers, self.numbers, name[4:].encode())
                self.producer.produce(name, value)
        assert self.producer.flush(60) == 0

    def measure(self, repeats: int, topics: list[str]) -> list[float]:
        """Return the medians of driver CPU, Spark CPU and wall seconds of passes, each after new records in these topics."""
        found: list[tuple[float, float, float]] = []
        for _ in range(repeats):
            self.write(topics)
            spark, driver, wall = _spark_cpu(), time.process_time(), time.monotonic()
            result = self.loop.step()
            found.append((time.process_time() - driver, _spark_cpu() - spark, time.monotonic() - wall))
            rows = result.commit.totals.rows if isinstance(result, Committed) else 0
            assert rows == _RECORDS * len(topics), result
        return [statistics.median(values) for values in zip(*found, strict=True)]


def _spark_cpu() -> float:
    """Return the CPU seconds of Spark's processes, ended children included."""
    return cpu_seconds(*(process.pid for process in psutil.Process().children()))


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--topics", type=int, default=300)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--table", default="{topic}")
    given = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kpipe-tables-")))
        into: dict[str, Any] = {"table": given.table}
        broker = LocalBroker(folder / "broker")
        broker.start()
        stack.callback(broker.stop)
        site = _Site(Home.at(folder / "home").make(), str(broker.status().brokers), given, into)
        out = csv.writer(sys.stdout)
        out.writerow(["topics", "table", "pass", "driver_cpu_s", "spark_cpu_s", "wall_s", "load"])
        every, one = site.names, site.names[:1]
        many = given.repeats
        for name, repeats, topics in (("first", 1, every), ("idle", many, []), ("busy", many, every), ("one", many, one)):
            numbers = site.measure(repeats, topics)
            out.writerow([given.topics, given.table, name, *(f"{number:.3f}" for number in numbers), f"{os.getloadavg()[0]:.1f}"])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
