"""Passes of many pipelines begin in order, a few at a time, and one that hangs delays the others only once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kpipe_assets.service.admission import Admission
from tests.patience import looks


class Pass:
    """A pass in a thread, which ends when the test says so."""

    def __init__(self, pool: ThreadPoolExecutor, admission: Admission, is_over: Callable[[], bool] = lambda: False) -> None:
        self.began, self.end = threading.Event(), threading.Event()

        def work() -> bool:
            with admission.turn(is_over) as admitted:
                self.began.set()
                assert self.end.wait(300)
                return admitted

        self.result: Future[bool] = pool.submit(work)


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def waiting(admission: Admission, number: int) -> None:
    """Wait until this many passes wait for their turn."""
    while len(admission._waiting) < number:
        time.sleep(0.001)


def test_passes_begin_in_the_order_in_which_they_came() -> None:
    admission = Admission(at_once=1, slow_s=3600)
    with pool() as threads:
        passes = []
        for number in range(5):
            passes.append(Pass(threads, admission))
            waiting(admission, number) if number else passes[0].began.wait(300)
        for number, one in enumerate(passes):
            assert one.began.wait(300)
            assert [other.began.is_set() for other in passes[number + 1 :]] == [False] * (4 - number)
            one.end.set()
            assert one.result.result(300)


def test_as_many_as_allowed_are_at_work() -> None:
    admission = Admission(at_once=2, slow_s=3600)
    with pool() as threads:
        first, second, third = Pass(threads, admission), Pass(threads, admission), Pass(threads, admission)
        for _ in looks(300):
            began = sum(one.began.is_set() for one in (first, second, third))
            if began >= 2 and len(admission._waiting) == 1:  # each pass waits first, and begins after it was admitted
                break
        assert began == 2
        for one in (first, second, third):
            one.end.set()
        assert all(one.result.result(300) for one in (first, second, third))


def test_a_pass_that_hangs_does_not_count() -> None:
    admission = Admission(at_once=1, slow_s=0.2)
    with pool() as threads:
        hanging = Pass(threads, admission)
        assert hanging.began.wait(300)
        for _ in range(3):
            other = Pass(threads, admission)
            assert other.began.wait(300)
            other.end.set()
            assert other.result.result(300)
        assert not hanging.result.done()
        hanging.end.set()


def test_a_run_that_is_over_does_not_wait_for_its_turn() -> None:
    admission, over = Admission(at_once=1, slow_s=3600), threading.Event()
    with pool() as threads:
        busy = Pass(threads, admission)
        assert busy.began.wait(300)
        ending = Pass(threads, admission, over.is_set)
        last = Pass(threads, admission)
        waiting(admission, 2)
        over.set()
        ending.end.set()
        assert ending.result.result(300) is False
        assert not last.began.is_set()
        busy.end.set()
        last.end.set()
        assert last.result.result(300)


def test_a_pass_that_fails_leaves_its_place() -> None:
    admission = Admission(at_once=1, slow_s=3600)
    with pytest.raises(OSError, match="disk"), admission.turn():
        raise OSError("disk")
    with admission.turn(lambda: True) as admitted:
        assert admitted
