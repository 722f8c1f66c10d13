"""Killed and failed at every point of the way: what is visible then is exact, and so is what the next run makes of it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from kpipe.faults import POINTS
from tests.survival.conftest import Site


@pytest.fixture(scope="module")
def old(site: Callable[..., Site]) -> Site:
    """A pipeline that has run before: every case goes on with what the one before it left."""
    made = site("old")
    made.writer.round(90)
    made.exact()
    return made


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_middle(old: Site, point: str) -> None:
    old.writer.round(90)
    process = old.small(f"{point}:{1 if point.startswith('gc') else 2}:kill")
    status, said = process.end()
    assert status == -signal.SIGKILL, said
    assert old.processes() == []
    assert old.oracle.problems(caught_up=False) == []
    old.exact()
