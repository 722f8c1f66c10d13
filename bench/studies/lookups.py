"""Measure the cost of a lookup: `python -m bench.studies.lookups [--records N] [--rows N]`.

Compares records through a task with a lookup of 100,000 rows and without one; and measures sending it to Spark's workers. CPU
time is the minimum of several runs, which other load on the machine affects least. Without Kafka: records are in memory, and
pass the same decoder, expressions and files as in a task.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.home import Home
from resources.kafka import replay_reader
from resources.kafka.range_reader import BLOCK_RECORDS
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec

SOURCE = PartitionId(TopicId("c", "t", "orders"), 0)
KEYS = {"number": "n(k).name", "text": "t(code).name", "computed": "n(id % {rows}).name"}
_PIECE = 200_000  # records of a task


def _records(count: int, rows: int) -> RecordBlock:
    items = (
        {"id": n, "k": n * 7919 % rows, "code": f"key-{n * 7919 % rows}", "text": f"record {n} with text", "lang": "en"}
        for n in range(count)
    )
    values = [json.dumps(item).encode() for item in items]
    return RecordBlock.of(range(count), [0] * count, values)


def _job(folder: Path, rows: int, expression: str | None) -> JobSpec:
    lookups = {"n": {"path": str(folder / "n.parquet"), "key": "k"}, "t": {"path": str(folder / "t.parquet"), "key": "k"}}
    pipeline = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "orders"}, "into": {"table": "t"}, "lookups": lookups,
            # The same work without a lookup: an expression that makes such a text.
            "set": {"name": (expression or "'name ' || k").format(rows=rows)},
        }
    )  # fmt: skip
    kinds = Columns.of(
        {"id": "BIGINT", "k": "BIGINT", "code": "VARCHAR", "text": "VARCHAR", "lang": "VARCHAR", "name": "VARCHAR"}
    )
    return LocalStager(pipeline, Home(folder / "home").make())._shaped(Batch("b", "p", ()), [kinds], None)


def _cpu(job: JobSpec, held: RecordBlock) -> float:
    """Return the CPU seconds for all records."""
    from dataclasses import replace

    replay_reader._BLOCK_RECORDS = BLOCK_RECORDS  # as Kafka's reader gives them
    count = len(held)
    parts = [held.pick(list(range(at, min(count, at + _PIECE)))) for at in range(0, count, _PIECE)]
    began = time.process_time()
    for part in parts:
        offsets = part.offsets
        step = Step(Lane(SOURCE, offsets[0], offsets[0]), offsets[-1] + 1)
        range_task.stage(replace(job, held={SOURCE: part}), Piece(SOURCE, step.range))
    return time.process_time() - began


def _sent(folder: Path, rows: int, batches: int) -> dict[str, Any]:
    """Return by batch the seconds until both of Spark's workers used a lookup, and how often each loaded it."""
    from resources.duckdb_engine.expression_checks import checked_selection
    from resources.lookups.broadcasts import Broadcasts
    from resources.lookups.loader import Lookups
    from resources.spark.jvm.session import start

    pipeline = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
            "lookups": {"t": {"path": str(folder / "t.parquet"), "key": "k"}}, "set": {"x": "t(a).name"},
        }
    )  # fmt: skip
    context = start(folder / "home")
    lookups, broadcasts = Lookups(pipeline, checked_selection(pipeline)), Broadcasts(context)
    seconds, loaded = [], set()
    for batch in range(batches):
        shipped = broadcasts.of(lookups.of_batch(str(batch)))

        def task(items: Iterable[int], shipped: Any = shipped) -> Iterator[tuple[int, int]]:
            list(items)
            held = shipped["t"].value
            held.find(pa.table({"k": ["key-7"]}))
            yield os.getpid(), id(held)

        began = time.monotonic()
        loaded |= set(context.parallelize(range(2), 2).mapPartitions(task).collect())
        seconds.append(round(time.monotonic() - began, 3))
    context.stop()
    return {
        "rows": rows,
        "batches": batches,
        "seconds": seconds,
        "workers": len({pid for pid, _ in loaded}),
        "loads": len(loaded),
    }


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(prog="python -m bench.studies.lookups", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kpipe-bench-") as temporary:
        folder, rows = Path(temporary), options.rows
        names = pa.array([f"name {n}" for n in range(rows)])
        pq.write_table(pa.table({"k": pa.array(range(rows)), "name": names}), folder / "n.parquet")
        pq.write_table(pa.table({"k": pa.array([f"key-{n}" for n in range(rows)]), "name": names}), folder / "t.parquet")
        held = _records(options.records, rows)
        jobs = {name: _job(folder, rows, expression) for name, expression in {"none": None, **KEYS}.items()}
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(options.repeats):
            for name, job in jobs.items():  # in turns: what disturbs one disturbs all
                times[name].append(_cpu(job, held))
        without = min(times["none"])
        for name, took in ((name, min(found)) for name, found in times.items()):
            line = {
                "key": name, "rows": rows, "records": options.records,
                "cpu_us_per_record": round(took / options.records * 1e6, 3),
                "records_s_per_core": round(options.records / took), "ratio": round(without / took, 3),
            }  # fmt: skip
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.write(json.dumps(_sent(folder, rows, 6)) + "\n")


if __name__ == "__main__":
    main()
