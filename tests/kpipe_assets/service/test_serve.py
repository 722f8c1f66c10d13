"""`kpipe serve` on a real Kafka and Spark: what it starts, ends, notices, survives and refuses."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from kpipe_assets.runs.service_lock import running_service
from resources.home import Home
from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import sql, wrong
from tests.kpipe_assets.service.serving import Serving, lock, rows, serving, until, without_pipelines

pytestmark = [pytest.mark.broker, pytest.mark.spark]

QUICK = {"batch": {"interval_ms": 100}, "columns": {"id": "BIGINT"}}


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, java: JavaHome) -> Iterator[Kpipe]:
    """A fresh home, with the session's Kafka; the service has its own Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.fixture(scope="module")
def shared(
    brokers: str, java: JavaHome, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[tuple[Kpipe, Serving]]:
    """A service that several tests use, and its home."""
    kpipe = Kpipe(tmp_path_factory.mktemp("shared") / "home", brokers)
    with serving(kpipe, "--port", str(free_port()), "--json") as service:
        service.wait_for("serving the pipelines")
        yield kpipe, service
    kpipe.kill()


@pytest.fixture
def running(shared: tuple[Kpipe, Serving]) -> Iterator[tuple[Kpipe, Serving]]:
    """That service, without pipelines before and after the test."""
    with without_pipelines(shared[0]):
        yield shared


def states(kpipe: Kpipe) -> dict[str, str]:
    return {line["pipeline"]: line["state"] for line in kpipe.json("status")}


def exact(kpipe: Kpipe, name: str, count: int) -> None:
    """Each record is there once, and `kpipe verify` proves it."""
    found = kpipe.sql(f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {name}")
    assert found == [(count, count, 0, count - 1)]
    assert kpipe.json("verify", name)[-1]["ok"]


def ids(first: int, last: int) -> list[str]:
    return [json.dumps({"id": number}) for number in range(first, last)]


def test_it_runs_what_is_started_and_notices_every_change(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    (kpipe, service), one, two = running, topic(2), topic(1)
    kpipe.define("one", one, **QUICK)
    kpipe.define("two", two, **QUICK)
    write(one, ids(0, 20))
    write(two, ids(0, 20))
    sql(kpipe, "START PIPELINE one")
    until(lambda: rows(kpipe, "one") == 20)
    assert rows(kpipe, "two") == 0
    status = {line["pipeline"]: line for line in kpipe.json("status")}
    assert status["one"]["state"] == "running" and status["two"]["state"] == "stopped"
    assert status["one"]["run_by"] == [f"kpipe serve (pid {service.process.pid})"] and status["two"]["run_by"] == []
    assert sql(kpipe, "START PIPELINE two") == "pipeline two started\n"
    until(lambda: rows(kpipe, "two") == 20)
    (jvm,) = [child for child in service.worker().children() if "java" in child.name()]

    # a definition that is edited by hand
    kpipe.define("one", one, **QUICK, set={"id": "CAST(id AS BIGINT) + 1000"})
    service.wait_for("one: ended after")
    seen = len(service.lines)
    write(one, ids(20, 30))
    until(lambda: rows(kpipe, "one") == 30)
    assert kpipe.sql("SELECT count(*) FROM one WHERE id >= 1020") == [(10,)]

    # CREATE OR REPLACE
    sql(
        kpipe,
        f"CREATE OR REPLACE PIPELINE one AS LOAD DATA KAFKA '{kpipe.brokers}/{one}' BATCH_INTERVAL 100"
        " INTO TABLE one FORMAT JSON SET id = CAST(id AS BIGINT) + 5000",
    )
    service.wait_for("one: ended after", seen)
    write(one, ids(30, 40))
    until(lambda: rows(kpipe, "one") == 40)
    assert kpipe.sql("SELECT count(*) FROM one WHERE id >= 5030") == [(10,)]

    # STOP, DETACH, START, DROP
    assert sql(kpipe, "STOP PIPELINE one; DETACH PIPELINE two").startswith("pipeline one stopped\n")
    assert states(kpipe) == {"one": "stopped", "two": "detached"}
    write(one, ids(40, 50))
    write(two, ids(20, 30))
    sql(kpipe, "START PIPELINE two")
    until(lambda: rows(kpipe, "two") == 30)
    assert rows(kpipe, "one") == 40, "it is stopped"
    sql(kpipe, "STOP PIPELINE two; DROP PIPELINE two")
    sql(kpipe, "START PIPELINE one; STOP PIPELINE one CANCEL; START PIPELINE one")
    until(lambda: rows(kpipe, "one") == 50)
    (kpipe.home / "pipelines" / "one.yaml").unlink()
    until(lambda: not list(kpipe.home.glob("state/one.*.run")))
    assert jvm.is_running(), "one Spark, from the first batch to the last"


def test_pipelines_that_fail_do_not_stop_the_others(
    running: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    (kpipe, service), good, bad, poison = running, topic(1), topic(1), topic(1)
    begun = len(service.lines)
    kpipe.define("good", good, **QUICK)
    kpipe.define("bad", bad, **QUICK, start="earliest")  # no such field
    program = kpipe.home / "dies.py"
    program.write_text("#!/usr/bin/env python3\nimport os, sys\nfor line in sys.stdin:\n    os.kill(os.getpid(), 9)\n")
    program.chmod(0o755)
    kpipe.define("poison", poison, **QUICK, transform={"program": str(program)}, errors={"transform": "fail"})
    kpipe.define("missing", "no-such-topic", **QUICK)
    for name in (good, poison):
        write(name, ids(0, 5))
    sql(kpipe, "START PIPELINE good; START PIPELINE poison; START PIPELINE missing")
    service.wait_for("poison: failed", begun)
    service.wait_for("missing: failed", begun)
    until(lambda: rows(kpipe, "good") == 5)
    write(good, ids(5, 10))
    until(lambda: rows(kpipe, "good") == 10)
    batches = [json.loads(line) for line in service.lines[begun:] if line.startswith("{")]
    assert {batch["pipeline"] for batch in batches} == {"good"} and sum(batch["rows"] for batch in batches) == 10
    home = Home(kpipe.home)
    # The run after the first failure starts at once; later ones wait, so both are in error at some moment.
    until(lambda: [home.noted(name)["state"] for name in ("poison", "missing")] == ["error", "error"])
    service.wait_for("missing: failed", 1 + next(at for at, line in enumerate(service.lines) if "missing: failed" in line))
    seen = len(service.lines)
    program.write_text("#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n")
    sql(kpipe, "START FAILED PIPELINES")  # not after the wait, but now
    until(lambda: rows(kpipe, "poison") == 5, lambda: str(service.lines[-30:]))
    service.wait_for("missing: started", seen)


def test_a_second_service_is_refused_and_health_is_told(running: tuple[Kpipe, Serving], topic: Callable[..., str]) -> None:
    kpipe, service = running
    kpipe.define("first", topic(1), **QUICK)
    sql(kpipe, "START PIPELINE first")
    service.wait_for("first: started")
    found = running_service(Home(kpipe.home))
    assert found is not None and found.pid == service.process.pid and lock(kpipe.home)["address"] == found.address
    with urllib.request.urlopen(f"{found.address}/health", timeout=300) as answer:
        assert json.load(answer)["pipelines"]["first"]["running"] is True
    refused = kpipe.outside("serve", status=1).stderr
    assert f"is running already: kpipe serve (pid {found.pid})" in refused and f"kill {found.pid}" in refused
    assert "first is running already" in wrong(kpipe, "START PIPELINE first")


def test_a_signal_prints_the_stack_of_every_thread(shared: tuple[Kpipe, Serving]) -> None:
    _, service = shared
    until(lambda: signal.SIGUSR1 in _caught(service.worker().pid))
    service.worker().send_signal(signal.SIGUSR1)
    service.wait_for('service.py", line')


def test_it_ends_in_order_and_leaves_nothing_behind(
    shared: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """The last test of the shared service."""
    (kpipe, service), name = shared, topic(1)
    kpipe.define("last", name, **QUICK)
    write(name, ids(0, 5))
    sql(kpipe, "START PIPELINE last")
    until(lambda: rows(kpipe, "last") == 5)
    assert service.end() == 0
    assert running_service(Home(kpipe.home)) is None and states(kpipe) == {"last": "waiting"}
    assert not kpipe.left_behind()


def _caught(pid: int) -> set[int]:
    """Return the signals that a process handles (SigCgt in proc(5))."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return {number for number in range(1, 65) if int(line.split()[1], 16) >> (number - 1) & 1}


def test_spark_that_dies_is_started_again_and_a_second_signal_ends_at_once(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = topic(2)
    kpipe.define("one", name, **QUICK)
    kpipe.define("two", name, **QUICK)
    write(name, ids(0, 10))
    assert "no service runs it: start `kpipe serve` or `kpipe ui`" in sql(kpipe, "START PIPELINE one")
    assert states(kpipe) == {"one": "waiting", "two": "stopped"}
    with serving(kpipe) as service:
        until(lambda: rows(kpipe, "one") == 10)
        (jvm,) = [child for child in service.worker().children() if "java" in child.name()]
        jvm.kill()
        service.wait_for("it starts again")
        write(name, ids(10, 20))
        until(lambda: rows(kpipe, "one") == 20)
        service.process.send_signal(signal.SIGINT)
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(300)
        assert not kpipe.left_behind()
    exact(kpipe, "one", 20)


@pytest.mark.chaos  # each time, without a JVM: tests/survival/test_races.py, and rivals that go on in tests/simulation
def test_two_homes_on_one_destination_are_safe(
    kpipe: Kpipe, tmp_path: Path, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name, other = topic(2), Kpipe(tmp_path / "other", kpipe.brokers)
    database = str(tmp_path / "shared.duckdb")
    for home in (kpipe, other):
        home.define("one", name, **QUICK, into={"table": "one", "database": database})
        sql(home, "START PIPELINE one")
    try:
        with serving(kpipe) as first, serving(other) as second:
            for at in range(5):
                for service in (first, second):
                    service.wait_for("one: started")
                write(name, ids(20 * at, 20 * at + 20), at % 2)

            def loaded() -> int:
                with suppress(duckdb.Error), duckdb.connect(database, read_only=True) as connection:
                    return int(connection.execute("SELECT count(*) FROM one").fetchall()[0][0])
                return 0

            until(lambda: loaded() == 100)
            assert first.end() == 0 and second.end() == 0
        with duckdb.connect(database, read_only=True) as connection:
            assert connection.execute("SELECT count(*), count(DISTINCT id) FROM one").fetchall() == [(100, 100)]
        assert kpipe.json("verify", "one")[-1]["ok"]
    finally:
        other.kill()
