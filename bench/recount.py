"""Measure the recount of `kpipe verify`: time, CPU time and memory over a DuckDB table of many rows.

    .venv/bin/python -m bench.recount --rows 10000000
    .venv/bin/python -m bench.recount --rows 100000000 --ranges 4000

The rows and the ledger's ranges are written by SQL, as a pipeline of four partitions would have written them. The recount runs
in a process of its own, whose largest resident memory is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from bench import ledger
from bench.contenders.pipelines import TABLE, pipeline
from resources.destinations import open_destination
from resources.home import Home

_PARTITIONS = 4


def _fill(home: Home, rows: int, ranges: int) -> None:
    """Write rows of four partitions, and as many ranges for each of them, after two real commits."""
    definition = pipeline("localhost:9", "bench", columns={"id": "BIGINT"}, max_offsets_per_partition=1)
    list(ledger._batches(home, definition, 2))
    each = rows // _PARTITIONS
    span = -(-each // ranges)
    with duckdb.connect(str(home.data / "kpipe.duckdb")) as connection:
        connection.execute(f"DELETE FROM {TABLE}")
        connection.execute(
            f"INSERT INTO {TABLE} (id, _kafka_partition, _kafka_offset, _kafka_timestamp)"
            f" SELECT i, (i // {span}) % {_PARTITIONS}, i // ({span} * {_PARTITIONS}) * {span} + i % {span}, now()"
            f" FROM range({span * ranges * _PARTITIONS}) AS r(i)"
        )
        connection.execute(
            "CREATE TEMP TABLE one AS SELECT * FROM kpipe_batches WHERE batch_source_partition_id = 0 LIMIT 1;"
            "DELETE FROM kpipe_batches;"
            "INSERT INTO kpipe_batches SELECT o.* REPLACE (md5((r.i)::VARCHAR) AS batch_id, r.i + 2 AS seq, p.i AS"
            " batch_source_partition_id,"
            f" r.i * {span} AS batch_earliest_offset, r.i * {span} + {span} AS batch_latest_offset,"
            f' {span} AS "rows", 0 AS filtered, {span} AS messages)'
            f" FROM one AS o, range({ranges}) AS r(i), range({_PARTITIONS}) AS p(i)"
        )


def _recount(folder: str) -> None:
    home = Home.at(folder)
    destination = open_destination(pipeline("localhost:9", "bench", columns={"id": "BIGINT"}), home)
    base, began, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic(), time.process_time()
    found = destination.recount()
    (table,) = found.tables.values()
    assert not table.entries and not table.duplicates and not table.exchanged, found
    used = {"s": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {"rows": sum(table.rows.values()), "peak_mb": peak // 1000, "before_mb": base // 1000, "load": os.getloadavg()[0]}
    print(json.dumps({**facts, **{name: round(value, 2) for name, value in used.items()}}))


def main() -> None:
    """Fill a file, and recount it."""
    if sys.argv[1:2] == ["--recount"]:
        _recount(sys.argv[2])
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--ranges", type=int, default=1000, help="of each partition")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kpipe-recount-") as name:
        home = Home.at(Path(name)).make()
        _fill(home, given.rows, given.ranges)
        subprocess.run([sys.executable, "-m", "bench.recount", "--recount", name], check=True)


if __name__ == "__main__":
    main()
