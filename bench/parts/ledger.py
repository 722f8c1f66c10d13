"""Measure the cost of a batch as the ledger grows: the real loop and the real DuckDB, without Kafka and Spark.

Each batch is one offset of each of four partitions, staged as one row in a Parquet file. So nearly all of its cost is the
ledger's: reading it, planning, the commit with its history, reading it back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from bench.contenders.pipelines import pipeline
from bench.numbers import percentile, slope
from bench.stage import Stage, say
from kpipe.batch.batch import Batch, Counts, RangeReport, StagedFile, TableReport
from kpipe.column_growth import Closed
from kpipe.ingest.loop import Ingest
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe_assets.runs.runner import Run
from resources.destinations import open_destination
from resources.home import Home
from resources.spark.staging.staged_files import StagingWriter

__all__ = ["OneRow", "measure"]

PARTITIONS = 4
_TIMED = 60
"""Batches that are timed at each size."""


class _Topics:
    """Brokers with so many offsets in each partition."""

    def __init__(self, offsets: int) -> None:
        topic = TopicId("bench", "bench", "bench")
        state = PartitionState(0, offsets, offsets)
        self._snapshot = TopicSnapshot({PartitionId(topic, number): state for number in range(PARTITIONS)})

    def snapshot(self) -> TopicSnapshot:
        return self._snapshot

    def present(self) -> Any:
        return self._snapshot.partitions

    def offsets_at(self, *_: Any) -> Any:
        raise NotImplementedError


class OneRow:
    """Stager of one row for each range."""

    version = "1"

    def __init__(self, home: Home) -> None:
        self._staging = home.staging

    def columns(self, _: Batch, table: int) -> Columns:
        return Columns.of({"id": "BIGINT"})

    def give_up(self) -> None:
        """Do nothing: the work is done already."""

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        reports = []
        for at, step in enumerate(batch.steps):
            staged = self._file(batch) if not at else None
            records = Counts(messages=1, filtered=0 if staged else 1, bytes=10)
            table = TableReport(Counts(rows=1), (staged,)) if staged else TableReport()
            reports.append(RangeReport(step.source, step.range, records, (table,)))
        return reports

    def _file(self, batch: Batch) -> StagedFile | None:
        writer = StagingWriter(self._staging / batch.id)
        start = batch.steps[0].range.start
        columns = {
            "id": pa.array([start], pa.int64()),
            "_kafka_partition": pa.array([0], pa.int32()),
            "_kafka_offset": pa.array([start], pa.int64()),
            "_kafka_timestamp": pa.array([0], pa.timestamp("us", "UTC")),
        }
        writer.write(pa.table(columns))
        return writer.finish()


def measure(stage: Stage, batches: int, every: bool = False) -> dict[str, Any]:
    """Milliseconds of a batch at several sizes of the ledger, and what a restart costs at the end.

    Args:
        stage: where.
        batches: that the ledger holds in the end.
        every: whether each of them is committed; otherwise most of the history is copied from the first ones, and only
            the batches that are timed are real: 10,000 take many minutes.
    """
    home = Home.at(stage.folder("ledger-home"))
    definition = pipeline(stage.brokers, "bench", columns={"id": "BIGINT"}, max_offsets_per_partition=1)
    committed, points = 0, []
    for size in _sizes(batches):
        if every:
            committed += sum(1 for _ in _batches(home, definition, max(0, size - committed)))
        else:
            _copy(home, size)
        point = {"batches": size, **_point(list(_batches(home, definition, _TIMED)))}
        committed += _TIMED
        points.append(point)
        say(
            f"  ledger of {size:>6,} batches: {point['ms']:6.1f} ms a batch ({point['cpu_ms']:.1f} ms of CPU),"
            f" {point['start_ms']:6.1f} ms for a run's first"
        )
    size_mb = (home.data / "kpipe.duckdb").stat().st_size / 1e6
    stage.settle(home.path)
    growth = {name: slope([(point["batches"], point[name]) for point in points]) * 1000 for name in ("ms", "cpu_ms")}
    return {
        "batches": batches,
        "every_batch_real": every,
        "points": points,
        "growth_ms_per_1000": round(growth["ms"], 3),
        "growth_cpu_ms_per_1000": round(growth["cpu_ms"], 3),
        "database_mb": round(size_mb, 1),
    }


def _sizes(batches: int) -> list[int]:
    """Return 0, 100, 300, 1,000, 3,000 ... and the last size."""
    steps = [0, *(base * 10**power for power in range(2, 9) for base in (1, 3))]
    return [*(step for step in steps if step < batches), batches]


def _point(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Summarize batches; the first is separate, as it also starts the run."""
    walls, cpus = [wall * 1000 for wall, _ in times[1:]], [cpu * 1000 for _, cpu in times[1:]]
    return {
        "ms": round(percentile(walls, 50), 2),
        "p95_ms": round(percentile(walls, 95), 2),
        "cpu_ms": round(percentile(cpus, 50), 2),
        "start_ms": round(times[0][0] * 1000, 1),
    }


def _batches(home: Home, definition: Any, most: int) -> Iterator[tuple[float, float]]:
    """Return seconds and CPU seconds of each batch; the first one's include the start of the run."""
    if not most:
        return
    run = Run(home.make(), Ingest(definition, _Topics(1 << 40), OneRow(home), open_destination(definition, home)))
    wall, cpu = time.monotonic(), time.process_time()
    for _ in run.batches(max_batches=most):
        now, used = time.monotonic(), time.process_time()
        yield now - wall, used - cpu
        wall, cpu = now, used


def _copy(home: Home, wanted: int) -> None:
    """Extend the history to that many batches, with copies of the first ones under other ids and numbers."""
    file = home.data / "kpipe.duckdb"
    if not wanted or not file.exists():
        return
    with duckdb.connect(str(file)) as connection:

        def count() -> int:
            return int(connection.execute("SELECT count(*) FROM kpipe_commits WHERE kind = 'batch'").fetchall()[0][0])

        first = "SELECT batch_id FROM kpipe_commits WHERE kind = 'batch' AND seq > 0 ORDER BY seq LIMIT $3"
        there, turn = count(), 0
        while there < wanted:
            turn += 1
            few = min(_TIMED, wanted - there)
            # Below zero: the numbers of the commits to come stay free.
            for table in ("kpipe_batches", "kpipe_commits"):
                connection.execute(
                    f"INSERT INTO {table} SELECT * REPLACE (md5(batch_id || $1) AS batch_id, seq - $2 AS seq) FROM {table}"
                    f" WHERE batch_id IN ({first})",
                    [f"-{wanted}-{turn}", (wanted * 1000 + turn) * 1000, few],
                )
            there = count()
