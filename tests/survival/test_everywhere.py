"""Crash-points over the destinations that are not DuckDB: killed, failed, and stopped with a successor.

All that is said of a point here is what readers see: nothing of the batch, or all of it. A sample in each run of the
tests; every point in `make chaos`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest

from kpipe import failpoints
from kpipe.errors import DestinationBusy
from kpipe.failpoints import AUDITED, POINTS
from tests.receiver import Receiver
from tests.survival.landings import Audited, Delta, Hook, Iceberg, Landing, MySQL, Postgres, Topic, between
from tests.survival.site import Site, kill, passes, wait_stopped
from tests.survival.small import Small

QUICK = ("postgres", "delta")
KILLED = ("commit.verify", "commit.ledger", "commit.dead_letters", "publish.before", "commit.after", "commit.before")
FAILED = ("commit.data", "commit.after", "readback")
STOPPED = ("collect.all", "commit.after", "commit.before")


#: The way of a batch that is audited before it is published; up to here it is that of any batch.
ON_A_BRANCH = ("commit.before", *AUDITED, *between("commit.after", "publish.before"))


def cases(points: Sequence[str], without: str = "", audited: str = "", everywhere: str = "") -> list[object]:
    """Every kind at every point. No `chaos`: each of `points` on a quick kind, in turn, one on all, an audited batch."""

    def quick(kind: str, point: str) -> bool:
        return point == everywhere or (point in points and kind == QUICK[points.index(point) % len(QUICK)])

    return [
        pytest.param(kind, point, marks=[] if quick(kind, point) else pytest.mark.chaos)
        for kind in ("postgres", "mysql", "delta", "iceberg", "kafka", "webhook")
        for point in POINTS
        if point != without
    ] + [pytest.param("audited", point, marks=[] if point == audited else pytest.mark.chaos) for point in ON_A_BRANCH]


def at(point: str, *once: str) -> str:
    """That point in the middle of a run; of an audit in its first batch, as a later one may have no rows."""
    return f"{point}:{passes(point, 'plan.offsets', *AUDITED, *once)}"


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
                landing = {"delta": Delta, "iceberg": Iceberg, "audited": Audited}[kind]()
            made[kind] = site(f"old_{kind}", landing=landing)
            made[kind].writer.round(90)
            made[kind].exact()
        return made[kind]

    return get


@pytest.mark.parametrize(("kind", "point"), cases(KILLED, audited="commit.audit"))
def test_killed(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.round(90)
    status, said = one.small(f"{at(point)}:kill").end()
    assert status == -signal.SIGKILL, said
    assert one.processes() == []
    assert one.oracle.problems(ended=False) == []
    one.exact()


@pytest.mark.parametrize(("kind", "point"), cases(FAILED, everywhere="readback"))
def test_failed(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.plain(90)
    known = one.staging
    failpoints.arm(failpoints.Fault(f"{at(point)}:raise"))
    if point == "commit.after":
        one.go_on()  # the answer was lost: read back, and found
    else:
        with pytest.raises(Exception, match=point):
            one.go_on()
    failpoints.arm(None)
    assert known <= one.staging, "who fails removes nothing"
    assert one.oracle.problems(ended=False) == []
    one.exact()


@pytest.mark.parametrize(("kind", "point"), cases(STOPPED, without="gc.scan", everywhere="commit.before"))
def test_stopped_then_overtaken_then_awake(old: Callable[[str], Site], kind: str, point: str) -> None:
    one = old(kind)
    one.writer.round(90)
    # The second batch is planned and staged while the first one commits: stopped there, a run might keep others out or not.
    zombie = one.small(f"{at(point, 'plan.frozen', 'collect.all')}:stop")
    try:
        overtaken(one, point, zombie)
    finally:
        if zombie.poll() is None:  # else it would keep the next tests' runs out, too
            kill(zombie)


def overtaken(one: Site, point: str, zombie: Small) -> None:
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
