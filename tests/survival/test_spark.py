"""The same with Spark, as people run it: `kpipe run` killed, one of Spark's processes killed, and zombies."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from kpipe.errors import DestinationBusy
from kpipe.failpoints import POINTS
from tests.patience import looks
from tests.survival.site import EARLY, HOLDING, IN_WORKERS, Site, kill, passes, stopped, wait_stopped

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def old(site: Callable[..., Site]) -> Site:
    """A pipeline that has run before."""
    made = site("spark")
    made.writer.round(90)
    made.exact()
    return made


def cases(*default: str) -> list[object]:
    return [pytest.param(point, marks=[] if point in default else pytest.mark.chaos) for point in POINTS]


def asked(point: str, action: str, *once: str) -> str:
    return f"{point}:{passes(point, *IN_WORKERS, *once)}:{action}"


@pytest.mark.parametrize("point", cases("read.first", "commit.before"))
def test_killed(old: Site, point: str) -> None:
    old.writer.plain(90)
    process = old.real(asked(point, "kill"))
    status, said = process.end()
    if point in IN_WORKERS:  # a worker is gone, and the run says so
        assert status == 1 and "Python worker exited unexpectedly" in said and "Traceback" not in said, said
    else:
        assert status == -signal.SIGKILL, said
    assert old.processes() == []
    assert old.oracle.problems(ended=False) == []
    old.exact()


@pytest.mark.parametrize("point", cases("stage.fsync"))
def test_stopped(old: Site, point: str) -> None:
    """In a worker: the run is killed around it. In the driver: a successor runs, and it wakes up too late."""
    old.writer.plain(90)
    process = old.real(asked(point, "stop", "plan.offsets", "plan.frozen"))
    asleep = wait_stopped(process)
    if point in IN_WORKERS:
        assert asleep.pid != process.pid
        kill(process)
        assert old.processes() == [], "a stopped worker has outlived its run"
        assert old.oracle.problems(ended=False) == []
    elif point in HOLDING:
        with pytest.raises(DestinationBusy, match=rf"PID {asleep.pid}"):
            old.go_on(lock_timeout_s=0.2)
        asleep.send_signal(signal.SIGCONT)
        assert process.end()[0] == 0
    else:
        old.writer.plain(30)
        assert old.go_on()
        asleep.send_signal(signal.SIGCONT)
        status, said = process.end()
        assert status == (1 if point in EARLY and point != "gc.scan" else 0), said
        assert "Traceback" not in said
    assert old.processes() == []
    old.exact()


@pytest.mark.chaos
@pytest.mark.parametrize("point", POINTS)
def test_failed(old: Site, point: str) -> None:
    old.writer.plain(90)
    status, said = old.real(asked(point, "raise")).end()
    assert status == (0 if point == "commit.after" else 1), said
    assert point == "commit.after" or f"failed at {point}" in said
    assert old.processes() == []
    assert old.oracle.problems(ended=False) == []
    old.exact()


@pytest.mark.chaos
@pytest.mark.parametrize("who", ["worker", "daemon", "java", "launcher", "program"])
def test_one_process_of_the_run_is_killed(old: Site, who: str) -> None:
    """Memory runs out, and the kernel chooses: the run goes on or says what happened, and leaves nothing behind."""
    old.writer.plain(90)
    process = old.real("tx.spawned:1:stop")
    worker = wait_stopped(process)
    launcher = worker.children()[0]
    victims = {
        "worker": worker, "daemon": worker.parent(), "java": psutil.Process(process.pid).children()[0], "launcher": launcher,
        "program": next(child for _ in looks(300) for child in launcher.children()),
    }  # fmt: skip
    victims[who].kill()
    if who in ("launcher", "program"):
        for _ in looks(300):  # a batch with a program has several tasks, each of whose workers stops
            if process.poll() is not None:
                break
            while (asleep := stopped(process.pid)) is not None:
                asleep.send_signal(signal.SIGCONT)
    status, said = process.end()
    words = {
        "java": "its JVM has ended",
        "launcher": "the process that watches it was killed",
        "program": "was killed by SIGKILL",
    }
    assert status == 1 and words.get(who, "Python worker exited unexpectedly") in said and "Traceback" not in said, said
    assert old.processes() == []
    assert old.oracle.problems(ended=False) == []
    old.exact()
