"""Measure how long kpipe's commands take from cold, beside a bare Spark context with one Python job.

CPU is that of all processes that a command starts, until the last of them has ended: Spark's JVM ends after its command.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.child import clean_environment
from bench.meter import lost_cpu_seconds
from bench.stage import Stage, say
from bench.thousand import PARTITIONS, RECORDS, definition, produce
from resources.home import Home
from resources.java import find_java

__all__ = ["BARE", "COMMANDS", "RUN", "measure"]

BARE, RUN = "bare Spark", f"run of {RECORDS:,}"
_SPARK = """
from pyspark import SparkContext
context = SparkContext("local[*]", "bare")
assert context.parallelize(range(2), 2).map(lambda number: number + 1).sum() == 3
"""
#: Commands of kpipe by name. The run comes before those that need what it has committed.
COMMANDS: dict[str, list[str]] = {
    RUN: ["run", "cold"],
    "run, nothing to read": ["run", "cold"],
    "status": ["status"],
    "sql -e 'SHOW PIPELINES'": ["sql", "-e", "SHOW PIPELINES"],
    "verify": ["verify", "cold"],
    "--help": ["--help"],
}
_SUBREAPER = 36  # prctl(2): processes whose parent has ended become children of this one
_PERIOD_S = 0.05


def measure(stage: Stage, repeats: int) -> dict[str, Any]:
    """Run each command so many times, in turns, each time in a new home."""
    topic = f"cold-{uuid.uuid4().hex[:8]}"
    stage.broker.create_topic(topic, PARTITIONS)
    produce(stage.brokers, topic)
    kpipe = [sys.executable, "-m", "kpipe_assets.cli"]
    commands = {BARE: [sys.executable, "-c", _SPARK], **{name: [*kpipe, *words] for name, words in COMMANDS.items()}}
    runs = []
    with _subreaper():
        for repeat in range(repeats):
            home = Home.at(stage.folder("cold-home")).make()
            home.save(definition("cold", stage.brokers, topic))
            environ = clean_environment(KPIPE_HOME=str(home.path), JAVA_HOME=str(find_java().path))
            for name, command in commands.items():
                seconds, cpu_s = _timed(command, environ, home.path / "bench.log")
                runs.append({"name": name, "repeat": repeat, "seconds": round(seconds, 3), "cpu_s": round(cpu_s, 2)})
                say(f"  {name:<24} {seconds:6.2f} s {cpu_s:6.2f} CPU s")
            stage.settle(home.path)
    stage.broker.delete_topic(topic)
    return {"runs": runs}


@contextmanager
def _subreaper() -> Iterator[None]:
    """Adopt processes whose parent has ended. The broker has started before, and is not waited for."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(_SUBREAPER, 0, 0, 0, 0)


def _timed(command: list[str], environ: dict[str, str], log: Path) -> tuple[float, float]:
    """Return seconds until a command ends, and the CPU seconds of all that it has started until all of that has ended."""
    others, before, began = _children(), os.times(), time.monotonic()
    took, lost = 0.0, dict[int, float]()
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    while _children() - others:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == process.pid:
            took, process.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
        elif not pid:
            lost.update(lost_cpu_seconds(os.getpid()))
            time.sleep(_PERIOD_S)
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(command[:6])}: exit status {process.returncode}: {log.read_text(errors='replace')[-2000:]}"
        )
    after = os.times()
    counted = after.children_user + after.children_system - before.children_user - before.children_system
    return took, counted + sum(lost.values())


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
