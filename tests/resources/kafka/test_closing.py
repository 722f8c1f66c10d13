"""Clients are closed on threads that are reused, and one that hangs or fails delays no other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from resources.kafka.consumer import ends_in_time
from tests.processes import forked


@pytest.fixture(autouse=True)
def a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 300)


def thread_of_a_close() -> int:
    """Return the id of the thread that closes a client."""
    seen: list[int] = []
    assert ends_in_time(lambda: seen.append(threading.get_ident()))
    (ident,) = seen
    return ident


def test_one_thread_closes_many_clients() -> None:
    assert len({thread_of_a_close() for _ in range(100)}) == 1
    assert thread_of_a_close() != threading.get_ident()


@pytest.mark.parametrize("error", [RuntimeError("closed already"), KafkaException(KafkaError(KafkaError._STATE))])
def test_a_client_that_is_closed_already_is_closed(error: Exception) -> None:
    def fail() -> None:
        raise error

    before = thread_of_a_close()
    assert ends_in_time(fail)
    assert thread_of_a_close() == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_an_unexpected_error_another_thread_closes_the_next() -> None:
    threads: list[threading.Thread] = []

    def fail() -> None:
        threads.append(threading.current_thread())
        raise ValueError("a defect")

    assert ends_in_time(fail)
    threads[0].join(300)  # pytest would ascribe its error to a later test
    assert thread_of_a_close()


def test_a_client_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    over, began = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        over.wait()

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 300)
        hanging = pool.submit(ends_in_time, hang)
        assert began.wait(300)
        assert thread_of_a_close()
        over.set()
        assert hanging.result(300)


def test_a_thread_that_was_abandoned_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    over, closed = threading.Event(), threading.Event()
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 0.2)
    assert not ends_in_time(lambda: closed.set() if over.wait() else None)
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 300)
    assert thread_of_a_close()
    over.set()
    assert closed.wait(300)


def test_a_forked_process_closes_on_a_thread_of_its_own() -> None:
    assert thread_of_a_close()
    child = forked(thread_of_a_close)
    child.join(300)
    assert child.exitcode == 0
