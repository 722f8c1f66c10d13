"""Measure `kpipe run` on the Spark of `kpipe serve` beside a run with its own: `python -m bench.studies.service_runs`.

Each repeat produces 1,000 records, then loads them by a run of either kind, in turns, into a home of its own. CPU is that of
the command's processes, plus what the service has used meanwhile; the own JVM's time after the command has ended is not
counted. Memory is PSS: the highest sum of the command's processes, and that of the service with the JVM after the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.child import clean_environment, stop
from bench.many_pipelines import pss_mb
from bench.meter import Meter
from bench.stage import say
from bench.thousand import PARTITIONS, RECORDS, definition, produce
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import find_java

_PERIOD_S = 0.05
_COMMAND = [sys.executable, "-m", "kpipe_assets.cli"]


def _pss(root: int) -> float:
    """Return the PSS of a process and its descendants in MB."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
    return total / 1e6


def _run(name: str, environ: dict[str, str], beside: int | None) -> dict[str, Any]:
    """Run the pipeline to its end, and return seconds, CPU seconds and memory."""
    peak, ended = [0.0], threading.Event()
    began = time.monotonic()
    pipe = subprocess.PIPE
    process = subprocess.Popen([*_COMMAND, "run", name, "--json"], env=environ, stdin=subprocess.DEVNULL, stdout=pipe, text=True)

    def watch() -> None:
        while not ended.wait(_PERIOD_S):
            peak[0] = max(peak[0], _pss(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with Meter(process.pid, *([beside] if beside is not None else []), period_s=_PERIOD_S / 2) as meter:
        out, _ = process.communicate(timeout=600)
        seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    assert process.returncode == 0 and json.loads(out.splitlines()[-1])["rows"] == RECORDS, out
    return {"seconds": round(seconds, 2), "cpu_s": round(meter.cpu_s, 2), "pss_mb": round(peak[0])}


def measure(repeats: int) -> dict[str, Any]:
    """Measure so many runs of each kind."""
    folder = Path(tempfile.mkdtemp(prefix="kpipe-service-runs-"))
    broker, kinds = LocalBroker(folder / "broker"), ("own", "service")
    broker.start()
    brokers, homes = str(broker.status().brokers), {kind: Home.at(folder / kind).make() for kind in kinds}
    java = {"JAVA_HOME": str(find_java().path)}
    environs = {kind: clean_environment(KPIPE_HOME=str(home.path), **java) for kind, home in homes.items()}
    service = subprocess.Popen(
        [*_COMMAND, "serve", "--port", "0", "--json"], env=environs["service"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    environs["service"]["KPIPE_SPARK"] = "service"
    try:
        broker.create_topic("thousand", PARTITIONS)
        for home in homes.values():
            home.save(definition("one", brokers, "thousand"))
        time.sleep(3)
        idle, runs = pss_mb(service.pid), []
        for repeat in range(repeats):
            produce(brokers, "thousand")
            for kind in kinds if repeat % 2 else kinds[::-1]:
                found = _run("one", environs[kind], service.pid if kind == "service" else None)
                runs.append({"kind": kind, "repeat": repeat, "load": round(os.getloadavg()[0], 1), **found})
                say(str(runs[-1]))
        after = pss_mb(service.pid)
    finally:
        stop(service, 60)
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    keys, later = ("seconds", "cpu_s", "pss_mb"), [run for run in runs if run["repeat"]]
    medians = {kind: {key: median(run[key] for run in later if run["kind"] == kind) for key in keys} for kind in kinds}
    ratios = {key: round(medians["service"][key] / medians["own"][key], 2) for key in keys}
    return {"runs": runs, "medians without the first": medians, "ratios": ratios, "service_idle_mb": idle, "service_mb": after}


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=6)
    sys.stdout.write(json.dumps(measure(parser.parse_args().repeats), indent=1) + "\n")


if __name__ == "__main__":
    main()
