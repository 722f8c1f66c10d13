"""What a batch costs as the ledger grows: the real loop and the real DuckDB, without Kafka and Spark.

Each batch is one offset of each of four partitions, staged as one row in a Parquet file, so that nearly all of its cost is the
ledger's: reading it, planning, the commit with its history, reading it back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from bench.contenders.pipelines import pipeline
from bench.numbers import percentile, slope
from bench.stage import Stage, say
from kpipe.batch import Batch, Counts, RangeReport, StagedFile
from kpipe.schema import Columns
from kpipe.source import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe_assets.assembly import Run
from resources.destinations import open_destination
from resources.home import Home
from resources.spark.files import StagingWriter

__all__ = ["measure"]

PARTITIONS = 4
_POINTS = 40


class _Topics:
    """Brokers that have so many offsets in each partition."""

    def __init__(self, offsets: int) -> None:
        topic = TopicId("bench", "bench", "bench")
        state = PartitionState(0, offsets, offsets)
        self._snapshot = TopicSnapshot({PartitionId(topic, number): state for number in range(PARTITIONS)})

    def snapshot(self) -> TopicSnapshot:
        return self._snapshot

    def offsets_at(self, *_: Any) -> Any:
        raise NotImplementedError


class _OneRow:
    """Stages one row for each range."""

    def __init__(self, home: Home) -> None:
        self._staging = home.staging

    def columns(self, _: Batch) -> Columns:
        return Columns.of({"id": "BIGINT"})

    def stage(self, batch: Batch, _: Columns) -> Sequence[RangeReport]:
        reports = []
        for at, step in enumerate(batch.steps):
            staged = self._file(batch) if not at else None
            counts = Counts(messages=1, rows=1, bytes=10) if staged else Counts(messages=1, filtered=1, bytes=10)
            reports.append(RangeReport(step.source, step.range, counts, staged))
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


def measure(stage: Stage, batches: int) -> dict[str, Any]:
    """Commit so many batches; milliseconds of each, as medians over equal stretches, and what a restart costs at the end."""
    home = Home.at(stage.folder("ledger-home"))
    definition = pipeline(stage.brokers, "bench", columns={"id": "BIGINT"}, max_offsets_per_partition=1)
    times = list(_batches(home, definition, batches, batches))
    restart = next(iter(_batches(home, definition, batches + 1, 1)))
    with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
        ranges = connection.execute("SELECT count(*) FROM kpipe_batches").fetchall()[0][0]
    size = (home.data / "kpipe.duckdb").stat().st_size
    stage.settle(home.path)
    if ranges != (batches + 1) * PARTITIONS:
        return {"failed": f"{ranges:,} ranges in the history, not {(batches + 1) * PARTITIONS:,}"}
    stretch = max(1, batches // _POINTS)
    points = [(at + stretch // 2, round(percentile(times[at : at + stretch], 50) * 1000, 3)) for at in range(0, batches, stretch)]
    tenth = max(1, len(times) // 10)
    first, last = percentile(times[:tenth], 50) * 1000, percentile(times[-tenth:], 50) * 1000
    answer = {
        "batches": batches,
        "ranges": ranges,
        "first_tenth_ms": round(first, 2),
        "last_tenth_ms": round(last, 2),
        "growth_ms_per_1000": round(slope(points) * 1000, 3),
        "restart_ms": round(restart * 1000, 1),
        "database_mb": round(size / 1e6, 1),
        "points_ms": points,
    }
    say(f"  ledger: {first:.1f} ms a batch in the first tenth, {last:.1f} ms in the last, of {batches:,} batches")
    return answer


def _batches(home: Home, definition: Any, offsets: int, most: int) -> Any:
    """Seconds of each batch; the first one's are from the start of the run."""
    run = Run(definition, home.make(), _Topics(offsets), _OneRow(home), open_destination(definition, home))
    before = time.monotonic()
    for _ in run.batches(max_batches=most):
        now = time.monotonic()
        yield now - before
        before = now
