"""How long kpipe's commands take from cold, beside a bare Spark context with one Python job.

    .venv/bin/python -m bench.cold_start                # 5 repeats of each, in turns
    .venv/bin/python -m bench.cold_start --repeats 3 --only 'bare Spark,run of 1000'

CPU is that of all processes that a command starts, until the last of them has ended: Spark's JVM ends after its command. Ratios
are paired by repeat. Writes bench/results/cold_start.csv.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.child import clean_environment
from bench.numbers import paired, spread
from bench.stage import say
from kpipe.definition.pipeline import Into, Pipeline, Source
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import find_java

RECORDS = 1000
_RESULTS = Path(__file__).parent / "results"
_BARE = "bare Spark"
_SPARK = """
from pyspark import SparkContext
context = SparkContext("local[*]", "bare")
assert context.parallelize(range(2), 2).map(lambda number: number + 1).sum() == 3
"""
_SUBREAPER = 36  # prctl(2): processes whose parent has ended become children of this one
_SIGCHLD = 16  # its bit in a mask of signals
_PERIOD_S = 0.05


def _commands() -> dict[str, list[str]]:
    """By name. `run of 1000` comes before those that need what it has committed."""
    kpipe = [sys.executable, "-m", "kpipe_assets.cli"]
    return {
        _BARE: [sys.executable, "-c", _SPARK],
        f"run of {RECORDS}": [*kpipe, "run", "cold"],
        "run, nothing to read": [*kpipe, "run", "cold"],
        "status": [*kpipe, "status"],
        "SHOW PIPELINES": [*kpipe, "sql", "-e", "SHOW PIPELINES"],
        "verify": [*kpipe, "verify", "cold"],
        "--help": [*kpipe, "--help"],
    }


def measure(command: list[str], environ: dict[str, str], log: Path) -> tuple[float, float]:
    """Return seconds until a command ends, and the CPU seconds of all that it has started until all of that has ended."""
    others, before, began = _children(), os.times(), time.monotonic()
    took, uncounted = 0.0, dict[int, float]()
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    while _children() - others:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == process.pid:
            took, process.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
        elif not pid:
            uncounted.update(_uncounted())
            time.sleep(_PERIOD_S)
    if process.returncode:
        raise SystemExit(f"{command} failed: {log.read_text(errors='replace')[-2000:]}")
    after = os.times()
    counted = after.children_user + after.children_system - before.children_user - before.children_system
    return took, counted + sum(uncounted.values())


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _uncounted() -> dict[int, float]:
    """CPU seconds so far of descendants whose parent ignores SIGCHLD, as PySpark's daemon does: the kernel drops their times."""
    seen: dict[int, tuple[int, float, bool]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                mask = Path(entry.path, "status").read_text().partition("SigIgn:")[2].split()[0]
            except (OSError, IndexError):  # it has ended
                continue
            cpu_s = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
            seen[int(entry.name)] = int(fields[1]), cpu_s, bool(int(mask, 16) >> _SIGCHLD & 1)

    def is_ours(pid: int) -> bool:
        while pid in seen and pid != os.getpid():
            pid = seen[pid][0]
        return pid == os.getpid()

    return {pid: cpu for pid, (parent, cpu, _) in seen.items() if parent in seen and seen[parent][2] and is_ours(pid)}


def _home(folder: Path, brokers: str) -> Home:
    home = Home.at(folder).make()
    columns = {"id": "BIGINT", "text": "VARCHAR", "lang": "VARCHAR"}
    home.save(Pipeline(name="cold", source=Source(brokers=brokers, topic="cold"), columns=columns, into=Into(table="cold")))
    return home


def _filled(broker: LocalBroker) -> str:
    brokers = str(broker.start().brokers)
    broker.create_topic("cold", 4)
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(RECORDS):
        producer.produce("cold", b'{"id": %d, "text": "some words of a record", "lang": "en"}' % number, partition=number % 4)
    producer.flush()
    return brokers


def main() -> None:
    """Measure, write the results, and print them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--only", help="names of commands, with commas between them")
    options.add_argument("--out", type=Path, default=_RESULTS)
    given = options.parse_args()
    commands = _commands()
    chosen = [name.strip() for name in given.only.split(",")] if given.only else list(commands)
    folder = Path(tempfile.mkdtemp(prefix="kpipe-cold-"))
    broker = LocalBroker(folder / "broker")
    rows: list[dict[str, Any]] = []
    try:
        brokers = _filled(broker)
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # after the broker: it outlives every command
        java = {"JAVA_HOME": str(find_java().path)}
        for repeat in range(given.repeats):
            home = _home(folder / f"home{repeat}", brokers)
            environ = clean_environment(KPIPE_HOME=str(home.path), **java)
            for name in chosen:
                wall_s, cpu_s = measure(commands[name], environ, folder / "log")
                load = os.getloadavg()[0]
                rows.append(
                    {"repeat": repeat, "name": name, "wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 2), "load": round(load, 1)}
                )
                say(f"{name}: {wall_s:.2f} s, {cpu_s:.2f} s of CPU")
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    _write(rows, given.out)
    _print(rows)


def _write(rows: list[dict[str, Any]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cold_start.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(row["name"] for row in rows))
    for name in names:
        line = [f"{name:22}"]
        for field in ("wall_s", "cpu_s"):
            values = {row["repeat"]: [row[field]] for row in rows if row["name"] == name}
            bare = {row["repeat"]: [row[field]] for row in rows if row["name"] == _BARE}
            found, ratio = spread(value for (value,) in values.values()), paired(values, bare)
            assert found is not None
            line.append(f"{field} {found.median:6.2f} ({found.low:.2f} to {found.high:.2f})")
            line.append(f"{ratio.median:.2f} of bare" if ratio else "")
        sys.stdout.write("  ".join(line).rstrip() + "\n")


if __name__ == "__main__":
    main()
