"""Programs written on the spot, and eyes on processes and descriptors."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from transforms import process


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Writes an executable file and gives its path."""

    def write(text: str, name: str = "program", mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs; one that is dead and not yet reaped does not."""

    def check(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return check


@pytest.fixture
def dies(alive: Callable[[int], bool]) -> Callable[[int], bool]:
    """Whether a process is gone within a time that a busy machine may take."""

    def check(pid: int) -> bool:
        until = time.monotonic() + 300
        while alive(pid):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    return check


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker gives a killed tree 10 s to end, and leaves it to its launcher then: a busy machine may need longer."""
    monkeypatch.setattr(process, "KILL_WAIT_S", 300.0)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher has long to notice that no process is left."""
    monkeypatch.setattr(process, "SETTLE_S", 300.0)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves children of this process behind; nor descriptors, where nobody else opens any.

    Kafka's and databases' clients of earlier tests open and close theirs when they like: beside them only an interpreter of its
    own can tell (test_limits.py).
    """
    alone = not {"confluent_kafka", "duckdb", "pyspark"} & set(sys.modules)
    descriptors, children = _descriptors(), _children() | _children()  # one list may lack some, if others are reaped meanwhile
    yield
    assert not alone or _descriptors() <= descriptors
    assert _children() <= children


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread of a library that has ended meanwhile
            found |= set((task / "children").read_text().split())
    return found
