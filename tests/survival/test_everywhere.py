"""Crash-points over the destinations that are not DuckDB: killed, failed, and stopped with a successor.

All that is said of a point here is what readers see: nothing of the batch, or all of it. A sample in each run of the
tests; every point in `make chaos`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest

from kpipe import faults
from kpipe.errors import DestinationBusy
from kpipe.faults import POINTS
from tests.receiver import Receiver
from tests.survival.landings import Delta, Hook, Iceberg, Landing, MySQL, Postgres, Topic
from tests.survival.site import Site, passes, wait_stopped

QUICK = ("postgres", "delta")
KILLED = ("commit.verify", "commit.ledger", "commit.dead_letters", "mirror.before", "commit.before", "commit.after")
FAILED = ("commit.data", "commit.after", "readback")
STOPPED = ("collect.all", "commit.before", "commit.after")


def cases(points: Sequence[str], without: str = "") -> list[object]:
    return [
        pytest.param(kind, point, marks=[] if point in points and (kind in QUICK or point in points[-2:]) else pytest.mark.chaos)
        for kind in ("postgres", "mysql", "delta", "iceberg", "kafka", "webhook")
        for point in POINTS
        if point != without
    ]


@pytest.fixture(scope="module")
def old(site: Callable[..., Site], request: pytest.FixtureRequest) -> Callable[[str], Site]:
    """A pipeline into that kind of destination that has run before."""
    made: dict[str, Site] = {}

    def get(kind: str) -> Site:
        if kind not in made:
            landing: Landing
            if kind == "postgres":
                landing = Postgres(request.getfixturevalue("postgres"))
            elif kind == "mysql":
                landing = MySQL(request.getfixturevalue("mariadb"))
            elif kind == "kafka":
                landing = Topic(request.getfixturevalue("kafka_broker"), f"survival-{os.getpid()}")
            elif kind == "webhook":
                receiver = Receiver()
                request.addfinalizer(receiver.stop)
                landing = Hook(receiver)
            else:
                landing = {"delta": Delta, "iceberg": Iceberg}[kind]()
            made[kind] = site(f"old_{kind}", landing=landing)
            made[kind].writer.round(90)
            made[kind].exact()
        return made[kind]

    return get


@pytest.mark.parametrize(("kind", "point"), cases(KILLED))
def test_killed(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.round(90)
    status, said = one.small(f"{point}:{passes(point, 'plan.offsets')}:kill").end()
    assert status == -signal.SIGKILL, said
    assert one.processes() == []
    assert one.oracle.problems(ended=False) == []
    one.exact()


@pytest.mark.parametrize(("kind", "point"), cases(FAILED))
def test_failed(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.plain(90)
    known = one.staging
    faults.arm(faults.Fault(f"{point}:{passes(point, 'plan.offsets')}:raise"))
    if point == "commit.after":
        one.go_on()  # the answer was lost: read back, and found
    else:
        with pytest.raises(Exception, match=point):
            one.go_on()
    faults.arm(None)
    assert known <= one.staging, "who fails removes nothing"
    assert one.oracle.problems(ended=False) == []
    one.exact()


@pytest.mark.parametrize(("kind", "point"), cases(STOPPED, without="gc.scan"))
def test_stopped_then_overtaken_then_awake(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.round(90)
    zombie = one.small(f"{point}:{passes(point, 'plan.offsets')}:stop")
    asleep = wait_stopped(zombie)
    one.writer.round(30)
    landing = one.oracle.landing
    if point in landing.holding:
        with pytest.raises(DestinationBusy):
            one.go_on(lock_timeout_s=0.5)
    else:
        assert one.go_on()
        assert one.oracle.problems() == []
    asleep.send_signal(signal.SIGCONT)
    status, said = zombie.end()
    fenced = point not in (*landing.holding, *landing.late)
    assert (status, "Fenced" in said) == ((1, True) if fenced else (0, False)), said
    assert one.oracle.problems(ended=False) == []
    one.exact()
    assert one.processes() == []
