"""Measure Dagster's cost of a batch as the number of partitions grows: real runs in SQLite, without Kafka and Spark.

    .venv/bin/python -m bench.parts.partitions_dagster 10,100,1000               # a line of JSON for each
    .venv/bin/python -m bench.parts.partitions_dagster 100 --one-by-one          # Dagster's default

Each batch is one offset of every partition, into a real DuckDB. Reports seconds, and CPU seconds of the process, for a whole run
of one batch, from its request to its last event; and CPU seconds to publish a batch that was committed without Dagster, as a
sensor does. `--one-by-one`: each event is stored in its own transactions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from bench.contenders.pipelines import pipeline
from bench.parts import ledger
from bench.stage import say
from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_asset, table_keys
from kpipe_assets.assets.topic_asset import topic_key, topic_spec
from kpipe_assets.dagster_server.instance import open_instance
from kpipe_assets.publishing.publisher import Publisher
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["measure"]


class _Edges:
    """Kafka, Spark and destinations of a run: brokers with one more offset each time, and rows without Spark."""

    def __init__(self, home: Home) -> None:
        self._home, self.offsets = home, 1

    def topics(self, _: Pipeline) -> Any:
        return ledger._Topics(self.offsets)

    def stager(self, _: Pipeline) -> Any:
        return ledger.OneRow(self._home)

    def warm(self) -> None:
        """Do nothing: there is nothing to start."""

    def open(self, definition: Pipeline) -> Any:
        return open_destination(definition, self._home)


def _instance(folder: str, one_by_one: bool) -> dg.DagsterInstance:
    if one_by_one:
        return dg.DagsterInstance.local_temp(folder)
    os.environ["DAGSTER_EVENT_BATCH_SIZE"] = "1000"
    storage = {"module": "kpipe_assets.dagster_server.storage", "class": "Storage", "config": {"base_dir": folder}}
    Path(folder, "dagster.yaml").write_text(json.dumps({"storage": {"custom": storage}}), encoding="utf-8")
    return open_instance(folder)


def _row(partitions: int, one_by_one: bool) -> dict[str, Any]:
    """Measure a row of the results."""
    ledger.PARTITIONS = partitions
    with tempfile.TemporaryDirectory(prefix="kpipe-many-") as name, _instance(name, one_by_one) as instance:
        home = Home.at(Path(name) / "home").make()
        definition = pipeline("localhost:9", "bench", columns={"id": "BIGINT"}, max_offsets_per_partition=1)
        edges = _Edges(home)
        instance.add_dynamic_partitions("kafka/bench", [str(number) for number in range(partitions)])
        assets = [topic_spec(definition), table_asset(definition, home, "1")]
        chosen = {"dagster/asset_partition_range_start": "0", "dagster/asset_partition_range_end": str(partitions - 1)}

        def run() -> None:
            edges.offsets += 1
            done = dg.materialize(
                assets, resources=dict.fromkeys(("kafka", "spark", "destinations"), edges), instance=instance, tags=chosen
            )
            assert done.success

        def commit() -> None:
            list(ledger._batches(home, definition, 1))

        destination = open_destination(definition, home)
        publisher = Publisher(instance, table_keys(definition), destination, home, definition.name, [topic_key("bench")])
        run()  # what is made once
        whole, whole_cpu = _timed(run)
        _, alone_cpu = _timed(commit)
        _, shown_cpu = _timed(publisher.publish)
        log = sum(file.stat().st_size for file in (Path(name) / "history" / "runs").glob("*.db*"))
    return {
        "partitions": partitions, "seconds": round(whole, 2), "cpu_s": round(whole_cpu, 2),
        "batch_without_dagster_cpu_s": round(alone_cpu, 3), "show_cpu_s": round(shown_cpu, 3),
        "event_log_mb": round(log / 1e6, 1),
    }  # fmt: skip


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    began, before = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - began, time.process_time() - before


def measure(sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the figures of each number of partitions, from a process of its own."""
    command = [sys.executable, "-m", "bench.parts.partitions_dagster", ",".join(map(str, sizes))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        run = {"name": "a Dagster run", **json.loads(line)}
        say(f"  {run['partitions']:,} partitions: {run['seconds']:.2f} s a run in Dagster, {run['cpu_s']:.2f} CPU s")
        yield run


def main() -> None:
    """Print a line of JSON for each size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes")
    options.add_argument("--one-by-one", action="store_true")
    given = options.parse_args()
    for number in map(int, given.sizes.split(",")):
        sys.stdout.write(json.dumps(_row(number, given.one_by_one)) + "\n")


if __name__ == "__main__":
    main()
