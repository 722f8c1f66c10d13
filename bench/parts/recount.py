"""Measure the recount of `kpipe verify`: time, CPU time and memory over a DuckDB table of many rows.

The rows and the ledger's ranges are written by SQL, as a pipeline of four partitions would have written them. The recount runs
in a process of its own, whose largest resident memory is reported.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

from bench.contenders.pipelines import TABLE, pipeline
from bench.parts import ledger
from bench.stage import Stage, say
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["measure"]

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


def _peak_mb() -> int:
    """Return the process's largest resident memory. `ru_maxrss` would count the parent's from before exec (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return round(int(found[1]) * 1024 / 1e6)


def _recount(folder: str) -> dict[str, Any]:
    destination = open_destination(pipeline("localhost:9", "bench", columns={"id": "BIGINT"}), Home.at(folder))
    before_mb, began, cpu = _peak_mb(), time.monotonic(), time.process_time()
    found = destination.recount()
    (table,) = found.tables.values()
    assert not table.entries and not table.duplicates and not table.exchanged, found
    used = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
    counted = {"rows": sum(table.rows.values()), "peak_mb": _peak_mb(), "before_mb": before_mb}
    return {**counted, **{name: round(value, 2) for name, value in used.items()}}


def measure(stage: Stage, rows: int, ranges: int) -> dict[str, Any]:
    """Fill a file with so many rows, in so many ranges of each partition, and recount it."""
    home = Home.at(stage.folder("recount-home")).make()
    _fill(home, rows, ranges)
    command = [sys.executable, "-m", "bench.parts.recount", str(home.path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    stage.settle(home.path)
    run = {"name": "verify", "ranges": ranges * _PARTITIONS, **json.loads(done.stdout)}
    say(f"  {run['rows']:,} rows: {run['seconds']:.2f} s, {run['cpu_s']:.2f} CPU s, {run['peak_mb']} MB")
    return {"runs": [run]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_recount(sys.argv[1])) + "\n")
