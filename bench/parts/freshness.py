"""Measure freshness, the time from produce to queryable under a steady load, and its cost.

- kpipe: `kpipe run --follow --json`. A batch counts as queryable when its line arrives here. kpipe writes the line after it
  has read the batch back from DuckDB.
- Spark: Structured Streaming to Parquet. A batch counts from the modification time of its entry in the sink's log.

Each contender first gets the same traffic for warm-up, which does not count.
"""

from __future__ import annotations

import itertools
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.child import clean_environment, stop, usage
from bench.contenders import kpipe, spark
from bench.contenders.pipelines import NAME, TABLE, pipeline
from bench.meter import Meter
from bench.stage import Stage, say
from bench.topics import COLUMNS
from resources.home import Home

__all__ = ["measure"]

PARTITIONS = 4
_WARM_SECONDS = 10
_REST_SECONDS = 5.0
"""After the window; its CPU time counts, so that work which a contender puts off counts, too."""
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class _Load:
    """Records a second, and the duration."""

    rate: int
    seconds: int


@dataclass(frozen=True)
class _Follower:
    """A contender at work.

    Attributes:
        pid: its process.
        rows: how many are queryable by now; may lag behind the truth.
        latencies: after it has ended: seconds from produce to queryable, for records produced from a moment on, and
            the moments of the commits that made them so.
    """

    pid: int
    rows: Callable[[], int]
    latencies: Callable[[float], tuple[pa.Table, list[float]]]


def measure(stage: Stage, rate: int, seconds: int, chosen: Sequence[str]) -> dict[str, Any]:
    """Measure kpipe and Spark, each without a pause between batches and with one of a second."""
    load, runs = _Load(rate, seconds), []
    contenders: dict[str, Callable[[str, Path], Any]] = {
        "kpipe interval 0 s": lambda topic, out: _kpipe(stage, topic, out, 0),
        "spark trigger 0 s": lambda topic, out: _spark(stage, topic, out, "0 seconds"),
        "kpipe interval 1 s": lambda topic, out: _kpipe(stage, topic, out, 1000),
        "spark trigger 1 s": lambda topic, out: _spark(stage, topic, out, "1 second"),
    }
    for name, follower in contenders.items():
        if not chosen or any(name.startswith(word) for word in chosen):
            runs.append(_one(stage, name, f"fresh-{uuid.uuid4().hex[:8]}", follower, load))
    return {"rate": rate, "seconds": seconds, "partitions": PARTITIONS, "runs": runs}


def _one(stage: Stage, name: str, topic: str, start: Callable[[str, Path], Any], load: _Load) -> dict[str, Any]:
    out = stage.folder(name)
    stage.broker.create_topic(topic, PARTITIONS)
    try:
        with start(topic, out) as follower:
            warm = _produce(stage, topic, _Load(load.rate, _WARM_SECONDS), 0)["produced"]
            _wait(follower, warm)
            began = time.time()
            with Meter(follower.pid) as meter:
                told = _produce(stage, topic, load, warm)
                _wait(follower, warm + told["produced"])
                time.sleep(max(0.0, began + load.seconds + _REST_SECONDS - time.time()))
                window = time.time() - began
        table, commits = follower.latencies(began)
        figures = _figures(table, [moment for moment in commits if moment >= began])
        if figures["records"] != told["produced"] or figures["distinct"] != told["produced"]:
            problem = f"{figures['records']:,} rows, {figures['distinct']:,} ids of {told['produced']:,}"
            say(f"  {name}: FAILED: {problem}")
            return {"name": name, "failed": problem}
        run = {"name": name, **figures, **usage(meter), "window_s": round(window, 1), "producer": told}
        say(f"  {name:<20} p50 {run['p50_s']:.3f} s  p99 {run['p99_s']:.3f} s  {run['cpu_s']:.1f} CPU s")
        return run
    finally:
        stage.broker.delete_topic(topic)
        stage.settle(out)


def _produce(stage: Stage, topic: str, load: _Load, first: int) -> dict[str, Any]:
    script = Path(__file__).parents[1] / "contenders" / "steady.py"
    numbers = (PARTITIONS, load.rate, load.seconds, first)
    command = [sys.executable, str(script), stage.brokers, topic, *map(str, numbers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=clean_environment())
    return dict(json.loads(done.stdout))


def _wait(follower: _Follower, rows: int) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS
    while follower.rows() < rows:
        if time.monotonic() > deadline:
            return  # what is missing is said when the rows are counted
        time.sleep(0.2)


def _figures(table: pa.Table, commits: Sequence[float]) -> dict[str, Any]:
    with duckdb.connect() as connection:
        connection.register("latencies", table)
        count, distinct, longest, marks = connection.execute(  # type: ignore[misc]
            "SELECT count(*), count(DISTINCT id), max(s), quantile_cont(s, $1) FROM latencies",
            [[at / 100 for at in range(101)]],
        ).fetchone()
    gaps = [later - earlier for earlier, later in itertools.pairwise(commits)]
    return {
        "records": count,
        "distinct": distinct,
        **{f"p{at}_s": round(marks[at], 3) for at in (50, 90, 99)},
        "max_s": round(longest, 3),
        "batches": len(commits),
        "median_gap_s": round(statistics.median(gaps), 3) if gaps else None,
        "percentiles_s": [round(mark, 4) for mark in marks],
    }


@contextmanager
def _kpipe(stage: Stage, topic: str, folder: Path, interval_ms: int) -> Iterator[_Follower]:
    home = Home.at(folder)
    home.save(pipeline(stage.brokers, topic, columns={"id": "BIGINT", "t": "DOUBLE", **COLUMNS}, interval_ms=interval_ms))
    lines: list[tuple[float, dict[str, Any]]] = []

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.time(), json.loads(line)))  # noqa: PERF401 - read by others while it grows

    def rows() -> int:
        return sum(line.get("rows", 0) for _, line in list(lines) if line["event"] == "batch")

    def latencies(since: float) -> tuple[pa.Table, list[float]]:
        found = [(moment, line) for moment, line in lines if line["event"] == "batch" and line["rows"]]
        ranges = [
            {"part": int(part), "first": first, "visible": moment}
            for moment, line in found
            for part, (first, _) in line["ranges"].items()
        ]
        with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
            connection.register("ranges", pa.Table.from_pylist(ranges))
            query = (
                f"SELECT id, visible - t AS s FROM {TABLE} ASOF JOIN ranges"
                " ON _kafka_partition = part AND _kafka_offset >= first WHERE t >= $1"
            )
            return connection.sql(query, params=[since]).to_arrow_table(), [moment for moment, _ in found]

    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [str(kpipe.COMMAND), "run", NAME, "--follow", "--json"],
            stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            env=clean_environment(KPIPE_HOME=str(folder)),
        )  # fmt: skip
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield _Follower(process.pid, rows, latencies)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        listener.join()
    finally:
        stop(process)


@contextmanager
def _spark(stage: Stage, topic: str, folder: Path, trigger: str) -> Iterator[_Follower]:
    entries: dict[str, float] = {}
    counts: dict[str, int] = {}

    def look() -> dict[str, float]:
        """Return data files by commit time. Every tenth entry of the log repeats those before it."""
        log = (folder / "table" / "_spark_metadata").glob("[0-9]*")
        for entry in sorted(log, key=lambda file: file.stat().st_mtime_ns):
            for line in entry.read_text().splitlines()[1:]:
                entries.setdefault(json.loads(line)["path"].removeprefix("file://"), entry.stat().st_mtime_ns / 1e9)
        return entries

    def rows() -> int:
        for file in look():
            if file not in counts:
                counts[file] = pq.read_metadata(file).num_rows
        return sum(counts.values())

    def latencies(since: float) -> tuple[pa.Table, list[float]]:
        files = look()
        with duckdb.connect() as connection:
            connection.register("files", pa.table({"file": list(files), "visible": list(files.values())}))
            query = (
                "SELECT id, visible - t AS s FROM read_parquet($1, filename = true) JOIN files ON filename = file WHERE t >= $2"
            )
            return connection.sql(query, params=[list(files), since]).to_arrow_table(), sorted(set(files.values()))

    with spark.server(stage.peers, folder.with_name(folder.name + "-session"), delta=False) as child:
        child.ask("follow", brokers=stage.brokers, topic=topic, out=str(folder), trigger=trigger)
        yield _Follower(child.process.pid, rows, latencies)
        child.ask("unfollow", out=str(folder))
