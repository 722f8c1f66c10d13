"""Runs with KPIPE_SPARK=service on a real `kpipe serve`: no JVM of their own, and what happens when either side dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from kpipe_assets.dagster_server.instance import make_storage, open_instance, prepare
from resources.home import Home
from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import sql
from tests.kpipe_assets.dagster_ui import PARTITIONS, running_ui
from tests.kpipe_assets.service.serving import PATIENCE_S, Serving, kill, rows, serving, until, without_pipelines

pytestmark = [pytest.mark.broker, pytest.mark.spark]

QUICK = {"batch": {"interval_ms": 100}, "columns": {"id": "BIGINT"}}
#: With `PYTHONSAFEPATH`, Dagster's processes would import an installed kpipe instead of this one.
DAGSTER = {"KPIPE_SPARK": "service", "PYTHONPATH": str(Path(__file__).parents[3])}
#: Waits for a file after the first record, then returns each record unchanged.
GATED = """#!/usr/bin/env python3
import os, sys, time
for line in sys.stdin:
    open(sys.argv[1] + ".reached", "a").close()
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    sys.stdout.write(line)
    sys.stdout.flush()
"""


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, java: JavaHome) -> Iterator[Kpipe]:
    """A fresh home, with the session's Kafka; the service has its own Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.fixture(scope="module")
def shared(brokers: str, java: JavaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kpipe, Serving]]:
    """A service that most tests use, and its home."""
    kpipe = Kpipe(tmp_path_factory.mktemp("shared") / "home", brokers)
    with serving(kpipe, KPIPE_SPARK_MASTER="local[2]") as service:
        service.wait_for("serving the pipelines")
        assert jvms(service) == [], "an idle service has no JVM"
        yield kpipe, service
    kpipe.kill()


@pytest.fixture
def running(shared: tuple[Kpipe, Serving]) -> Iterator[tuple[Kpipe, Serving]]:
    """That service, without pipelines before and after the test."""
    with without_pipelines(shared[0]):
        yield shared


@dataclass
class Watched:
    """A process and the programs that it or its children have executed."""

    process: subprocess.Popen[str]
    programs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while self.process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        self.programs.add(child.name())
            time.sleep(0.3)  # a JVM lives for seconds

    def ended(self, status: int | None = 0) -> tuple[str, str]:
        """Return stdout and stderr."""
        out, err = self.process.communicate(timeout=600)
        self._thread.join()
        assert status is None or self.process.returncode == status, f"exit {self.process.returncode}\n{out}\n{err}"
        return out, err


def run(kpipe: Kpipe, name: str, *arguments: str, **more: str) -> Watched:
    return Watched(kpipe.start("run", name, *arguments, KPIPE_SPARK="service", **more))


def jvms(service: Serving) -> list[psutil.Process]:
    return [child for child in service.worker().children() if "java" in child.name()]


def ids(first: int, last: int) -> list[str]:
    return [json.dumps({"id": number}) for number in range(first, last)]


def exact(kpipe: Kpipe, name: str, count: int) -> None:
    """Each record is there once, and `kpipe verify` proves it."""
    assert kpipe.sql(f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {name}") == [(count, count, 0, count - 1)]
    assert kpipe.json("verify", name)[-1]["ok"]


def gated(kpipe: Kpipe, name: str, topic: str, write: Callable[..., int]) -> tuple[Path, Path]:
    """Define a pipeline whose tasks wait for a file; return that file, and the one that a waiting task has made.

    Loads one record through the service: columns of a new table are inferred by a program that the run starts itself.
    """
    program, gate, reached = (kpipe.home / part for part in ("gated.py", "gate", "gate.reached"))
    program.write_text(GATED)
    program.chmod(0o755)
    kpipe.define(name, topic, **QUICK, transform={"program": str(program), "args": [str(gate)], "idle_timeout_s": 3600})
    gate.touch()
    write(topic, ids(0, 1))
    run(kpipe, name).ended()
    gate.unlink()
    reached.unlink()
    return gate, reached


def at_work(kpipe: Kpipe) -> list[str]:
    """Command lines of the gated programs."""
    return [words for words in kpipe.processes() if "gate" in words.split("/")[-1] and "python" in words]


def test_a_run_uses_the_jvm_of_the_service_and_starts_none(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    (kpipe, service), name = running, topic(3)
    table = kpipe.home / "countries.csv"
    program = kpipe.home / "same.py"
    program.write_text("#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n")
    program.chmod(0o755)
    table.write_text("code,name\nDE,Germany\nFR,France\n")
    kpipe.define(
        "plain", name, **QUICK, transform={"program": str(program)}, set={"country": "countries(code).name"},
        lookups={"countries": {"path": str(table), "key": "code"}}, errors={"transform": "fail"},
    )  # fmt: skip
    for part in range(3):
        write(name, [json.dumps({"id": 100 * part + at, "code": "DE" if at else "FR"}) for at in range(100)], part)
    first = run(kpipe, "plain")
    _, said = first.ended()
    assert "plain: using the Spark of kpipe serve (pid" in said and "starting Spark" not in said
    (jvm,) = jvms(service)
    write(name, [json.dumps({"id": 300 + at, "code": "DE"}) for at in range(10)])
    second = run(kpipe, "plain", "--json", KPIPE_STAGING=str(kpipe.home.parent / "staging"))
    out, _ = second.ended()
    assert json.loads(out.splitlines()[-1])["rows"] == 10
    assert [jvm.pid for jvm in jvms(service)] == [jvm.pid], "the same one"
    assert "java" not in first.programs | second.programs
    exact(kpipe, "plain", 310)
    assert kpipe.sql("SELECT country, count(*) FROM plain GROUP BY 1 ORDER BY 1") == [("France", 3), ("Germany", 307)]
    assert (kpipe.home / "state" / "serve.spark.json").stat().st_mode & 0o777 == 0o600


def test_a_run_of_dagster_starts_no_jvm_either(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    (kpipe, service), name = running, topic(1)
    kpipe.define("daily", name, **QUICK)
    write(name, ids(0, 50))
    environ = {**prepare(Home(kpipe.home), kpipe.environment()), **DAGSTER}
    make_storage(environ)
    with open_instance(environ["DAGSTER_HOME"]) as instance:
        instance.add_dynamic_partitions(f"kafka/{name}", ["0"])
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "kpipe_assets.definitions"]
    command += ["--select", "daily", "--partition", "0"]
    pipe = subprocess.PIPE
    done = Watched(subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True))
    done.ended()
    assert "java" not in done.programs and len(jvms(service)) == 1
    exact(kpipe, "daily", 50)


@pytest.mark.chaos
@pytest.mark.slow
def test_neither_the_run_nor_the_process_that_waits_for_it_has_a_jvm_under_kpipe_ui(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], free_port: Callable[[], int]
) -> None:
    (kpipe, service), name = running, topic(PARTITIONS)
    kpipe.define("orders", name, **QUICK)
    with running_ui(Home(kpipe.home), free_port(), name, kpipe.brokers, **DAGSTER) as ui:
        seen: set[int] = set()

        def spawned() -> set[int]:
            """Processes that wait for a run, or execute one."""
            for child in psutil.Process(ui.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    assert "java" not in child.name()
                    if "spawn_main" in " ".join(child.cmdline()):
                        seen.add(child.pid)
            return seen

        ui.until(lambda: ui.ask("Partitions", table=["orders"]).get("partitionKeys") == ["0", "1", "2"])
        ui.until(spawned)
        ui.produce(60)
        run = ui.launch("0", "2")
        assert ui.finished(run) == "SUCCESS"
        assert ui.worker(run) in spawned()
    assert len(jvms(service)) == 1
    exact(kpipe, "orders", 60)


def test_the_service_is_killed_while_it_runs_the_tasks_of_a_run(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = topic(2)
    with serving(kpipe, KPIPE_SPARK_MASTER="local[2]") as service:
        service.wait_for("serving the pipelines")
        gate, reached = gated(kpipe, "one", name, write)
        for part in range(2):
            write(name, ids(1 + 50 * part, 51 + 50 * part), part)
        at = run(kpipe, "one")
        until(reached.exists)
        kill(service)
        _, said = at.ended(1)
    assert f"kpipe serve (pid {service.process.pid}) ended while it ran the tasks" in said
    assert "no kpipe serve runs on" in said and "start `kpipe serve` with the same KPIPE_HOME" in said
    assert "java" not in at.programs and "Traceback" not in said
    gate.touch()
    with serving(kpipe, KPIPE_SPARK_MASTER="local[2]") as service:
        run(kpipe, "one").ended()
        assert service.end() == 0
    exact(kpipe, "one", 101)


@pytest.mark.parametrize("victim", [pytest.param("java", marks=pytest.mark.chaos), "worker"])
def test_a_service_that_is_started_again_goes_on_with_the_run(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int], victim: str
) -> None:
    (kpipe, service), name, table = running, topic(2), f"without_{victim}"
    begun = len(service.lines)
    gate, reached = gated(kpipe, table, name, write)
    for part in range(2):
        write(name, ids(1 + 50 * part, 51 + 50 * part), part)
    at = run(kpipe, table)
    until(reached.exists)
    (jvm,) = jvms(service)
    (jvm if victim == "java" else service.worker()).kill()
    service.wait_for("it starts again", begun)
    gate.touch()
    _, said = at.ended()
    assert "the Spark of kpipe serve has ended" in said if victim == "java" else "ended while it ran the tasks" in said
    assert "java" not in at.programs
    exact(kpipe, table, 101)


@pytest.mark.parametrize("signals", [(signal.SIGKILL,), pytest.param((signal.SIGINT, signal.SIGINT), marks=pytest.mark.chaos)])
def test_tasks_of_a_run_that_was_killed_are_cancelled(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int], signals: tuple[signal.Signals, ...]
) -> None:
    (kpipe, service), name, other = running, topic(2), topic(1)
    table, beside = f"cut_{len(signals)}", f"beside_{len(signals)}"
    gate, reached = gated(kpipe, table, name, write)
    for part in range(2):
        write(name, ids(1 + 50 * part, 51 + 50 * part), part)
    kpipe.define(beside, other, **QUICK)
    write(other, ids(0, 10))
    at = run(kpipe, table)
    until(reached.exists)
    until(lambda: bool(at_work(kpipe)))
    for number in signals:
        at.process.send_signal(number)
        time.sleep(0.2)
    at.ended(None)
    until(lambda: not at_work(kpipe), lambda: str(at_work(kpipe)))
    assert not gate.exists()
    sql(kpipe, f"START PIPELINE {beside}")  # its tasks get the cores
    until(lambda: rows(kpipe, beside) == 10 and kpipe.json("status", beside)[0]["state"] == "running")
    assert len(jvms(service)) == 1
    gate.touch()
    run(kpipe, table).ended()
    exact(kpipe, table, 101)
    exact(kpipe, beside, 10)


def test_a_service_that_ends_waits_for_the_batch_of_a_run(
    shared: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """The last test of the shared service."""
    (kpipe, service), name = shared, topic(1)
    gate, reached = gated(kpipe, "last", name, write)
    write(name, ids(1, 20))
    at = run(kpipe, "last")
    until(reached.exists)
    service.process.send_signal(signal.SIGTERM)
    service.wait_for("ending after the current batches of 0 pipelines, and of 1 run of other processes")
    gate.touch()
    at.ended()
    assert service.process.wait(PATIENCE_S) == 0
    exact(kpipe, "last", 20)
    assert not (kpipe.home / "state" / "serve.spark.json").exists() and not kpipe.left_behind()


def test_without_a_service_a_run_starts_no_spark(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = topic(1)
    kpipe.define("one", name, **QUICK)
    write(name, ids(0, 5))
    at = run(kpipe, "one")
    _, said = at.ended(1)
    assert "no kpipe serve runs on" in said and "or unset KPIPE_SPARK" in said
    assert "java" not in at.programs
    refused = kpipe.outside("run", "one", status=2, KPIPE_SPARK="serve").stderr
    assert "KPIPE_SPARK: expected service, found 'serve'" in refused
