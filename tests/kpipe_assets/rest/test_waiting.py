"""Requests that take long: a batch that has to end first, and slow work beside other requests."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from kpipe_assets.rest import app as application
from kpipe_assets.rest import worker
from kpipe_assets.runs import proof
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.runs.stop_requests import StopRequests
from kpipe_assets.sensors.sensor_state import SensorStates
from resources.home import Home
from tests.kpipe_assets.rest.client import CONFIG, Client, serving


def test_a_pause_is_answered_while_the_batch_goes_on(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_STOP_S", 0.2)
    monkeypatch.setattr(worker, "_CHANGE_S", 0.2)
    api.create(state="RUNNING")
    requests = StopRequests(api.home, "orders", restarts=False)
    with at_work(api.home, "orders"):
        assert api.ask("PUT", "/connectors/orders/pause").status == 202
        assert api.state() == "RUNNING", "as long as the batch goes on"
        while not requests.asked():  # Dagster is imported first
            time.sleep(0.1)
        for method, path in (("PUT", "/connectors/orders/resume"), ("DELETE", "/connectors/orders")):
            answer = api.ask(method, path)
            assert (answer.status, "has not ended" in answer.message) == (409, True), answer
    while api.state() != "PAUSED":
        time.sleep(0.1)
    assert api.ask("PUT", "/connectors/orders/resume").status in (202, 409)


def test_slow_work_is_bounded_and_blocks_nothing_else(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    api.create()
    go, begun = threading.Event(), threading.Semaphore(0)

    class Proof:
        def to_dict(self) -> dict[str, Any]:
            return {"ok": True}

    def slow(*_: object) -> Proof:
        begun.release()
        assert go.wait(300)
        return Proof()

    monkeypatch.setattr(proof, "prove", slow)
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(api.ask, "POST", "/kpipe/v1/pipelines/orders/verify") for _ in range(20)]
        try:
            for _ in range(2):
                assert begun.acquire(timeout=300)
            assert api.get("/connectors") == ["orders"], "other requests are answered"
            while sum(item.done() for item in waiting) < 12:
                time.sleep(0.1)
            assert not begun.acquire(blocking=False), "two at once"
        finally:
            go.set()
        statuses = sorted(item.result(300).status for item in waiting)
    assert statuses == [200] * 8 + [429] * 12


def test_first_requests_may_come_at_once(api: Client) -> None:
    """The first one makes Dagster's databases, while the service reads the switches."""
    names = [f"orders{number}" for number in range(8)]
    ended = threading.Event()

    def look() -> list[frozenset[str]]:
        with SensorStates(api.home) as states:
            return [states.on(), *(states.on() for _ in iter(ended.is_set, True))]

    with ThreadPoolExecutor(10) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        bodies = [{"name": name, "config": {**CONFIG, "into.table": name}} for name in names]
        answers = list(pool.map(lambda body: api.ask("POST", "/connectors", body), bodies))
        ended.set()
        assert [answer.status for answer in answers] == [201] * 8, answers
        assert all(looked.result()[-1] <= {*names} for looked in looking)
    with SensorStates(api.home) as states:
        assert states.on() == {*names}


def test_health_is_answered_while_all_threads_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orchestrator must not kill the pipelines because many requests wait for a destination."""
    go, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: Home) -> list[str]:
        begun.release()
        assert go.wait(300)
        return []

    with serving(Home.at(tmp_path / "home").make(), mounts={"/metrics": PlainTextResponse("up 1")}) as api:
        monkeypatch.setattr(Home, "names", slow)
        with ThreadPoolExecutor(60) as pool:
            waiting = [pool.submit(api.ask, "GET", "/connectors") for _ in range(60)]
            try:
                for _ in range(40):  # AnyIO's limit
                    assert begun.acquire(timeout=300)
                assert api.get("/health")["status"] == "running"
                assert api.ask("GET", "/metrics").text == "up 1"
            finally:
                go.set()
            assert {item.result().status for item in waiting} == {200}


# Every statement that the parser reads, and whether another change of `orders` must end first.
STATEMENTS = {
    "CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE orders FORMAT JSON": True,
    "ALTER PIPELINE orders SET BATCH_INTERVAL 100": True,
    "BACKFILL PIPELINE orders": True,
    "START PIPELINE orders": True,
    "STOP PIPELINE orders": True,
    "DETACH PIPELINE orders": True,
    "DROP PIPELINE orders": True,
    "REPLAY PIPELINE orders": True,
    "RESET PIPELINE orders": True,
    "CLEAR PIPELINE ERRORS FOR orders": True,
    "CLEAR PIPELINE ERRORS": True,
    "TRUNCATE TABLE orders": True,
    "START ALL PIPELINES": True,
    "STOP ALL PIPELINES": True,
    "SHOW PIPELINES": False,
    "SHOW CREATE PIPELINE orders": False,
    "SELECT 1": False,
    "CREATE TABLE another (id BIGINT)": False,
    "DROP PIPELINE other": False,
}


def test_a_statement_waits_for_another_change_of_its_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes at once could overwrite each other's definition, or start what the other one stops."""
    monkeypatch.setattr(worker, "_CHANGE_S", 0.2)
    workers: list[worker.Worker] = []

    def made(*arguments: Any) -> worker.Worker:
        workers.append(worker.Worker(*arguments))
        return workers[-1]

    monkeypatch.setattr(application, "Worker", made)
    with serving(Home.at(tmp_path / "home").make()) as api:
        api.create()
        with workers[0].changing("orders"):
            found = {text: api.ask("POST", "/kpipe/v1/sql", {"statement": text}).text for text in STATEMENTS}
        assert {text: "has not ended" in answer for text, answer in found.items()} == STATEMENTS, found
        assert api.get("/connectors") == ["orders"]


def test_a_query_ends_so_that_it_does_not_hold_the_file(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.ask("POST", "/kpipe/v1/sql", {"statement": "CREATE TABLE t (id BIGINT)"}).status == 200
    for query in (
        "SELECT count(*) FROM range(1000000000) a, range(1000000) b",
        "SELECT a.range FROM range(1000000000) a, range(1000000) b WHERE sha256(a.range::VARCHAR) = ''",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(worker, "_QUERY_S", 0.5)
            answer = api.ask("POST", "/kpipe/v1/sql", {"statement": query})
        assert (answer.status, "took too long" in answer.message) == (400, True), answer
    assert api.ask("POST", "/kpipe/v1/sql", {"statement": "SELECT count(*) FROM t"}).json["rows"] == [[0]]
