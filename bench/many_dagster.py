"""Measure Dagster's cost of a batch as the number of partitions grows: real runs in SQLite, without Kafka and Spark.

    .venv/bin/python -m bench.many_dagster                  # 10, 100 and 1,000 partitions
    .venv/bin/python -m bench.many_dagster --one-by-one     # Dagster's default: each event in its own transactions

Each batch is one offset of every partition, into a real DuckDB. Reports the CPU time of the process in seconds, for two cases:
a whole run of one batch, from its request to its last event; and publishing a batch that was committed without Dagster, as a
sensor does. Writes bench/results/many.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg

from bench import ledger
from bench.contenders.pipelines import pipeline
from bench.plot import lines
from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_asset, table_keys
from kpipe_assets.assets.topic_asset import topic_key, topic_spec
from kpipe_assets.dagster_server.instance import open_instance
from kpipe_assets.publishing.publisher import Publisher
from resources.destinations import open_destination
from resources.home import Home

_RESULTS = Path(__file__).parent / "results"


class _Edges:
    """Kafka, Spark and destinations of a run: brokers with one more offset each time, and rows without Spark."""

    def __init__(self, home: Home) -> None:
        self._home, self.offsets = home, 1

    def topics(self, _: Pipeline) -> Any:
        return ledger._Topics(self.offsets)

    def stager(self, _: Pipeline) -> Any:
        return ledger.OneRow(self._home)

    def version(self, _: Pipeline) -> str:
        return "1"

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


def measure(partitions: int, one_by_one: bool) -> dict[str, Any]:
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
        whole = _cpu(run)
        alone = _cpu(commit)
        shown = _cpu(publisher.publish)
        log = sum(file.stat().st_size for file in (Path(name) / "history" / "runs").glob("*.db*"))
    return {
        "partitions": partitions, "run_cpu_s": round(whole, 2), "batch_without_dagster_cpu_s": round(alone, 3),
        "show_cpu_s": round(shown, 3), "event_log_mb": round(log / 1e6, 1), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def _cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    """Measure each size, and write the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", default="10,100,1000")
    options.add_argument("--one-by-one", action="store_true")
    options.add_argument("--out", type=Path, default=_RESULTS)
    given = options.parse_args()
    rows = []
    for number in map(int, given.sizes.split(",")):
        rows.append({**measure(number, given.one_by_one), "events": "one by one" if given.one_by_one else "at once"})
        print(rows[-1], flush=True)
    _write(rows, given.out)


def _write(rows: list[dict[str, Any]], folder: Path) -> None:
    """Add rows to the table, replacing rows of the same kind and size, and draw it."""
    file = folder / "many.csv"
    if file.exists():
        new = {(str(row["partitions"]), row["events"]) for row in rows}
        with file.open(encoding="utf-8") as old:
            rows = [*(row for row in csv.DictReader(old) if (row["partitions"], row["events"]) not in new), *rows]
    rows.sort(key=lambda row: (row["events"], int(row["partitions"])))
    with file.open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    drawn = {
        f"{name}, {kind}": [(int(row["partitions"]), float(row[column])) for row in rows if row["events"] == kind]
        for kind in dict.fromkeys(row["events"] for row in rows)
        for name, column in (("run", "run_cpu_s"), ("show", "show_cpu_s"))
    }
    plot = lines("One batch of many partitions in Dagster", "partitions", "seconds of CPU", drawn)
    (folder / "many.svg").write_text(plot, encoding="utf-8")


if __name__ == "__main__":
    main()
