"""Measure the cost of a batch as the number of partitions grows: the real loop and DuckDB, without Kafka and Spark.

    .venv/bin/python -m bench.studies.many            # 10, 100, 1,000 and 4,000 partitions, five batches each
    .venv/bin/python -m bench.studies.many delta      # the same into a folder of that kind

Each batch is one offset of every partition. Reports CPU time of the driver; growth faster than the partitions is a defect.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.contenders.pipelines import pipeline
from bench.parts import ledger
from kpipe.definition.pipeline import Into
from resources.home import Home

SIZES = (10, 100, 1_000, 4_000)
BATCHES = 5


def main() -> None:
    """Print milliseconds of CPU and of the clock for a batch, at each size."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "duckdb"
    print(f"{'partitions':>10}  {'CPU ms':>8}  {'ms':>8}  {'CPU us a partition':>18}")
    for partitions in SIZES:
        ledger.PARTITIONS = partitions
        with tempfile.TemporaryDirectory(prefix="kpipe-bench-") as folder:
            home = Home.at(Path(folder))
            definition = pipeline("localhost:9", "bench", columns={"id": "BIGINT"}, max_offsets_per_partition=1)
            definition = definition.model_copy(update={"into": Into(type=kind, table="bench")})
            list(ledger._batches(home, definition, 2))
            cpu, began = time.process_time(), time.monotonic()
            list(ledger._batches(home, definition, BATCHES))
            cpu, took = ((now - then) / BATCHES * 1000 for now, then in ((time.process_time(), cpu), (time.monotonic(), began)))
        print(f"{partitions:>10,}  {cpu:>8.1f}  {took:>8.1f}  {cpu / partitions * 1000:>18.0f}", flush=True)


if __name__ == "__main__":
    main()
