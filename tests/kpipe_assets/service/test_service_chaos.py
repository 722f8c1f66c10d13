"""A service with a hundred pipelines, killed at random for minutes, beside statements and runs of others: exact at the end.

make chaos                                          ten minutes, a hundred pipelines, a new seed, which is printed
KPIPE_SERVICE_MINUTES=60 KPIPE_SEED=7 make chaos    other bounds; the same choices, not the same moments
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.service.serving import Serving, kill, serving, until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.chaos, pytest.mark.minutes(12)]

MINUTES = float(os.environ.get("KPIPE_SERVICE_MINUTES") or 10)
PIPELINES = int(os.environ.get("KPIPE_SERVICE_PIPELINES") or 100)
RATE = 10
"""Records a second into each topic."""


def value(number: int) -> dict[str, Any]:
    return {"id": number, "text": f"{number * 2654435761 % 2**32:08x} \u00e4'\\ " * (number % 4)}


class Pipelines:
    """Pipelines of different kinds, what was written for each, and what their tables contain."""

    def __init__(self, kpipe: Kpipe, topics: list[str], dice: random.Random) -> None:
        self.kpipe, self.topics = kpipe, {f"p{at:03}": topic for at, topic in enumerate(topics)}
        self.written = 0
        self.kinds = {name: dice.choice(("file", "file", "file", "shared", "key", "program", "delta")) for name in self.topics}
        program = kpipe.home / "cat.sh"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexec cat\n")
        program.chmod(0o755)
        for name, topic in self.topics.items():
            kind = self.kinds[name]
            into: dict[str, Any] = {"table": name}
            if kind == "delta":
                into = {"type": "delta", "table": name, "database": str(self.place(name).parent)}
            elif kind != "shared":
                into["database"] = str(self.place(name))
            if kind == "key":
                into["key"] = ["id"]
            more = {"transform": {"program": str(program)}} if kind == "program" else {}
            batch = {"interval_ms": dice.choice((100, 1000, 3000))}
            kpipe.define(name, topic, into=into, columns={"id": "BIGINT", "text": "VARCHAR"}, batch=batch, **more)

    def place(self, name: str) -> Path:
        kind = self.kinds[name]
        file = {"delta": f"lake/{name}", "shared": "kpipe.duckdb"}.get(kind, f"{name}.duckdb")
        return self.kpipe.home / "data" / file

    def rows(self, name: str) -> list[tuple[int, str]]:
        """All rows of a table, as any client reads them; none while there is no table or a commit holds the file."""
        if self.kinds[name] == "delta":
            if not self.place(name).exists():
                return []
            found = DeltaTable(str(self.place(name))).to_pyarrow_table(columns=["id", "text"]).to_pylist()
            return [(row["id"], row["text"]) for row in found]
        with suppress(duckdb.Error), duckdb.connect(str(self.place(name)), read_only=True) as connection:
            return connection.execute(f'SELECT id, "text" FROM {name}').fetchall()
        return []

    def is_complete(self, name: str) -> bool:
        return len(self.rows(name)) >= self.written

    def differences(self, name: str) -> str:
        """What the table has that it should not have, and what is missing; empty if it is exact."""
        expected = Counter((number, value(number)["text"]) for number in range(self.written))
        found = Counter(self.rows(name))
        missing, surplus = expected - found, found - expected
        return f"{name} ({self.kinds[name]}): {missing.total()} missing, {surplus.total()} surplus" if missing or surplus else ""


@contextmanager
def steadily(brokers: str, pipelines: Pipelines) -> Iterator[None]:
    """Write to all topics at a steady rate while inside."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True})
    over = threading.Event()

    def write() -> None:
        while not over.wait(1 / RATE):
            item = json.dumps(value(pipelines.written), ensure_ascii=False)
            for topic in pipelines.topics.values():
                producer.produce(topic, item, partition=pipelines.written % 2)
            pipelines.written += 1
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(300)
        assert producer.flush(600) == 0


def processes(service: Serving) -> dict[str, list[psutil.Process]]:
    """Return the living processes of a service by their part."""
    found: dict[str, list[psutil.Process]] = {"service": [], "jvm": [], "worker": []}
    for process in psutil.Process(service.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile, or is a zombie
            words = " ".join(process.cmdline())
            parts = {"jvm": "java" in process.name(), "service": "service.process" in words, "worker": "python_daemon" in words}
            for part in [part for part, fits in parts.items() if fits][:1]:
                found[part].append(process)
    return found


def strike(kpipe: Kpipe, service: Serving, pipelines: Pipelines, dice: random.Random) -> str:
    """Do one thing that must not matter, and return what it was; empty if there was nothing to do it to."""
    kind = dice.choice(("service", "supervisor", "jvm", "worker", "worker", "pause", "stop", "run", "all"))
    name = dice.choice(sorted(pipelines.topics))
    found = {**processes(service), "supervisor": [psutil.Process(service.process.pid)]}
    if kind == "stop":
        kpipe.outside("sql", f"STOP PIPELINE {name}; START PIPELINE {name}", status=None)
    elif kind == "run":
        kpipe.outside("run", name, "--max-batches", "2", status=None)
    elif kind == "all":
        kill(service)
    elif kind == "pause" and (chosen := [one for part in found.values() for one in part]):
        paused = dice.choice(chosen)
        with suppress(psutil.NoSuchProcess):
            paused.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(1, 10))
            paused.send_signal(signal.SIGCONT)
    elif found.get(kind):
        victim = dice.choice(found[kind])
        with suppress(psutil.NoSuchProcess):
            victim.kill()
        psutil.wait_procs([victim], timeout=300)
    else:
        return ""
    return f"{kind} {name}" if kind in ("stop", "run") else kind


def test_a_hundred_pipelines_are_exact_after_minutes_of_kills(
    tmp_path: Path, brokers: str, java: JavaHome, topic: Callable[..., str]
) -> None:
    seed = int(os.environ.get("KPIPE_SEED") or random.randrange(2**32))
    print(f"\nKPIPE_SEED={seed} ({MINUTES:g} min, {PIPELINES} pipelines)", flush=True)
    dice, kpipe = random.Random(seed), Kpipe(tmp_path / "home", brokers)
    pipelines = Pipelines(kpipe, [topic(2) for _ in range(PIPELINES)], dice)
    kpipe.outside("sql", "START ALL PIPELINES")
    strikes, began, starts = Counter[str](), time.monotonic(), 0
    try:
        with steadily(brokers, pipelines):
            while time.monotonic() < began + 60 * MINUTES:
                starts += 1
                with serving(kpipe) as service:
                    service.wait_for("started")
                    while service.process.poll() is None and time.monotonic() < began + 60 * MINUTES:
                        time.sleep(dice.uniform(1, 20))
                        struck = strike(kpipe, service, pipelines, dice)
                        if struck:
                            strikes[struck.split()[0]] += 1
                            print(f"{time.monotonic() - began:6.1f} s  {struck}", flush=True)
        drained = time.monotonic()
        with serving(kpipe) as service:
            kpipe.outside("sql", "START FAILED PIPELINES", status=None)
            for name in pipelines.topics:
                until(lambda name=name: pipelines.is_complete(name), lambda name=name: f"{name}: {service.lines[-60:]}", 900)
            assert service.end() == 0
        assert not kpipe.left_behind()
        drained = time.monotonic() - drained
        differences = list(filter(None, map(pipelines.differences, pipelines.topics)))
        assert differences == []
        for name in pipelines.topics:
            (proof,) = kpipe.json("verify", name)
            assert proof["ok"], proof
        rows = pipelines.written * PIPELINES
        print(
            f"exact: {rows:,} rows in {PIPELINES} tables {dict(Counter(pipelines.kinds.values()))}, {starts} services,"
            f" {sum(strikes.values())} strikes {dict(strikes)}; read to the end in {drained:.0f} s; seed {seed}"
        )
    finally:
        kpipe.kill()
