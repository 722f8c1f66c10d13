"""The same with Spark, as people run it: `kpipe run` killed, or one of Spark's workers, or stopped and then killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.survival.conftest import Site, wait_stopped

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def old(site: Callable[..., Site]) -> Site:
    """A pipeline that has run before."""
    made = site("spark")
    made.writer.round(90)
    made.exact()
    return made


@pytest.mark.parametrize("point", ["read.first", "commit.before"])
def test_killed(old: Site, point: str) -> None:
    old.writer.round(90)
    process = old.real(f"{point}:1:kill")
    out, err = process.communicate(timeout=180)
    print(process.returncode, out, err)
    left = old.processes()
    print(left)
    assert old.oracle.problems(caught_up=False) == []
    old.exact()
    assert left == []


@pytest.mark.parametrize("point", ["stage.fsync"])
def test_stopped_then_killed(old: Site, point: str) -> None:
    old.writer.round(90)
    process = old.real(f"{point}:1:stop")
    one = wait_stopped(process)
    assert one.pid != process.pid
    os.killpg(process.pid, signal.SIGKILL)
    print(process.communicate(timeout=60))
    left = old.processes()
    print(left)
    assert old.oracle.problems(caught_up=False) == []
    old.exact()
    assert left == []
