"""The file with the socket's path: a running service restores it, and a run refuses one that stays unusable."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NotAvailable
from resources.home import Home
from resources.spark.service import address_file, server
from resources.spark.service.client import ServiceSpark
from resources.spark.service.server import SparkServer
from tests.resources.spark.service.test_spark_service import no_spark

Break = Callable[[Path, Path], Any]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home").make()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def serving(home: Home, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkServer]:
    monkeypatch.setattr(server, "_CHECK_S", 0.05)
    made = SparkServer(home, no_spark, lambda: False, lines.append)
    made.start()
    yield made
    made.close()


def run(home: Home, rewrite_s: float = 300.0) -> ServiceSpark:
    return ServiceSpark(home, lambda: "kpipe serve (pid 7)", 300.0, rewrite_s)


def stale(file: Path, socket: Path) -> None:
    address_file.publish(file.parent, socket.with_name("other"))


DAMAGED: dict[str, Break] = {
    "cut off": lambda file, _: file.write_text('{"socket": "/tm'),
    "empty": lambda file, _: file.write_text(""),
    "not text": lambda file, _: file.write_bytes(b"\xff\x00"),
    "another type": lambda file, _: file.write_text('{"socket": 7}'),
    "a zero byte": lambda file, _: file.write_text('{"socket": "/tmp/\\u0000"}'),
    "stale": stale,
}


@pytest.mark.parametrize("damage", [*DAMAGED.values(), lambda file, _: file.unlink()], ids=[*DAMAGED, "removed"])
def test_a_running_service_restores_the_file(home: Home, serving: SparkServer, lines: list[str], damage: Break) -> None:
    file, socket = address_file.path(home.state), address_file.published(home.state)
    assert socket is not None
    damage(file, socket)
    with pytest.raises(NotAvailable, match="Java is missing"):  # it was accepted
        run(home).connect()
    assert address_file.published(home.state) == socket and file.stat().st_mode & 0o777 == 0o600
    assert lines == [f"{file} was changed or removed: it was written again"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_running_service_restores_its_socket(home: Home, serving: SparkServer, lines: list[str], folder: bool) -> None:
    socket = address_file.published(home.state)
    assert socket is not None
    if folder:
        shutil.rmtree(socket.parent.rename(f"{socket.parent}-away"))
    else:
        socket.unlink()
    with pytest.raises(NotAvailable, match="Java is missing"):
        run(home).connect()
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    assert lines == [f"{socket} was removed: it was opened again"]


def test_a_service_that_cannot_write_the_file_says_so_once_and_goes_on(
    home: Home, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_CHECK_S", 0.02)
    file = address_file.path(home.state)
    (file / "in the way").mkdir(parents=True)
    made = SparkServer(home, no_spark, lambda: False, lines.append)
    made.start()
    try:
        deadline = time.monotonic() + 300
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(lines) == 1 and str(file) in lines[0]
        assert lines[0].startswith("runs with KPIPE_SPARK=service cannot use this service: ")
        (file / "in the way").rmdir()
        file.rmdir()
        with pytest.raises(NotAvailable, match="Java is missing"):
            run(home).connect()
    finally:
        made.close()
    assert not list(home.state.glob(".new-*"))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_run_refuses_a_file_that_stays_unusable(home: Home, name: str) -> None:
    file = address_file.path(home.state)
    DAMAGED[name](file, home.state / "runs")
    with pytest.raises(KpipeError) as found:
        run(home, 0.1).connect()
    error = found.value
    assert not error.retriable and error.what.startswith("KPIPE_SPARK=service: ") and str(file) in error.what
    assert error.hint.startswith(
        "kpipe serve (pid 7) writes this file each second unless it fails: see what it prints, restart it"
    )
    if name not in ("stale", "a zero byte"):
        assert 'expected {"socket": PATH}' in error.what


def test_a_run_refuses_a_file_that_it_cannot_read(home: Home) -> None:
    address_file.path(home.state).mkdir()
    with pytest.raises(KpipeError, match=r"serve\.spark\.json cannot be read: Is a directory"):
        run(home, 0.1).connect()


def test_no_pipeline_has_the_name_of_the_file(home: Home) -> None:
    """The last-seen position of a pipeline is `NAME.json`, its other files are `NAME.PART.json`."""
    name = address_file.path(home.state).name
    names = [name.removesuffix(".json")]
    names += [name.removesuffix(f".{part}.json") for part in ("connector", "dead_letter_topic", "ended", "rebuild", "replaced")]
    for taken in names:
        with pytest.raises(ValueError, match="name"):
            Pipeline.model_validate({"name": taken, "source": {"brokers": "b:1", "topic": "t"}, "into": {"table": "t"}})
