"""Runs that meet: two at once, and one that was stopped, declared dead by everybody, and goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from kpipe.errors import DestinationBusy
from kpipe.failpoints import POINTS
from tests.survival.site import EARLY, HOLDING, LANDED, Site, passes, wait_stopped

DEFAULT = ("plan.ledger", "collect.all", "commit.open", "commit.before", "readback", "publish.before")


@pytest.fixture(scope="module")
def old(site: Callable[..., Site]) -> Site:
    """A pipeline that has run before."""
    made = site("races")
    made.writer.round(90)
    made.exact()
    return made


def cases() -> list[object]:
    """gc.scan is before everything: a run that stops there has planned nothing yet."""
    known = [point for point in POINTS if point != "gc.scan"]
    return [pytest.param(point, marks=[] if point in DEFAULT else pytest.mark.chaos) for point in known]


@pytest.mark.parametrize("point", cases())
def test_stopped_then_overtaken_then_awake(old: Site, point: str) -> None:
    old.writer.round(90)
    zombie = old.small(f"{point}:{passes(point, 'plan.offsets', 'plan.frozen')}:stop")
    asleep = wait_stopped(zombie)
    staged = old.staging
    old.writer.round(30)
    if point in HOLDING:
        with pytest.raises(DestinationBusy, match=rf"PID {asleep.pid}"):
            old.go_on(lock_timeout_s=0.2)
    else:
        assert old.go_on()
        assert old.oracle.problems() == []
    waiting = old.staging
    assert staged <= waiting or point in LANDED, "files of a batch that somebody may still commit were collected"
    asleep.send_signal(signal.SIGCONT)
    status, said = zombie.end()
    assert (status, "Fenced" in said) == ((1, True) if point in EARLY else (0, False)), said
    if point in EARLY:
        assert waiting <= old.staging, "who is fenced deletes nothing"
        assert "another run committed first and nothing of this batch was written" in said
    old.exact()
    assert old.processes() == []


@pytest.mark.parametrize("point", ["plan.frozen", "collect.all", "commit.open"])
def test_two_at_once(old: Site, point: str) -> None:
    """Both have the same plan, and go on in the same moment."""
    old.writer.round(60)
    old.define(batch={"max_offsets_per_partition": 1000, "max_retries": 0})
    runs = [old.small(f"{point}:1:stop") for _ in range(2)]
    sleepers = [wait_stopped(run) for run in runs]
    assert old.oracle.problems(ended=False) == []
    for asleep in sleepers:
        asleep.send_signal(signal.SIGCONT)
    ends = [run.end() for run in runs]
    old.define()
    assert old.oracle.problems(ended=False) == []
    assert sorted(status for status, _ in ends) == [0, 1], ends
    assert ["Fenced" in said for status, said in ends if status] == [True], ends
    old.exact()


def test_two_first_runs_at_once(site: Callable[..., Site]) -> None:
    """Neither finds a database, a ledger or a table; one makes them."""
    new = site("firsts")
    new.writer.round(60)
    runs = [new.small("plan.offsets:1:stop") for _ in range(2)]
    for asleep in [wait_stopped(run) for run in runs]:
        asleep.send_signal(signal.SIGCONT)
    ends = [run.end() for run in runs]
    assert sorted(status for status, _ in ends) == [0, 1], ends
    assert ["Fenced" in said for status, said in ends if status] == [True], ends
    new.exact()
