"""`kpipe serve` on a real Kafka and Spark: what it starts, ends, notices, survives and refuses."""

from __future__ import annotations

import json
import random
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import psutil
import pytest

from kpipe_assets.runs.service_lock import running_service
from resources.home import Home
from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import sql, wrong
from tests.kpipe_assets.service.serving import kill, lock, serving, until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

QUICK = {"batch": {"interval_ms": 100}, "columns": {"id": "BIGINT"}}


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, java: JavaHome) -> Iterator[Kpipe]:
    """A fresh home, with the session's Kafka; the service has its own Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


def rows(kpipe: Kpipe, table: str) -> int:
    """Rows of the table; 0 while there is none, and while a commit holds the database."""
    with suppress(duckdb.Error):
        return int(kpipe.sql(f"SELECT count(*) FROM {table}")[0][0])
    return 0


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
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    one, two = topic(2), topic(1)
    kpipe.define("one", one, **QUICK)
    kpipe.define("two", two, **QUICK)
    write(one, ids(0, 20))
    write(two, ids(0, 20))
    said = sql(kpipe, "START PIPELINE one")
    assert "no service runs it: start `kpipe serve` or `kpipe ui`" in said
    assert states(kpipe) == {"one": "waiting", "two": "stopped"}
    with serving(kpipe) as service:
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
        assert service.end() == 0
        assert not kpipe.left_behind()


def test_pipelines_that_fail_do_not_stop_the_others(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    good, bad, poison = topic(1), topic(1), topic(1)
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
    with serving(kpipe) as service:
        service.wait_for("poison: failed")
        service.wait_for("missing: failed")
        until(lambda: rows(kpipe, "good") == 5)
        write(good, ids(5, 10))
        until(lambda: rows(kpipe, "good") == 10)
        batches = [json.loads(line) for line in service.lines if line.startswith("{")]
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
        assert service.end() == 0


def test_a_second_service_is_refused_and_health_is_told(
    kpipe: Kpipe, topic: Callable[..., str], free_port: Callable[[], int]
) -> None:
    kpipe.define("one", topic(1), **QUICK)
    sql(kpipe, "START PIPELINE one")
    with serving(kpipe, "--port", str(free_port())) as service:
        service.wait_for("one: started")
        found = running_service(Home(kpipe.home))
        assert found is not None and found.pid == service.process.pid and lock(kpipe.home)["address"] == found.address
        with urllib.request.urlopen(f"{found.address}/health", timeout=60) as answer:
            assert json.load(answer)["pipelines"]["one"]["running"] is True
        refused = kpipe.outside("serve", status=1).stderr
        assert f"is running already: kpipe serve (pid {found.pid})" in refused and f"kill {found.pid}" in refused
        assert "one is running already" in wrong(kpipe, "START PIPELINE one")
        assert service.end() == 0
    assert running_service(Home(kpipe.home)) is None and states(kpipe) == {"one": "waiting"}


def test_spark_that_dies_is_started_again_and_a_second_signal_ends_at_once(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = topic(2)
    kpipe.define("one", name, **QUICK)
    write(name, ids(0, 10))
    sql(kpipe, "START PIPELINE one")
    with serving(kpipe) as service:
        until(lambda: rows(kpipe, "one") == 10)
        (jvm,) = [child for child in service.worker().children() if "java" in child.name()]
        jvm.kill()
        service.wait_for("it starts again")
        write(name, ids(10, 20))
        until(lambda: rows(kpipe, "one") == 20)
        service.process.send_signal(signal.SIGINT)
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(60)
        assert not kpipe.left_behind()
    exact(kpipe, "one", 20)


def _killed(kpipe: Kpipe, topics: list[str], write: Callable[..., int], rounds: int) -> None:
    """Kill the service, its supervisor, Spark or a worker at random moments; every record arrives once."""
    dice, written = random.Random(7), 0
    names = [kpipe.define(f"p{at}", name, **QUICK) for at, name in enumerate(topics)]
    sql(kpipe, "START ALL PIPELINES")
    for _ in range(rounds):
        with serving(kpipe) as service:
            service.wait_for("p0: started")
            for _ in range(3):
                for name in topics:
                    write(name, ids(written, written + 40), dice.randrange(2))
                written += 40
                target = dice.uniform(0, 1) * written
                with suppress(AssertionError):
                    until(lambda least=target: rows(kpipe, names[0]) >= least, patience=30)
            victims = [service.worker(), *service.worker().children(recursive=True), psutil.Process(service.process.pid)]
            victim = dice.choice(victims)
            with suppress(psutil.NoSuchProcess):
                victim.kill()
            if dice.random() < 0.5:
                kill(service)
    with serving(kpipe) as service:
        for name in names:
            until(lambda table=name: rows(kpipe, table) == written)
        assert service.end() == 0
    for name in names:
        exact(kpipe, name, written)


def test_killed_anywhere_it_loses_and_doubles_nothing(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    _killed(kpipe, [topic(2), topic(2)], write, 3)


@pytest.mark.chaos
def test_killed_many_times_with_twenty_pipelines(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    _killed(kpipe, [topic(2) for _ in range(20)], write, 20)


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
