"""Measure the cost of idle pipelines in one Dagster instance: the real `kpipe ui`, its daemon, and a real broker.

    .venv/bin/python -m bench.studies.idle                        # 1, 10, 30 and 100 pipelines, a minute each
    .venv/bin/python -m bench.studies.idle --sizes 100 --seconds 30

Every pipeline has its own topic with four partitions, has read all of it, and is turned on. Ticks are counted from Dagster's
records. Writes bench/results/idle.csv and idle.svg.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from bench.meter import cpu_seconds
from bench.numbers import percentile
from bench.parts.ledger import OneRow
from bench.plot import lines
from bench.stage import say
from kpipe.batch.batch import Batch, Counts, RangeReport, TableReport
from kpipe.column_growth import Closed
from kpipe.definition.pipeline import Into, Pipeline, Source
from kpipe.ingest.loop import Ingest
from kpipe.schema.columns import Columns
from kpipe_assets.dagster_server.instance import open_instance, prepare
from kpipe_assets.runs.runner import Run
from kpipe_assets.sensors.sensor_state import SensorStates
from resources.destinations import open_destination
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.kafka.topic_metadata import KafkaTopics

PARTITIONS = 4
_RECORDS = 100
_RESULTS = Path(__file__).parents[1] / "results"
# Until then Dagster learns of partitions, and the events of all commits are published: several ticks of each sensor, by its kind.
_TICKS_TO_SETTLE = {"_ingest": 4, "_metadata": 2}  # of the second kind 100 pipelines have one in 100 s each
_PATIENCE_S = 1800


class _Read(OneRow):
    """A destination whose ranges are all read and gave no rows."""

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        return [
            RangeReport(
                step.source,
                step.range,
                Counts(messages=len(step.range), filtered=len(step.range), bytes=10),
                tuple(TableReport() for _ in tables),
            )
            for step in batch.steps
        ]


def _fill(home: Home, broker: LocalBroker, number: int) -> list[str]:
    """Create pipelines that have read everything; return their names."""
    brokers = str(broker.status().brokers)
    producer = Producer({"bootstrap.servers": brokers})
    names = [f"p{at:03}" for at in range(number)]
    for name in names:
        broker.create_topic(name, PARTITIONS)
        for at in range(_RECORDS):
            producer.produce(name, b'{"id": 1}', partition=at % PARTITIONS)
        producer.poll(0)
    producer.flush()

    def read(name: str) -> None:
        source = Source(brokers=brokers, topic=name)
        pipeline = Pipeline(name=name, source=source, columns={"id": "BIGINT"}, into=Into(table=name))
        home.save(pipeline)
        run = Run(home, Ingest(pipeline, KafkaTopics(source), _Read(home), open_destination(pipeline, home)))
        list(run.batches())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, names))
    return names


def _timed(home: Home, *arguments: str) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a command."""
    before, began = os.times(), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "kpipe_assets.cli", *arguments],
        env={**os.environ, "KPIPE_HOME": str(home.path)}, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    after = os.times()
    took = time.monotonic() - began
    return took, after.children_user + after.children_system - before.children_user - before.children_system


def _started(home: Home) -> tuple[subprocess.Popen[str], float]:
    """Start `kpipe ui`; return it, and the seconds until it serves all definitions."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe_assets.cli", "ui", "--port", "3400"],
        env={**os.environ, "KPIPE_HOME": str(home.path)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(r"http://\S+", line):
            return process, time.monotonic() - began
    raise SystemExit("kpipe ui did not start")


def _roles(root: int) -> dict[str, list[int]]:
    """Return processes of the UI by role."""
    found: dict[str, list[int]] = {"code": [], "daemon": [], "web": []}
    for process in psutil.Process(root).children(recursive=True):
        line = " ".join(process.cmdline())
        role = "web" if "webserver" in line else "code" if "api grpc" in line else "daemon" if "daemon" in line else ""
        if role:
            found[role].append(process.pid)
    return found


def _own_cpu(pids: Sequence[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids if psutil.pid_exists(pid)]
    return sum(item.user + item.system for item in times)


def measure(number: int, seconds: float) -> dict[str, Any]:
    """Measure a row of the results."""
    folder = Path(tempfile.mkdtemp(prefix="kpipe-idle-"))
    home, broker = Home.at(folder / "home"), LocalBroker(folder / "broker")
    try:
        broker.start()
        names = _fill(home, broker, number)
        environ = prepare(home)
        load_before = os.getloadavg()[0]
        process, start_s = _started(home)
        try:
            with SensorStates(home) as sensor_states:
                for name in names:
                    sensor_states.turn(name, on=True)
            _settle(environ["DAGSTER_HOME"], number)
            roles = _roles(process.pid)
            broker_pid = int(broker.status().pid or 0)
            began, kafka = time.time(), cpu_seconds(broker_pid)
            cpu = {role: _own_cpu(pids) for role, pids in roles.items()}
            time.sleep(seconds)
            spent = {role: _own_cpu(pids) - cpu[role] for role, pids in roles.items()}
            ended, kafka = time.time(), cpu_seconds(broker_pid) - kafka
            rss = sum(psutil.Process(pid).memory_info().rss for pids in roles.values() for pid in pids) / 1e6
            status_s, status_cpu = _timed(home, "status")
            show_s, _ = _timed(home, "sql", "SHOW PIPELINES")
            ticks = _ticks(environ["DAGSTER_HOME"], began, ended)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        took = ended - began
        durations = [end - start for starts in ticks.values() for start, end in starts]
        gaps = [late - early for name, starts in ticks.items() if name.endswith("_ingest")
                for (early, _), (late, _) in pairwise(starts)]  # fmt: skip
        return {
            "pipelines": number, "load_before": round(load_before, 1), "ui_start_s": round(start_s, 1),
            "ticks": len(durations), "tick_p50_s": round(percentile(durations, 50), 3),
            "tick_p99_s": round(percentile(durations, 99), 3), "tick_max_s": round(max(durations), 3),
            "code_cpu_ms_a_tick": round(spent["code"] / max(1, len(durations)) * 1000, 1),
            "daemon_cpu_ms_a_tick": round(spent["daemon"] / max(1, len(durations)) * 1000, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "between_ingest_ticks_p50_s": round(percentile(gaps, 50), 1) if gaps else "",
            "code_cores": round(spent["code"] / took, 3), "daemon_cores": round(spent["daemon"] / took, 3),
            "web_cores": round(spent["web"] / took, 3), "broker_cores": round(kafka / took, 3), "rss_mb": round(rss),
            "status_s": round(status_s, 2), "status_cpu_s": round(status_cpu, 2), "show_pipelines_s": round(show_s, 2),
        }  # fmt: skip
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _settle(folder: str, number: int) -> None:
    """Wait until each sensor has ticked a few times, even on a busy machine."""
    began = time.time()
    while time.time() < began + _PATIENCE_S:
        time.sleep(10)
        ticks = _ticks(folder, 0.0, time.time())
        few = [
            name for name, found in ticks.items() if any(name.endswith(k) and len(found) < n for k, n in _TICKS_TO_SETTLE.items())
        ]
        if len(ticks) == 2 * number and not few:
            return
        say(f"  {len(ticks)} sensors have ticked, {len(few)} of them not often enough yet")
    raise SystemExit(f"the sensors did not settle within {_PATIENCE_S} s")


def _ticks(folder: str, began: float, ended: float) -> dict[str, list[tuple[float, float]]]:
    """Return begin and end of each sensor's ticks in a period, in order."""
    from dagster._core.definitions.run_request import InstigatorType

    found: dict[str, list[tuple[float, float]]] = {}
    with open_instance(folder) as instance:
        for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
            ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=began, before=ended)
            done = sorted((tick.timestamp, tick.end_timestamp) for tick in ticks if tick.end_timestamp)
            found[state.instigator_name] = done
    return found


def main() -> None:
    """Measure each size, and write the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", default="1,10,30,100")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--out", type=Path, default=_RESULTS)
    given = options.parse_args()
    rows = []
    for number in map(int, given.sizes.split(",")):
        say(f"{number} pipelines")
        rows.append(measure(number, given.seconds))
        say(f"  {rows[-1]}")
        write(rows, given.out)


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write the results so far as a table and as a plot."""
    with (folder / "idle.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    cores = {
        name: [(row["pipelines"], row[f"{name}_cores"] * 1000) for row in rows] for name in ("code", "daemon", "web", "broker")
    }
    drawn = lines("Idle pipelines on one Dagster instance", "pipelines, all switched on", "thousandths of a core", cores)
    (folder / "idle.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
