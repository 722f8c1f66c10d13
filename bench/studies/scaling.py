"""Compute the cost of a batch for many workers, partitions and tables, by formulae over measured constants.

    .venv/bin/python -m bench.studies.scaling         # the tables of docs/explanation/scaling.md

Every constant names its measurement. bench/studies/simulation.py simulates the same batches event by event, and
tests/bench/studies/test_scaling.py compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from resources.spark.driver.scheduling import SMALLEST_PIECE

__all__ = [
    "DESTINATIONS",
    "SPARK",
    "Cluster",
    "Commit",
    "Load",
    "Tasks",
    "commit_s",
    "extract_s",
    "period_s",
    "records_s",
    "useful_cores",
]


@dataclass(frozen=True)
class Tasks:
    """What the workers' side costs.

    Attributes:
        record_s: seconds of one core for a record: reading, decoding, staging.
        range_s: seconds of one core for a range, beside its records: assigning, seeking, its end.
        wave_s: seconds from a batch to its tasks and back, with tasks that do nothing.
        task_s: seconds of the driver for each task.
        ask_s: seconds of the driver for each range before there are tasks: what the brokers say of it, twice.
    """

    record_s: float
    range_s: float
    wave_s: float
    task_s: float
    ask_s: float


@dataclass(frozen=True)
class Commit:
    """What the driver's side costs.

    Attributes:
        batch_s: seconds of a batch: reading the ledger, planning, the transaction, reading it back.
        range_s: seconds of each range.
        record_s: seconds of each row that passes the driver; 0 where staged files become the table's own.
    """

    batch_s: float
    range_s: float
    record_s: float


#: Tweets of 286 bytes, seven columns. record_s: task seconds of `kpipe staged`, bench/results/throughput.json, 3.70 s for two
#: million. range_s: 64 partitions against 4 in bench/results/shapes.json, 0.57 s more on two cores for 60 ranges. wave_s:
#: docs/adr/0014. task_s: CPU of the JVM for each of 2,000 empty tasks, driver and executor in one process, so an upper bound.
#: ask_s: bench.parts.partitions, CPU of the driver at 1,000 partitions against 10, without what bench.studies.many counts.
SPARK = Tasks(record_s=1.85e-6, range_s=0.019, wave_s=0.021, task_s=0.0035, ask_s=0.00035)

#: batch_s and range_s: bench.studies.many. record_s: DuckDB, `kpipe duckdb` against `kpipe staged` in
#: bench/results/throughput.json; PostgreSQL, docs/adr/0015, binary: the server's share, which is the larger one.
DESTINATIONS = {
    "duckdb": Commit(batch_s=0.064, range_s=0.0002, record_s=0.79e-6),
    "postgres": Commit(batch_s=0.064, range_s=0.0002, record_s=1.9e-6),
    "delta": Commit(batch_s=0.024, range_s=0.00057, record_s=0.0),
    "parquet": Commit(batch_s=0.022, range_s=0.00037, record_s=0.0),
}


@dataclass(frozen=True)
class Cluster:
    """Workers, and cores of each."""

    workers: int
    cores: int = 4

    @property
    def slots(self) -> int:
        """Tasks at once."""
        return self.workers * self.cores


@dataclass(frozen=True)
class Load:
    """A batch.

    Attributes:
        partitions: ranges, one of each partition.
        records: of all of them together.
        tables: that rows of each record go to.
    """

    partitions: int
    records: int
    tables: int = 1


def extract_s(load: Load, cluster: Cluster, tasks: Tasks = SPARK) -> float:
    """Seconds from the plan to the last report: the driver sends tasks one after the other, then all cores work.

    Ranges are shared out so that every core has the same number of offsets (`share_out` in resources/spark/driver/scheduling.py).
    """
    share = max(SMALLEST_PIECE, load.records / cluster.slots)
    offsets = load.records / load.partitions
    pieces = load.partitions * max(1, min(math.ceil(offsets / share), int(offsets // SMALLEST_PIECE)))
    sent = min(cluster.slots, pieces)
    each = math.ceil(pieces / sent) * tasks.range_s + load.records / sent * tasks.record_s * load.tables
    return tasks.wave_s + load.partitions * tasks.ask_s + sent * tasks.task_s + each


def commit_s(load: Load, commit: Commit) -> float:
    """Seconds of the commit, on the driver."""
    return commit.batch_s + load.partitions * commit.range_s + load.records * load.tables * commit.record_s


def period_s(load: Load, cluster: Cluster, commit: Commit, tasks: Tasks = SPARK) -> float:
    """Seconds from one commit to the next: the next batch is extracted while one commits, so the longer of the two counts."""
    return max(extract_s(load, cluster, tasks), commit_s(load, commit))


def records_s(load: Load, cluster: Cluster, commit: Commit, tasks: Tasks = SPARK) -> float:
    """Records a second while there is more to read."""
    return load.records / period_s(load, cluster, commit, tasks)


def best_tasks(load: Load, tasks: Tasks = SPARK) -> int:
    """Tasks with which a batch is extracted soonest: more of them cost the driver more than they save the cores.

    The smallest of n * task_s + work / n.
    """
    work = load.partitions * tasks.range_s + load.records * tasks.record_s * load.tables
    return max(1, round(math.sqrt(work / tasks.task_s)))


def useful_cores(load: Load, commit: Commit, tasks: Tasks = SPARK) -> float:
    """Cores beyond which the commit takes longer than the work: more of them wait. Without the driver's sending of tasks."""
    work = load.partitions * tasks.range_s + load.records * tasks.record_s * load.tables
    return work / max(commit_s(load, commit) - tasks.wave_s - load.partitions * tasks.ask_s, 1e-9)


def tables() -> str:
    """The tables of docs/explanation/scaling.md."""
    lines = ["| destination | partitions | records a batch | commit s | batches/s at most | records/s at most | cores of use |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, commit in DESTINATIONS.items():
        for partitions, records in ((12, 100_000), (100, 1_000_000), (1_000, 10_000_000), (10_000, 100_000_000)):
            load = Load(partitions, records)
            took = commit_s(load, commit)
            lines.append(
                f"| {name} | {partitions:,} | {records:,} | {took:.2f} | {1 / took:.3g} | {records / took / 1e6:.2f} million |"
                f" {useful_cores(load, commit):,.0f} |"
            )
    lines += ["", "| workers of 4 cores | duckdb | delta | parquet |", "|---|---|---|---|"]
    for workers in (1, 3, 10, 30, 100, 300, 1_000):
        load = Load(10_000, 100_000_000)
        rates = [records_s(load, Cluster(workers), DESTINATIONS[name]) / 1e6 for name in ("duckdb", "delta", "parquet")]
        lines.append(f"| {workers:,} | " + " | ".join(f"{rate:.1f} million" for rate in rates) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
