"""Measure the cost of a commit as their number grows: real destinations, a thousand commits of one row in each of 3 partitions.

    .venv/bin/python -m bench.studies.commits [COMMITS] [KIND ...]      # for servers: make postgres, make mariadb

Writes results/commits.csv and results/commits.svg: medians of each hundred commits, in wall-clock time and in CPU time of kpipe's
process, without the server, broker or receiver. Files are written beforehand, so only the commit is measured: file verification,
rows, ledger, reading back. Results of kinds that are not measured are kept.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from bench.plot import lines
from resources.dev_broker.broker import LocalBroker
from resources.testing.place import Place, batch
from resources.testing.state import begun, proof
from tests.resources.destinations.kafka_place import KafkaPlace
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.resources.destinations.webhook_place import WebhookPlace
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer

RESULTS = Path(__file__).parents[1] / "results"
WINDOW = 100
_RECEIVER = "import sys; from tests.receiver import Receiver; print(Receiver().url, flush=True); sys.stdin.read()"


class _Webhook(WebhookPlace):
    """A receiver in a separate process, so that kpipe's CPU time does not include it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        DuckDBPlace.__init__(self, folder)
        command = [sys.executable, "-c", _RECEIVER]
        process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout is not None
        self.receiver = SimpleNamespace(url=process.stdout.readline().strip())


def _kafka(folder: Path, stack: ExitStack) -> Place:
    broker = LocalBroker(folder / "broker")
    stack.callback(broker.stop)
    address = broker.start().brokers
    assert address is not None
    return KafkaPlace(folder, address)


KINDS: dict[str, Callable[[Path, ExitStack], Place]] = {
    "Delta": lambda folder, _: DeltaPlace(folder),
    "Iceberg": lambda folder, _: IcebergPlace(folder),
    "Parquet": lambda folder, _: ParquetPlace(folder),
    "DuckDB": lambda folder, _: DuckDBPlace(folder),
    "PostgreSQL": lambda folder, stack: PostgresPlace(folder, stack.enter_context(PostgresServer())),
    "MariaDB": lambda folder, stack: MySQLPlace(folder, stack.enter_context(MariaServer())),
    "Kafka": _kafka,
    "webhook": _Webhook,
}


def measured(place: Place, commits: int) -> Iterator[tuple[int, float, float]]:
    """Return for each window of commits the last commit's number, and the medians of CPU and wall-clock time in ms."""
    destination = begun(place, 3)
    ledger, spent = destination.ledger()[1], []
    for end in range(1, commits + 1):
        commit = batch(place, ledger, {0: end, 1: end, 2: end})
        ledger = ledger.apply(commit.changes)
        began = time.process_time(), time.perf_counter()
        destination.commit(commit)
        spent.append(((time.process_time() - began[0]) * 1e3, (time.perf_counter() - began[1]) * 1e3))
        if end % WINDOW == 0:
            cpu, wall = (median(values) for values in zip(*spent[-WINDOW:], strict=True))
            yield end, cpu, wall
    assert proof(destination).ok


def _known(besides: set[str]) -> list[tuple[str, int, float, float, float]]:
    """Read the earlier results of other kinds."""
    path = RESULTS / "commits.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [
            (row["kind"], int(row["commits"]), *(float(row[n]) for n in ("cpu_ms", "clock_ms", "load")))
            for row in csv.DictReader(file)
        ]
    return [row for row in rows if row[0] not in besides]


def main(arguments: list[str]) -> None:
    """Measure, print, and write the results."""
    commits = int(arguments[0]) if arguments else 1000
    wanted = arguments[1:] or list(KINDS)
    rows: list[tuple[str, int, float, float, float]] = []
    for kind in wanted:
        with tempfile.TemporaryDirectory(prefix="kpipe-bench-") as folder, ExitStack() as stack:
            for end, cpu, wall in measured(KINDS[kind](Path(folder), stack), commits):
                load = os.getloadavg()[0]
                rows.append((kind, end, round(cpu, 1), round(wall, 1), round(load, 1)))
                print(f"{kind:>10}  to {end:5}: CPU {cpu:6.1f} ms, clock {wall:7.1f} ms, load {load:.1f}", flush=True)
    rows += _known(set(wanted))
    rows.sort(key=lambda row: (list(KINDS).index(row[0]), row[1]))
    with (RESULTS / "commits.csv").open("w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([("kind", "commits", "cpu_ms", "clock_ms", "load"), *rows])
    series = {
        kind: [(float(end), cpu) for name, end, cpu, *_ in rows if name == kind] for kind in dict.fromkeys(r[0] for r in rows)
    }
    drawn = lines("CPU time of a commit, as commits become many (median of 100)", "commits", "ms", series)
    (RESULTS / "commits.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
