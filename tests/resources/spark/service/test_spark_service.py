"""Runs and the service's Spark: who is accepted, who is refused, and what is left behind, without any task."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import KpipeError, NotAvailable, WorkerLost
from resources.home import Home
from resources.spark.service import address_file, protocol, server
from resources.spark.service.client import ServiceSpark
from resources.spark.service.protocol import Environment
from resources.spark.service.server import SparkServer


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home").make()


def no_spark() -> Any:
    raise NotAvailable("Java is missing", "install it")


@pytest.fixture
def serving(home: Home) -> Iterator[SparkServer]:
    """A service whose Spark does not start: a run gets that far only if it was accepted."""
    made = SparkServer(home, no_spark, lambda: False, print)
    made.start()
    yield made
    made.close()


def running(home: Home, name: str = "kpipe serve (pid 7)", patience_s: float = 300.0) -> ServiceSpark:
    return ServiceSpark(home, lambda: name, patience_s)


def greeted(at: Home, **other: str) -> dict[str, Any]:
    """Return the service's line for a process with other versions."""
    address = address_file.published(at.state)
    assert address is not None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address))
        protocol.send_line(connection, protocol.greeting(replace(Environment.own(at.path), **other)))
        return protocol.receive_line(connection)


def test_the_address_can_be_read_by_its_user_only_and_is_removed(home: Home, serving: SparkServer) -> None:
    file, address = home.state / "serve.spark.json", address_file.published(home.state)
    assert address is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(address.parent.stat().st_mode) == 0o700
    serving.close()
    assert address_file.published(home.state) is None and not file.exists() and not address.exists()


def test_the_address_of_another_service_is_not_removed(home: Home, serving: SparkServer) -> None:
    mine = address_file.published(home.state)
    assert mine is not None
    address_file.publish(home.state, mine.with_name("other"))
    serving.close()
    assert address_file.published(home.state) == mine.with_name("other") and not mine.exists()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"kpipe": "0.0.9"}, r"the service runs kpipe \d\S+ and not 0.0.9 -> start `kpipe serve` from the environment"),
        ({"pyspark": "3.5.1"}, r"the service runs PySpark \d\S+ and not 3.5.1"),
        ({"python": "3.9.1"}, r"the service runs Python \d\S+ and not 3.9.1"),
        ({"kpipe": "0.0.9", "python": "3.9.1"}, r"the service runs kpipe \d\S+ and not 0.0.9, Python \d\S+ and not 3.9.1"),
        ({"home": "/elsewhere"}, r"the service's KPIPE_HOME is \S+, this run's is /elsewhere -> set KPIPE_HOME to the same path"),
    ],
)
def test_a_run_of_another_version_is_refused_by_name(home: Home, serving: SparkServer, other: dict[str, str], words: str) -> None:
    error = protocol.refusal(greeted(home, **other))
    assert isinstance(error, NotAvailable)
    with pytest.raises(NotAvailable, match=words):
        raise error
    assert serving.busy() == 0


def test_a_run_is_told_why_the_services_spark_does_not_start(home: Home, serving: SparkServer) -> None:
    with pytest.raises(NotAvailable, match="Java is missing -> install it"):
        running(home).connect()


def test_without_a_service_the_error_names_what_to_do(home: Home) -> None:
    address_file.publish(home.state, home.state / "of-a-killed-service")
    with pytest.raises(KpipeError, match=r"no kpipe serve runs on \S+ -> start `kpipe serve` with the same KPIPE_HOME") as found:
        running(home, "").connect()
    assert not found.value.retriable


def test_a_service_that_opens_no_socket_is_waited_for_then_retried(home: Home) -> None:
    with pytest.raises(WorkerLost, match=r"kpipe serve \(pid 7\) has accepted no connection for 0.3 s") as found:
        running(home, patience_s=0.3).connect()
    assert found.value.retriable


def test_a_service_that_is_starting_is_waited_for(home: Home) -> None:
    made = SparkServer(home, no_spark, lambda: False, print)
    later = threading.Timer(0.5, made.start)
    later.start()
    try:
        with pytest.raises(NotAvailable, match="Java is missing"):
            running(home).connect()
    finally:
        later.join()
        made.close()


def test_a_closed_server_accepts_nothing_more(home: Home, serving: SparkServer) -> None:
    address = address_file.published(home.state)
    serving.close()
    with socket.socket(socket.AF_UNIX) as connection, pytest.raises(OSError):
        connection.connect(str(address))


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"[]\n", b"x" * 100_000, b"\xff\n", b""])
def test_what_is_no_run_does_not_harm_the_server(home: Home, serving: SparkServer, line: bytes) -> None:
    address = address_file.published(home.state)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address))
        with suppress(ConnectionResetError, BrokenPipeError):  # it was closed before all of it was read
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert "error" in greeted(home, kpipe="0.0.9")


def test_more_runs_than_the_server_takes_are_told_to_come_back(
    home: Home, serving: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_RUNS", 1)
    monkeypatch.setattr(server, "_GREETING_S", 600.0)  # the first must not make room
    address = address_file.published(home.state)
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(str(address))  # a run that has not greeted
        with pytest.raises(WorkerLost, match="1 runs use the Spark of kpipe serve already"):
            running(home).connect()


def test_a_connection_that_was_closed_is_noticed() -> None:
    one, other = socket.socketpair()
    with one:
        assert not protocol.has_closed(one)
        other.close()
        assert protocol.has_closed(one)


def test_a_message_that_was_cut_off_is_an_error() -> None:
    one, other = socket.socketpair()
    with one:
        other.sendall((100).to_bytes(8, "big") + b"half")
        other.close()
        with pytest.raises(EOFError):
            protocol.receive(one)
