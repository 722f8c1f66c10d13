"""Requests that take long: a batch that has to end first, and slow work beside other requests."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kpipe_assets.rest import worker
from kpipe_assets.runs import proof
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.runs.stop_requests import StopRequests
from tests.kpipe_assets.rest.client import Client


def test_a_pause_is_answered_while_the_batch_goes_on(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_STOP_S", 0.2)
    monkeypatch.setattr(worker, "_CHANGE_S", 0.2)
    api.create(state="RUNNING")
    requests = StopRequests(api.home, "orders", restarts=False)
    with at_work(api.home, "orders"):
        assert api.ask("PUT", "/connectors/orders/pause").status == 202
        assert api.state() == "RUNNING", "as long as the batch goes on"
        assert requests.asked()
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
