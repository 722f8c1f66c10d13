"""Idle connections are used again by those with the same key, while they are usable, and closed after a moment."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass

import pytest

from resources.destinations.sql.idle_connections import IdleConnections, Opened
from tests.patience import longer
from tests.processes import forked


@dataclass(eq=False)
class Line:
    usable: bool = True
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def idle(keep_s: float = 60) -> IdleConnections[Line]:
    return IdleConnections(lambda line: line.usable, Line.close, most=3, keep_s=keep_s)


def put(kept: IdleConnections[Line], line: Line) -> None:
    kept.put("a", Opened(line))


def taken(kept: IdleConnections[Line], key: str = "a") -> Line | None:
    opened = kept.take(key)
    return opened and opened.connection


def test_a_connection_is_used_again_by_the_same_key_only() -> None:
    kept, line = idle(), Line()
    put(kept, line)
    assert kept.take("b") is None
    assert taken(kept) is line
    assert kept.take("a") is None, "it is in use"
    assert not line.closed


def test_a_connection_that_the_server_ended_is_closed() -> None:
    kept, good, bad = idle(), Line(), Line(usable=False)
    put(kept, good)
    put(kept, bad)
    assert taken(kept) is good
    assert bad.closed and not good.closed


def test_the_oldest_ones_make_room() -> None:
    kept, lines = idle(), [Line() for _ in range(5)]
    for line in lines:
        put(kept, line)
    assert [line.closed for line in lines] == [True, True, False, False, False]
    kept.close_all()
    assert all(line.closed for line in lines)


def test_idle_connections_are_closed_after_a_moment_and_others_are_kept_later() -> None:
    kept = idle(keep_s=0.05)
    for _ in range(2):
        line, began = Line(), time.monotonic()
        put(kept, line)
        while not line.closed:
            assert time.monotonic() - began < 300
            time.sleep(0.01)


def test_a_forked_process_does_not_use_the_connections_of_its_parent() -> None:
    kept, line = idle(), Line()
    put(kept, line)
    queue = multiprocessing.get_context("fork").Queue()

    child = forked(lambda: queue.put(kept.take("a") is None))
    assert queue.get(timeout=300) is True
    child.join(300)
    assert taken(kept) is line


@pytest.mark.parametrize("usable", [True, False])
def test_a_taken_connection_is_not_closed_by_time(usable: bool) -> None:
    def check(keep_s: float) -> None:
        kept, line = idle(keep_s), Line(usable)
        put(kept, line)
        found = taken(kept)
        time.sleep(5 * keep_s)
        assert line.closed is (found is None) is not usable

    longer(check, 0.02, 0.2, 2, 20)  # a busy machine may need longer until it is taken


def test_a_connection_is_not_kept_for_ever() -> None:
    kept: IdleConnections[Line] = IdleConnections(lambda line: line.usable, Line.close, lasts_s=100)
    old, young = Line(), Line()
    kept.put("a", Opened(old, time.monotonic() - 101))
    kept.put("a", Opened(young, time.monotonic() - 90))
    assert old.closed and not young.closed
    again = kept.take("a")
    assert again is not None and again.moment < time.monotonic() - 89, "its age is not forgotten"
