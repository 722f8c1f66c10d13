"""Marks in the home: who is at work, as others see it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kpipe_assets.runs.run_locks import at_work, is_alive, is_locked, is_running, marked, runs
from resources.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").make()


def marks(home: Home) -> list[Path]:
    """The files of runs in a home's state."""
    return sorted(path for path in home.state.iterdir() if path.name != "format_version")


def test_a_run_is_seen_while_it_lasts(home: Home) -> None:
    assert not is_running(home, "orders") and not is_alive(home, "orders", "one")
    with at_work(home, "orders"), marked(home, "orders", "one"):
        assert is_running(home, "orders") and is_alive(home, "orders", "one")
        assert list(runs(home, "orders")) == [("one", os.getpid())]
        assert not is_running(home, "order") and not is_alive(home, "orders", "two")
    assert not is_running(home, "orders") and list(runs(home, "orders")) == []
    assert marks(home) == []


def test_of_two_at_work_the_one_that_ends_first_leaves_the_other_seen(home: Home) -> None:
    with marked(home, "orders", "one"):
        with marked(home, "orders", "two"):
            assert [run for run, _ in runs(home, "orders")] == ["one", "two"]
        assert is_running(home, "orders") and [run for run, _ in runs(home, "orders")] == ["one"]


def test_who_looks_is_never_taken_for_a_run(home: Home) -> None:
    """Found by a START that was refused: the sensor had looked at the same moment."""
    file = home.state / "orders.left.running"  # of a run that was killed
    file.touch()
    with file.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as is_locked does, for longer
        assert not is_locked(file) and not is_running(home, "orders")
    start = threading.Barrier(4)

    def look() -> int:
        start.wait()
        return sum(is_running(home, "orders") for _ in range(2000))

    with ThreadPoolExecutor(4) as pool:
        assert [future.result() for future in [pool.submit(look) for _ in range(4)]] == [0] * 4


def test_a_killed_run_is_not_alive_and_its_marks_are_removed_by_a_later_one(home: Home) -> None:
    text = (
        "import pathlib, sys, time\n"
        "from kpipe_assets.runs.run_locks import marked\n"
        "from resources.home import Home\n"
        "with marked(Home(pathlib.Path(sys.argv[1])), 'orders', 'killed'):\n"
        "    print('in', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text, str(home.path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"in\n"
        assert is_alive(home, "orders", "killed") and is_running(home, "orders")
        process.kill()
    assert not is_alive(home, "orders", "killed") and not is_running(home, "orders")
    left = marks(home)
    assert len(left) == 2
    with marked(home, "orders", "next"):
        assert set(left) < set(home.state.iterdir()), "they may be about to be locked"
    for mark in left:
        os.utime(mark, (time.time() - 100,) * 2)
    with marked(home, "orders", "next"):
        assert not set(left) & set(home.state.iterdir())
