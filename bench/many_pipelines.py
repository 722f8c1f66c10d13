"""Measure `kpipe serve` with many active pipelines: memory, CPU, time from produce to queryable, and the cost of an idle one.

    .venv/bin/python -m bench.many_pipelines                       # 100 pipelines, 10 records/s each, 60 s
    .venv/bin/python -m bench.many_pipelines --pipelines 20 --interval 5000
    .venv/bin/python -m bench.many_pipelines --one-file            # all tables in one DuckDB file
    .venv/bin/python -m bench.many_pipelines --postgres            # into a PostgreSQL server, a schema for each

Each pipeline reads a topic of its own with one partition into a DuckDB file of its own. The figures are those of the service,
without the broker and PostgreSQL. A batch counts as queryable when its line
of `kpipe serve --json` arrives here: kpipe writes it after it has read the batch back. Idle cost: all pipelines have read
everything; CPU of the service in that time, and memory, divided by their number, beside a service of one pipeline.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg
from confluent_kafka import Producer

from bench.child import clean_environment, stop
from bench.contenders.postgres import Postgres
from bench.meter import Meter
from bench.numbers import percentile
from bench.stage import say
from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source
from kpipe_assets.sensors.sensor_state import SensorStates
from resources.dev_broker.broker import LocalBroker
from resources.home import Home

_SETTINGS = {"linger.ms": 5, "acks": "1", "queue.buffering.max.messages": 1_000_000}
_DRAIN_S = 300.0


class Watched:
    """A running `kpipe serve --json`, and when its lines arrived."""

    def __init__(self, home: Home, log: Path) -> None:
        self.visible: list[tuple[float, str, int, int]] = []
        self.reached: dict[str, int] = {}
        self._log = log
        command = [sys.executable, "-m", "kpipe_assets.cli", "serve", "--port", "0", "--json"]
        environ = clean_environment(KPIPE_HOME=str(home.path), **Postgres.environment)
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now, batch = time.time(), json.loads(line)
            for first, end in batch["ranges"].values():
                self.visible.append((now, batch["pipeline"], first, end))
                self.reached[batch["pipeline"]] = end

    def dump(self) -> None:
        """Print the log of the service, with the stack of every thread."""
        for process in psutil.Process(self.process.pid).children():
            process.send_signal(signal.SIGUSR1)
        time.sleep(2)
        sys.stderr.write(self._log.read_text())

    def wait(self, names: list[str], end: int) -> float:
        """Wait until every pipeline has read up to an offset; return how many seconds that took."""
        began = time.monotonic()
        while any(self.reached.get(name, 0) < end for name in names):
            if time.monotonic() - began > _DRAIN_S:
                self.dump()
                raise SystemExit(f"not read within {_DRAIN_S:g} s: {[n for n in names if self.reached.get(n, 0) < end]}")
            time.sleep(0.2)
        return time.monotonic() - began


def _roles(root: int) -> Iterator[tuple[str, psutil.Process]]:
    for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            role = "jvm" if "java" in process.name() else "driver" if "service.process" in line else "workers"
            yield "supervisor" if process.pid == root else role, process


def pss_mb(root: int) -> dict[str, float]:
    """Return the proportional memory of a process tree in MB by role: pages that processes share count once."""
    found: Counter[str] = Counter()
    for role, process in _roles(root):
        with suppress(psutil.NoSuchProcess):
            found[role] += process.memory_full_info().pss
    return {role: round(size / 1e6) for role, size in [*found.items(), ("all", found.total())]}


def cpu_s(root: int) -> Counter[str]:
    """Return the CPU seconds of a process tree by role."""
    found: Counter[str] = Counter()
    for role, process in _roles(root):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[role] += times.user + times.system + times.children_user + times.children_system
    return found


def produce(producer: Producer, names: list[str], first: int, count: int) -> None:
    """Produce one record for each offset and pipeline."""
    for number in range(first, first + count):
        for name in names:
            producer.produce(name, b'{"id": %d, "t": %.6f}' % (number, time.time()), partition=0)
        producer.poll(0)


def load(producer: Producer, names: list[str], first: int, rate: int, seconds: float) -> int:
    """Produce at a steady rate, and return the next id."""
    began, done, total = time.time(), 0, int(rate * seconds)
    while done < total:
        due = min(total, int((time.time() - began) * rate) + 1)
        produce(producer, names, first + done, due - done)
        done = due
        time.sleep(1 / rate)
    producer.flush()
    return first + total


def rows_of(name: str, into: dict[str, Any], since: int) -> list[tuple[int, float]]:
    """Return id and time of production of all rows of a table from an id on."""
    statement = f"SELECT id, t FROM {name} WHERE id >= {since} ORDER BY id"
    if "type" not in into:
        with duckdb.connect(into["database"], read_only=True) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(into["database"], password=next(iter(Postgres.environment.values()))) as server:
        return server.execute(statement.encode()).fetchall()


def latencies(watched: Watched, tables: dict[str, dict[str, Any]], since: int) -> list[float]:
    """Return the seconds from produce to queryable of all records from an id on."""
    found: list[float] = []
    for name, into in tables.items():
        rows = rows_of(name, into, since)
        ranges = [(first, end, moment) for moment, pipeline, first, end in watched.visible if pipeline == name]
        for number, produced in rows:  # ids are offsets
            found.append(next(moment for first, end, moment in ranges if first <= number < end) - produced)
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one number of pipelines."""
    folder = Path(tempfile.mkdtemp(prefix="kpipe-many-"))
    home, broker = Home.at(folder / "home").make(), LocalBroker(folder / "broker")
    broker.start()
    brokers = str(broker.status().brokers)
    producer = Producer({"bootstrap.servers": brokers, **_SETTINGS})
    names = [f"p{at:03}" for at in range(arguments.pipelines)]
    watched: Watched | None = None
    server = Postgres(folder / "postgres").__enter__() if arguments.postgres else None
    files = {name: home.data / ("all.duckdb" if arguments.one_file else f"{name}.duckdb") for name in names}
    tables = {name: server.into() if server is not None else {"database": str(files[name])} for name in names}
    try:
        with SensorStates(home) as switches:
            for name in names:
                broker.create_topic(name, 1)
                home.save(
                    Pipeline(
                        name=name, source=Source(brokers=brokers, topic=name), columns={"id": "BIGINT", "t": "DOUBLE"},
                        batch=BatchLimits(interval_ms=arguments.interval), into=Into(table=name, **tables[name]),
                    )
                )  # fmt: skip
                switches.turn(name, on=True)
        produce(producer, names, 0, 1)
        producer.flush()
        watched = Watched(home, folder / "serve.log")
        began = time.monotonic()
        watched.wait(names, 1)
        started = time.monotonic() - began
        say(f"started in {started:.0f} s")
        first = load(producer, names, 1, arguments.rate, arguments.warm)
        watched.wait(names, first)
        before, load_before, spent = len(watched.visible), os.getloadavg()[0], cpu_s(watched.process.pid)
        with Meter(watched.process.pid, period_s=1.0) as busy:
            began = time.monotonic()
            end = load(producer, names, first, arguments.rate, arguments.seconds)
            drained = watched.wait(names, end)
            took = time.monotonic() - began
        memory, spent = pss_mb(watched.process.pid), cpu_s(watched.process.pid) - spent
        batches = len(watched.visible) - before
        say(f"busy: {busy.cpu_s / took:.2f} cores, {memory}")
        time.sleep(5)
        with Meter(watched.process.pid, period_s=1.0) as idle:
            time.sleep(arguments.idle)
        idle_memory = pss_mb(watched.process.pid)
        driver = next(c for c in psutil.Process(watched.process.pid).children() if "service.process" in " ".join(c.cmdline()))
        threads = driver.num_threads()
        watched.process.send_signal(signal.SIGTERM)
        watched.process.wait(300)
        seconds = sorted(latencies(watched, tables, first))
        assert len(seconds) == arguments.pipelines * (end - first), "records are missing, or were loaded twice"
        return {
            "pipelines": arguments.pipelines,
            "interval_ms": arguments.interval,
            "one_file": arguments.one_file,
            "postgres": arguments.postgres,
            "rate": arguments.rate,
            "started_s": round(started),
            "records": len(seconds),
            "batches": batches,
            "p50_s": round(percentile(seconds, 50), 2),
            "p99_s": round(percentile(seconds, 99), 2),
            "max_s": round(seconds[-1], 2),
            "drained_s": round(drained, 1),
            "cores": round(busy.cpu_s / took, 2),
            "cpu_ms_a_batch": round(busy.cpu_s / max(1, batches) * 1000),
            "cpu_ms_a_batch_by_role": {role: round(used / max(1, batches) * 1000) for role, used in spent.items()},
            "pss_mb": memory,
            "rss_peak_mb": round(busy.peak_mb),
            "idle_cores": round(idle.cpu_s / arguments.idle, 3),
            "idle_pss_mb": idle_memory,
            "threads": threads,
            "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        }
    finally:
        if watched is not None:
            stop(watched.process)
        broker.stop()
        if server is not None:
            server.__exit__()
        if arguments.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=100)
    parser.add_argument("--rate", type=int, default=10, help="records a second of each pipeline")
    parser.add_argument("--interval", type=int, default=5000, help="batch.interval_ms")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=float, default=15)
    parser.add_argument("--idle", type=float, default=30)
    parser.add_argument("--one-file", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    sys.stdout.write(json.dumps(measure(parser.parse_args())) + "\n")


if __name__ == "__main__":
    main()
