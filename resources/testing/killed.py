"""Kill or stop processes during a commit, and let other processes take over. The destination gets no notice.

A destination with failpoints (`kpipe.failpoints.failpoint`) is struck at each of them, and every
destination at random moments.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import DestinationBusy, Fenced
from kpipe.interfaces import Destination
from resources.testing.place import Place, batch
from resources.testing.state import begun, loaded, proof

__all__ = ["POINTS", "Killed"]

#: Failpoints inside a destination's commit.
POINTS = tuple(point for point in failpoints.POINTS if point.startswith("commit.") or point == "readback")
_FENCED = 3
_PATIENCE_S = 300
# spawn, not fork: a fork would inherit locks without the threads that release them.
_processes = multiprocessing.get_context("spawn")


def _commit(place: Place, commits: list[Commit], fault: str) -> None:
    """Commit in a child process; the fault strikes the first commit."""
    if fault:
        failpoints.arm(failpoints.Fault(fault))
    destination = place.open()
    try:
        for commit in commits:
            destination.commit(commit)
    except Fenced:
        sys.exit(_FENCED)


def _chain(place: Place, number: int) -> None:
    """Commit `number` small batches, or until the process is killed."""
    destination = place.open()
    for _ in range(number):
        at = {where.partition: offset for where, offset in destination.ledger()[1].positions().items()}
        destination.commit(batch(place, destination.ledger()[1], {name: offset + 3 for name, offset in at.items()}))


@contextmanager
def _started(place: Place, *commits: Commit, fault: str = "") -> Iterator[BaseProcess]:
    process = _processes.Process(target=_commit, args=(place, list(commits), fault))
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join(_PATIENCE_S)


def _is_stopped(process: BaseProcess) -> bool:
    """Wait until the process is stopped (SIGSTOP); False: it ended instead."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if not process.is_alive():
            return False
        try:
            if psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                return True
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.01)
    raise AssertionError("the process neither stopped nor ended")


def _seen(place: Place, destination: Destination) -> tuple[int, int, int]:
    ledger = destination.ledger()[1]
    return len(place.rows()), ledger.dead_letters, ledger.seq


class Killed:
    """Tests with killed processes. Needs a fixture `place` of an importable class, as the place is pickled."""

    @pytest.fixture(autouse=True)
    def _travels(self, place: Place) -> None:
        try:
            pickle.dumps(place)
        except Exception as error:
            pytest.fail(
                f"{type(place).__name__} cannot be pickled ({error}): define it in a module, without connections as attributes"
            )

    @pytest.mark.parametrize("point", POINTS)
    def test_killed(self, place: Place, point: str) -> None:
        destination = loaded(place)
        before = _seen(place, destination)
        commit = batch(place, destination.ledger()[1], {0: 12, 1: 7}, dead=[(0, 11)])
        with _started(place, commit, fault=f"{point}:1:kill") as process:
            process.join(_PATIENCE_S)
        if process.exitcode == 0:
            pytest.skip(f"the destination does not reach {point}")
        assert process.exitcode == -signal.SIGKILL
        after = (before[0] + 3, before[1] + 1, before[2] + 1)
        found = _seen(place, place.open())
        assert found in (before, after), "rows, dead letters and ledger belong to different commits"
        assert found == after or point != "readback"
        assert place.open().commit(commit).seq == after[2]
        assert _seen(place, place.open()) == after and proof(place.open()).ok, proof(place.open()).problems

    @pytest.mark.parametrize("point", POINTS)
    def test_killed_in_the_first_commit(self, place: Place, point: str) -> None:
        destination = begun(place)
        commit = batch(place, destination.ledger()[1], {0: 5})
        with _started(place, commit, fault=f"{point}:1:kill") as process:
            process.join(_PATIENCE_S)
        if process.exitcode == 0:
            pytest.skip(f"the destination does not reach {point}")
        assert _seen(place, place.open()) in ((0, 0, 1), (5, 0, 2))
        assert place.open().commit(commit).seq == 2
        assert _seen(place, place.open()) == (5, 0, 2) and proof(place.open()).ok

    def test_killed_at_any_moment(self, place: Place) -> None:
        """Kill a process without failpoints, at random moments while it commits batch after batch."""
        destination, chance = begun(place), random.Random(1)
        for _ in range(4):
            before = _seen(place, destination)
            process = _processes.Process(target=_chain, args=(place, 1000))
            process.start()
            until = time.monotonic() + _PATIENCE_S
            while _seen(place, destination) == before:
                assert process.is_alive() and time.monotonic() < until, "nothing was committed"
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
            process.join(_PATIENCE_S)
            rows, _, seq = _seen(place, place.open())
            assert rows == 6 * (seq - 1), "rows and ledger belong to different commits"
            assert proof(place.open()).ok, proof(place.open()).problems

    @pytest.mark.parametrize("point", POINTS)
    def test_stopped_then_overtaken_then_awake(self, place: Place, point: str) -> None:
        """A stopped process is replaced and then resumes: of two commits planned on one ledger, one succeeds."""
        destination = loaded(place)
        ledger = destination.ledger()[1]
        zombies, mine = batch(place, ledger, {0: 12, 1: 7}), batch(place, ledger, {0: 11})
        with _started(place, zombies, fault=f"{point}:1:stop") as process:
            if not _is_stopped(process):
                pytest.skip(f"the destination does not reach {point}")
            assert process.pid is not None
            try:
                landed = place.open().commit(mine).seq == ledger.seq + 1
            except (DestinationBusy, Fenced):
                landed = False
            os.kill(process.pid, signal.SIGCONT)
            process.join(_PATIENCE_S)
        assert process.exitcode == (_FENCED if landed else 0)
        assert _seen(place, place.open()) == (15 + (1 if landed else 4), 0, ledger.seq + 1)
        assert proof(place.open()).ok, proof(place.open()).problems

    def test_files_stay_while_somebody_may_need_them(self, place: Place) -> None:
        """Staged files of a fenced batch are not deleted."""
        destination = loaded(place)
        commit = batch(place, destination.ledger()[1], {0: 12})
        place.open().commit(batch(place, destination.ledger()[1], {0: 11}))
        with pytest.raises(Fenced):
            destination.commit(commit)
        assert all(Path(file.path).exists() for file in commit.only.files)
