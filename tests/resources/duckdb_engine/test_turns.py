"""Threads that use one DuckDB file: many read or one writes, in the order in which they came."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from resources.duckdb_engine import turns as module
from resources.duckdb_engine.file_connection import Database
from resources.duckdb_engine.turns import Turn, Turns


def enter(turns: Turns, read_only: bool) -> tuple[threading.Event, list[Turn | None]]:
    """Enter in another thread, and return when that thread waits or has entered. The event is set when it has entered.

    The thread stays: its identifier would be that of the next thread otherwise.
    """
    found: list[Turn | None] = []
    entered = threading.Event()

    def work() -> None:
        found.append(turns.enter(read_only, 600))
        entered.set()
        threading.Event().wait()

    before = len(turns._waiting)
    threading.Thread(target=work, daemon=True).start()
    while not found and len(turns._waiting) == before:
        entered.wait(0.001)
    return entered, found


def test_a_writer_waits_for_readers_and_later_readers_wait_for_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OVERTAKE_S", 60.0)
    turns = Turns()
    _, (first,) = enter(turns, True)
    _, (second,) = enter(turns, True)
    assert first is not None and second is not None
    writing, writer = enter(turns, False)
    reading, reader = enter(turns, True)
    assert not writer and not reader
    turns.leave(first)
    assert not writer
    turns.leave(second)
    writing.wait(300)
    assert writer and not reader, "one writer alone"
    assert writer[0] is not None
    turns.leave(writer[0])
    reading.wait(300)
    assert reader and turns.enter(False, 0) is None and turns.enter(True, 0) is not None


def test_a_thread_reads_while_it_reads_and_a_stuck_reader_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    assert turns.enter(True, 0) is not None
    _, writer = enter(turns, False)
    assert turns.enter(True, 0) is not None, "this thread reads already: it would wait for itself"
    monkeypatch.setattr(module, "_OVERTAKE_S", 0.01)
    entered, reader = enter(turns, True)
    entered.wait(300)
    assert reader and not writer, "the thread that reads may wait for this one"


def test_who_gives_up_lets_the_next_in() -> None:
    turns = Turns()
    _, (reader,) = enter(turns, True)
    assert reader is not None
    assert turns.enter(False, 0.01) is None
    assert turns.enter(True, 0) is not None


def test_a_hundred_threads_write_and_read_one_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.duckdb", [tmp_path], lock_timeout_s=600)  # the last waits for all others
    with database.write() as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")

    def work(number: int) -> int:
        for _ in range(3):
            with database.read() as connection:
                connection.execute("SELECT count(*) FROM t").fetchall()
        with database.write() as connection:
            connection.execute("INSERT INTO t VALUES ($1)", [number])
        return number

    with ThreadPoolExecutor(100) as pool:
        assert sorted(pool.map(work, range(100))) == list(range(100))
    with database.read() as connection:
        assert connection.execute("SELECT count(*), sum(a) FROM t").fetchall() == [(100, 4950)]
