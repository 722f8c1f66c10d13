"""How long "Materialize" takes in kpipe's own UI, from the click to the run's success, and what each phase costs.

    .venv/bin/python -m bench.materialize                  # 3 clicks in each UI, in turns
    .venv/bin/python -m bench.materialize --repeats 5 --only warm

Two UIs run side by side: `warm` with a process that waits for the next run, `cold` with KPIPE_WARM_RUNS=0. Each click loads
1,000 new records, and comes when its UI has become idle. It is the mutation that the UI's button sends. CPU is that of all
processes of that UI. Phases end at events of Dagster. Writes bench/results/materialize.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from dagster import DagsterEventType

from bench.child import clean_environment, stop
from bench.meter import cpu_seconds
from bench.numbers import paired, spread
from bench.stage import say
from kpipe.definition.pipeline import Into, Pipeline, Source
from kpipe_assets.dagster_server.instance import open_instance
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import find_java

RECORDS, PARTITIONS = 1000, 4
_RESULTS = Path(__file__).parent / "results"
_GUIDE = Path(__file__).parent.parent / "docs" / "how-to" / "graphql.md"
_PERIOD_S, _IDLE_S, _IDLE_CORES, _QUIET, _PATIENCE_S = 0.05, 3.0, 0.05, 2, 300.0
_ENDS = {
    "launched": DagsterEventType.PIPELINE_STARTING,
    "process": DagsterEventType.ENGINE_EVENT,
    "definitions and plan": DagsterEventType.RUN_START,
    "step begins": DagsterEventType.STEP_START,
    "kpipe's run": DagsterEventType.ASSET_MATERIALIZATION,
    "step ends": DagsterEventType.STEP_SUCCESS,
    "success": DagsterEventType.RUN_SUCCESS,
}
"""By phase: the first event of this type ends it."""


@dataclass
class _Ui:
    """A running `kpipe ui` with one pipeline."""

    home: Home
    address: str
    root: int
    topic: str
    brokers: str

    def ask(self, name: str, **variables: Any) -> Any:
        """Send a query of the guide by its name."""
        bodies = re.findall(r"^```graphql\n(.*?)^```$", _GUIDE.read_text(encoding="utf-8"), re.M | re.S)
        (query,) = [body for body in bodies if re.search(rf"\b{name}\b", body)]
        token = (self.home.state / "ui.token").read_text()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        body = json.dumps({"query": query, "variables": variables}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.address}/graphql", body, headers), timeout=600) as answer:
            (value,) = json.load(answer)["data"].values()
        return value

    def settle(self, is_warm: bool) -> None:
        """Wait until the processes of the UI are idle, and one waits for a run if that is expected."""
        deadline, before, quiet = time.monotonic() + _PATIENCE_S, cpu_seconds(self.root), 0
        while time.monotonic() < deadline and quiet < _QUIET:
            time.sleep(_IDLE_S)
            now = cpu_seconds(self.root)
            waiting = any(process.name() == "java" for process in self._waiting())
            quiet = quiet + 1 if now - before < _IDLE_CORES * _IDLE_S and waiting == is_warm else 0
            before = now

    def idle_mb(self) -> float:
        """PSS of the processes that wait for a run, and of their children, in MB."""
        return sum(_pss_mb(process.pid) for process in self._waiting())

    def _waiting(self) -> list[psutil.Process]:
        """List the processes that multiprocessing has spawned, and their children."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for parent in psutil.Process(self.root).children(recursive=True):
                if "spawn_main" in " ".join(parent.cmdline()):
                    found += [parent, *parent.children(recursive=True)]
        return found


def _pss_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has ended, or denies reading and this is not root
        return 0.0
    found = re.search(r"^Pss: +(\d+) kB", text, re.M)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


class _Samples:
    """While inside, record the CPU seconds of a process tree."""

    def __init__(self, root: int) -> None:
        self._root, self._times, self._cpu = root, [time.time()], [cpu_seconds(root)]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self._sample()

    def _sample(self) -> None:
        self._cpu.append(max(self._cpu[-1], cpu_seconds(self._root)))
        self._times.append(time.time())

    def until(self, moment: float) -> float:
        """CPU seconds since the start of the process tree, at the first sample after that moment."""
        return self._cpu[min(bisect_left(self._times, moment), len(self._cpu) - 1)]


def click(ui: _Ui) -> dict[str, tuple[float, float]]:
    """Materialize all partitions; return seconds and CPU seconds by phase, and of all of them."""
    with _Samples(ui.root) as samples:
        began = time.time()
        launched = ui.ask("Launch", table=["orders"], first="0", last=str(PARTITIONS - 1))
        answered, run = time.time(), launched["run"]["runId"]
        while (status := ui.ask("Run", run=run)["status"]) not in ("SUCCESS", "FAILURE", "CANCELED"):
            time.sleep(0.1)
    if status != "SUCCESS":
        raise SystemExit(f"run {run}: {status}; see {ui.home.logs}")
    ends = {"click answered": answered, **dict(_events(ui.home, run))}
    phases, last = {}, began
    for name, end in ends.items():
        phases[name] = end - last, samples.until(end) - samples.until(last)
        last = end
    phases["all"] = last - began, samples.until(last) - samples.until(began)
    return phases


def _events(home: Home, run: str) -> Iterator[tuple[str, float]]:
    with open_instance(home.dagster) as instance:
        entries = [(entry.dagster_event.event_type, entry.timestamp) for entry in instance.all_logs(run) if entry.dagster_event]
    for name, wanted in _ENDS.items():
        yield name, next(moment for kind, moment in entries if kind == wanted)


@contextmanager
def _running(folder: Path, name: str, port: int, brokers: str, broker: LocalBroker, **more: str) -> Iterator[_Ui]:
    topic, home = f"orders-{name}", Home.at(folder / name).make()
    broker.create_topic(topic, PARTITIONS)
    columns = {"id": "BIGINT", "text": "VARCHAR", "lang": "VARCHAR"}
    home.save(Pipeline(name="orders", source=Source(brokers=brokers, topic=topic), columns=columns, into=Into(table="orders")))
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe_assets.cli", "ui", "--port", str(port)],
        env=clean_environment(KPIPE_HOME=str(home.path), JAVA_HOME=str(find_java().path), **more),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://[^\s?]+", line)))
        ui = _Ui(home, address.rstrip("/"), process.pid, topic, brokers)
        while len(ui.ask("Partitions", table=["orders"]).get("partitionKeys", ())) < PARTITIONS:
            time.sleep(0.5)
        yield ui
    finally:
        stop(process, 120)


def _produce(ui: _Ui) -> None:
    producer = Producer({"bootstrap.servers": ui.brokers})
    for number in range(RECORDS):
        value = b'{"id": %d, "text": "some words of a record", "lang": "en"}' % number
        producer.produce(ui.topic, value, partition=number % PARTITIONS)
    producer.flush()


def main() -> None:
    """Measure, write the results, and print them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--only", choices=("warm", "cold"))
    options.add_argument("--port", type=int, default=3600)
    options.add_argument("--out", type=Path, default=_RESULTS)
    given = options.parse_args()
    names = [given.only] if given.only else ["cold", "warm"]
    folder = Path(tempfile.mkdtemp(prefix="kpipe-mat-"))
    broker = LocalBroker(folder / "broker")
    rows: list[dict[str, Any]] = []
    try:
        brokers = str(broker.start().brokers)
        with ExitStack() as stack:
            uis = {
                name: stack.enter_context(
                    _running(folder, name, given.port + 60 * at, brokers, broker, KPIPE_WARM_RUNS=str(int(name == "warm")))
                )
                for at, name in enumerate(names)
            }
            for repeat in range(given.repeats):
                for name, ui in uis.items():
                    _produce(ui)
                    ui.settle(name == "warm")
                    idle, load = ui.idle_mb(), os.getloadavg()[0]
                    phases = click(ui)
                    say(f"{name}: {phases['all'][0]:.2f} s, {phases['all'][1]:.2f} s of CPU; idle {idle:.0f} MB; load {load:.1f}")
                    rows += [
                        {"repeat": repeat, "ui": name, "phase": phase, "wall_s": round(wall, 3), "cpu_s": round(cpu, 2),
                         "idle_mb": round(idle), "load": round(load, 1)}
                        for phase, (wall, cpu) in phases.items()
                    ]  # fmt: skip
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    _write(rows, given.out)
    _print(rows, names)


def _write(rows: list[dict[str, Any]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "materialize.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _print(rows: list[dict[str, Any]], names: list[str]) -> None:
    for phase in dict.fromkeys(row["phase"] for row in rows):
        line = [f"{phase:22}"]
        for field in ("wall_s", "cpu_s"):
            values = {
                name: {row["repeat"]: [row[field]] for row in rows if (row["ui"], row["phase"]) == (name, phase)}
                for name in names
            }
            for name in names:
                found = spread(value for (value,) in values[name].values())
                assert found is not None
                line.append(f"{name} {field} {found.median:6.2f} ({found.low:.2f} to {found.high:.2f})")
            ratio = (
                paired(values["warm"], values["cold"]) if len(names) > 1 and all(v[0] for v in values["cold"].values()) else None
            )
            line.append(f"ratio {ratio.median:.2f}" if ratio else "")
        sys.stdout.write("  ".join(line).rstrip() + "\n")


if __name__ == "__main__":
    main()
