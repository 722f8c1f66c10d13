"""Measure the CPU time of a small batch by stage: real brokers, Spark and DuckDB, as `kpipe run --follow` runs them.

    .venv/bin/python -m bench.studies.batch_cost                      # 100 batches of 4,000 tweets in 4 partitions
    .venv/bin/python -m bench.studies.batch_cost --records 20000      # as with an interval of a second at 20,000 records a second

Each batch reads what was written since the last one. Counts CPU time, which other work on the machine changes little:

- driver: Python, librdkafka and DuckDB in this process, by step of the loop (kpipe/ingest/loop.py);
- jvm: Spark's; workers: its Python workers;
- calls: system calls of this process, with `--calls`, which makes the times useless.

Also prints wall-clock milliseconds of each step: medians, for a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from bench.contenders.pipelines import pipeline
from bench.contenders.steady import tails
from bench.topics import COLUMNS
from kpipe.ingest.loop import Ingest
from kpipe_assets.dagster_resources import DestinationResource, KafkaResource, SparkResource
from kpipe_assets.runs.runner import Run
from resources.dev_broker.broker import LocalBroker
from resources.home import Home

_PARTITIONS = 4
_UNCOUNTED = 20
"""First batches: the JVM compiles what it runs often."""


@dataclass
class _Spent:
    """Times of one step over all batches, in seconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


_STEPS: defaultdict[str, _Spent] = defaultdict(_Spent)


@contextmanager
def _timed(step: str) -> Iterator[None]:
    cpu, wall = time.process_time(), time.monotonic()
    yield
    _STEPS[step].cpu.append(time.process_time() - cpu)
    _STEPS[step].wall.append(time.monotonic() - wall)


def _timing(step: str) -> Callable[..., Any]:
    def method(self: Ingest, *args: Any, **named: Any) -> Any:
        with _timed(step):
            return getattr(Ingest, step)(self, *args, **named)

    return method


class _Timed(Ingest):
    """The loop, with the times of its steps."""

    observe, reconcile, plan = _timing("observe"), _timing("reconcile"), _timing("plan")
    stage, check, commit, publish = _timing("stage"), _timing("check"), _timing("commit"), _timing("publish")


class _Others:
    """CPU seconds of Spark's processes."""

    def __init__(self) -> None:
        self._pids: dict[str, list[psutil.Process]] = {"jvm": [], "workers": []}
        for process in psutil.Process().children(recursive=True):
            words = " ".join(process.cmdline())
            kind = "jvm" if process.name() == "java" else "workers" if "python_daemon" in words else ""
            if kind:
                self._pids[kind].append(process)

    def cpu(self) -> dict[str, float]:
        return {kind: sum(t.user + t.system for t in (p.cpu_times() for p in found)) for kind, found in self._pids.items()}


def _produce(brokers: str, topic: str) -> None:
    """Write as many records as each line of stdin asks for, and answer."""
    producer, number, endings = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "compression.type": "lz4"}), 0, tails()
    for line in sys.stdin:
        for _ in range(int(line)):
            value = b'{"id": %d, "t": %.6f, %b' % (number, time.time(), endings[number % 1000])
            producer.produce(topic, value, partition=number % _PARTITIONS)
            number += 1
        assert producer.flush(60) == 0
        print("written", flush=True)


def measure(home: Home, broker: LocalBroker, given: Any) -> None:
    """Print the table."""
    topic, brokers = "cost", str(broker.status().brokers)
    broker.create_topic(topic, _PARTITIONS)
    definition = pipeline(brokers, topic, columns={"id": "BIGINT", "t": "DOUBLE", **COLUMNS}, interval_ms=0)
    home.save(definition)
    spark = SparkResource(home=str(home.path))
    spark.warm()
    writer = subprocess.Popen(
        [sys.executable, "-m", "bench.studies.batch_cost", "--produce", brokers, topic],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdin is not None and writer.stdout is not None
    destination = DestinationResource(home=str(home.path)).open(definition)
    run = Run(home, _Timed(definition, KafkaResource().topics(definition), spark.stager(definition), destination))
    batches, others, found = run.batches(_UNCOUNTED + given.batches, follow=True), None, defaultdict[str, list[float]](list)
    for number in range(_UNCOUNTED + given.batches):
        writer.stdin.write(f"{given.records}\n")
        writer.stdin.flush()
        writer.stdout.readline()
        if number == _UNCOUNTED:
            others = _Others()
            _STEPS.clear()
        before, cpu, wall = others.cpu() if others else {}, time.process_time(), time.monotonic()
        made = next(batches)
        assert made.commit.totals.rows == given.records, made
        for kind, spent in (("driver", time.process_time() - cpu), ("wall", time.monotonic() - wall)):
            found[kind].append(spent)
        after = others.cpu() if others else {}
        for kind in after:
            found[kind].append(after[kind] - before[kind])
    batches.close()  # type: ignore[attr-defined]
    writer.stdin.close()
    writer.wait()
    _show(found)


def _show(found: dict[str, list[float]]) -> None:
    counted = {kind: values[-len(found["jvm"]) :] for kind, values in found.items()}
    total = sum(statistics.mean(values) for kind, values in counted.items() if kind != "wall")
    print(f"{'':>12}  {'CPU ms':>8}  {'median wall ms':>14}")
    for step, spent in _STEPS.items():
        print(f"{step:>12}  {statistics.mean(spent.cpu) * 1000:>8.1f}  {statistics.median(spent.wall) * 1000:>14.1f}")
    for kind in ("driver", "jvm", "workers"):
        print(f"{kind:>12}  {statistics.mean(counted[kind]) * 1000:>8.1f}")
    print(f"{'a batch':>12}  {total * 1000:>8.1f}  {statistics.median(counted['wall']) * 1000:>14.1f}")
    print(f"batches {len(counted['wall'])}, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Measure."""
    if sys.argv[1:2] == ["--produce"]:
        _produce(*sys.argv[2:])
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=4000)
    options.add_argument("--batches", type=int, default=100)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kpipe-cost-") as name:
        broker = LocalBroker(Path(name) / "broker")
        broker.start()
        try:
            measure(Home.at(Path(name) / "home").make(), broker, given)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
