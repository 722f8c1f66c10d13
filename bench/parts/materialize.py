"""Measure how long "Materialize" takes in kpipe's own UI, from the click to the run's success, and what each phase costs.

Two UIs run side by side: `warm` with a process that waits for the next run, `cold` with KPIPE_WARM_RUNS=0. Each click loads
1,000 new records, and comes when its UI has become idle. It is the mutation that the UI's button sends. CPU is that of all
processes of that UI. Phases end at events of Dagster.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from dagster import DagsterEventType

from bench.child import clean_environment, stop
from bench.meter import Meter, cpu_seconds
from bench.stage import Stage, say
from bench.thousand import PARTITIONS, definition, produce
from kpipe_assets.dagster_server.instance import open_instance
from resources.home import Home
from resources.java import find_java
from tests.ports import free_port

__all__ = ["measure"]

_GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "graphql.md"
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


def measure(stage: Stage, repeats: int) -> dict[str, Any]:
    """Click so many times in each UI, in turns."""
    runs = []
    with ExitStack() as stack:
        uis = {name: stack.enter_context(_running(stage, name)) for name in ("cold", "warm")}
        for repeat in range(repeats):
            for name, ui in uis.items():
                produce(stage.brokers, ui.topic)
                ui.settle(name == "warm")
                run = {"name": name, "repeat": repeat, "idle_mb": round(ui.idle_mb()), **_click(ui)}
                say(f"  {name}: {run['seconds']:.2f} s, {run['cpu_s']:.2f} CPU s, {run['idle_mb']} MB while idle")
                runs.append(run)
    return {"runs": runs}


def _click(ui: _Ui) -> dict[str, Any]:
    """Materialize all partitions; return seconds and CPU seconds, of all and by phase."""
    with Meter(ui.root, period_s=_PERIOD_S) as meter:
        began = time.time()
        launched = ui.ask("Launch", table=["orders"], first="0", last=str(PARTITIONS - 1))
        answered, run = time.time(), launched["run"]["runId"]
        while (status := ui.ask("Run", run=run)["status"]) not in ("SUCCESS", "FAILURE", "CANCELED"):
            time.sleep(0.1)
    if status != "SUCCESS":
        raise RuntimeError(f"run {run}: {status}; see {ui.home.logs}")
    phases, last = {}, began
    for name, end in {"click answered": answered, **dict(_events(ui.home, run))}.items():
        phases[name] = {"seconds": round(end - last, 3), "cpu_s": round(meter.cpu_until(end) - meter.cpu_until(last), 2)}
        last = end
    cpu_s = meter.cpu_until(last) - meter.cpu_until(began)
    return {"seconds": round(last - began, 3), "cpu_s": round(cpu_s, 2), "phases": phases}


def _events(home: Home, run: str) -> Iterator[tuple[str, float]]:
    with open_instance(home.dagster) as instance:
        entries = [(entry.dagster_event.event_type, entry.timestamp) for entry in instance.all_logs(run) if entry.dagster_event]
    for name, wanted in _ENDS.items():
        yield name, next(moment for kind, moment in entries if kind == wanted)


@contextmanager
def _running(stage: Stage, name: str) -> Iterator[_Ui]:
    topic, home = f"orders-{name}-{uuid.uuid4().hex[:8]}", Home.at(stage.folder(f"ui-{name}")).make()
    stage.broker.create_topic(topic, PARTITIONS)
    home.save(definition("orders", stage.brokers, topic))
    variables = {"KPIPE_HOME": str(home.path), "JAVA_HOME": str(find_java().path), "KPIPE_WARM_RUNS": str(int(name == "warm"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe_assets.cli", "ui", "--port", str(free_port())],
        env=clean_environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://[^\s?]+", line)))
        ui = _Ui(home, address.rstrip("/"), process.pid, topic)
        while len(ui.ask("Partitions", table=["orders"]).get("partitionKeys", ())) < PARTITIONS:
            time.sleep(0.5)
        yield ui
    finally:
        stop(process, 120)
        stage.broker.delete_topic(topic)
