"""Queries in a process of their own: what they return, what bounds them, and what happens when it ends."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from kpipe.errors import InvalidStatement, KpipeError
from kpipe_assets.statements import isolated
from kpipe_assets.statements.isolated import IsolatedQueries
from kpipe_assets.statements.json_rows import MOST_BYTES, rendered
from kpipe_assets.statements.result import Result
from resources.home import Home
from tests.patience import looks


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedQueries]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        made = IsolatedQueries(Home.at(tmp_path_factory.mktemp("home") / "home").make())
        yield made
        made.close()


def rows(queries: IsolatedQueries, statement: str, limit_s: float = 300) -> Any:
    return json.loads(queries.query(statement, 1000, limit_s))["rows"]


class Peak(threading.Thread):
    """The growth of this process's memory while inside, in bytes."""

    def __enter__(self) -> Peak:
        self._process, self._ended, self.bytes = psutil.Process(), threading.Event(), 0
        self._before = self._process.memory_info().rss
        self.start()
        return self

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.bytes = max(self.bytes, self._process.memory_info().rss - self._before)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def test_large_rows_take_no_more_memory_here_than_the_answer(queries: IsolatedQueries) -> None:
    rows(queries, "CREATE TABLE large (id BIGINT, text VARCHAR)")
    with Peak() as peak:
        found = json.loads(queries.query("SELECT repeat('x', 900000) AS text FROM range(300)", 1000, 300))
        assert len(found["rows"]) == 18 and found["truncated"] is True
        with pytest.raises(InvalidStatement, match="the query takes too much memory, or does not end -> select fewer columns"):
            queries.query("SELECT repeat('x', 900000) FROM range(2000)", 1000, 300)
    assert peak.bytes < 10 * MOST_BYTES, "DuckDB takes 1.8 GB"
    assert rows(queries, "SELECT 7") == [[7]]


@pytest.mark.parametrize(
    "statement", ["SELECT repeat('x', 4000000000)", "SELECT list(repeat(range::VARCHAR, 900000)) FROM range(2000)"]
)
def test_a_query_that_needs_more_memory_is_refused(queries: IsolatedQueries, statement: str) -> None:
    with pytest.raises(InvalidStatement, match="or use kpipe sql"):
        queries.query(statement, 1000, 300)


def test_errors_arrive_as_their_own_class_with_all_parts(queries: IsolatedQueries) -> None:
    with pytest.raises(InvalidStatement, match=r"line 1, column 8: .*nothing") as found:
        queries.query("SELECT nothing FROM (SELECT 1 AS something)", 10, 300)
    assert found.value.hint
    with pytest.raises(InvalidStatement, match="took too long"):
        queries.query("SELECT count(*) FROM range(1000000000) a, range(1000000) b", 10, 0.5)
    with pytest.raises(KpipeError, match="nobody"):
        queries.errors("nobody", 10)


def test_a_process_that_has_ended_is_replaced(queries: IsolatedQueries) -> None:
    assert rows(queries, "SELECT 1") == [[1]]
    before = queries._process
    assert before is not None
    before.kill()
    before.wait()
    assert rows(queries, "SELECT 2") == [[2]]
    assert queries._process is not before


def test_a_query_that_was_killed_is_an_error_and_is_not_repeated(queries: IsolatedQueries) -> None:
    rows(queries, "SELECT 1")
    assert queries._process is not None
    server = psutil.Process(queries._process.pid)
    while server.children():  # the fork of the query above, which has answered and not yet ended
        time.sleep(0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rows, queries, "SELECT count(*) FROM range(1000000000) a, range(1000000) b")
        while not (forks := server.children()):
            assert not waiting.done()
        forks[0].send_signal(signal.SIGKILL)
        with pytest.raises(InvalidStatement, match="takes too much memory, or does not end"):
            waiting.result(300)
    assert rows(queries, "SELECT 3") == [[3]]
    assert not all(server.children() for _ in looks(300)), "forks end, and are no zombies"


def test_queries_run_at_once(queries: IsolatedQueries) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda number: rows(queries, f"SELECT {number}"), range(8))
        assert list(answers) == [[[number]] for number in range(8)]


def test_a_process_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = IsolatedQueries(Home.at(tmp_path / "home").make())
    monkeypatch.setattr(isolated.sys, "executable", "/bin/false")
    try:
        with pytest.raises(KpipeError, match="the process for queries ends as soon as it has started"):
            rows(made, "SELECT 1")
    finally:
        made.close()


def test_the_process_ends_with_its_owner(tmp_path: Path) -> None:
    made = IsolatedQueries(Home.at(tmp_path / "home").make())
    rows(made, "SELECT 1")
    process = made._process
    assert process is not None and made._channel is not None
    made._channel.close()  # as the operating system does when the owner was killed
    assert process.wait(300) == 0
    made.close()


def test_json_is_bounded_in_rows_and_bytes() -> None:
    seen: list[int] = []

    def given() -> Iterator[tuple[str, int]]:
        for at in range(100):
            seen.append(at)
            yield "ü" * 10, at

    def parsed(most_rows: int, most_bytes: int) -> Any:
        seen.clear()
        return json.loads(rendered(Result("done", ("text", "at"), given()), most_rows, most_bytes))

    every = parsed(100, 100_000)
    assert "truncated" not in every and every["message"] == "done" and every["columns"] == ["text", "at"]
    assert every["rows"] == [["ü" * 10, at] for at in range(100)]
    assert len(parsed(7, 100_000)["rows"]) == 7 and len(seen) == 8
    few = parsed(100, 210)
    assert few["truncated"] is True and len(few["rows"]) == 3, "each takes 66 bytes in ASCII"
    assert len(json.dumps(few["rows"], separators=(",", ":"))) <= 210 and len(seen) == 4
    with pytest.raises(InvalidStatement, match="the first row of the result is too large: expected at most 50 bytes"):
        parsed(100, 50)
