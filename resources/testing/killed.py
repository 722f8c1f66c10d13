"""Processes that are killed or stopped while they commit, and others that take over. Nothing of it is told to the destination.

Where it comes by crash-points (`kpipe.failpoints.reach`), processes are struck at each of them; else, and besides, at any moment.
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

#: Those on a destination's own way.
POINTS = tuple(point for point in failpoints.POINTS if point.startswith("commit.") or point == "readback")
_FENCED = 3
_PATIENCE_S = 120
# From the start of the interpreter: a fork of this process would have its locks, and not the threads that open them.
_processes = multiprocessing.get_context("spawn")


def _commit(place: Place, commits: list[Commit], fault: str) -> None:
    """What the process does; the first commit is the one that the fault strikes."""
    if fault:
        failpoints.arm(failpoints.Fault(fault))
    destination = place.open()
    try:
        for commit in commits:
            destination.commit(commit)
    except Fenced:
        sys.exit(_FENCED)


def _chain(place: Place, number: int) -> None:
    """As many small batches as there is time for."""
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
    """Wait until it stands still; False: it has come to its end instead."""
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
    raise AssertionError("the process neither stood still nor ended")


def _seen(place: Place, destination: Destination) -> tuple[int, int, int]:
    ledger = destination.ledger()[1]
    return len(place.rows()), ledger.dead_letters, ledger.seq


class Killed:
    """Needs a fixture `place`, whose class is in a module that a process of its own can import: the place is pickled."""

    @pytest.fixture(autouse=True)
    def _travels(self, place: Place) -> None:
        try:
            pickle.dumps(place)
        except Exception as error:
            pytest.fail(
                f"{type(place).__name__} cannot be pickled ({error}): define it in a module, and keep no connections in it"
            )

    @pytest.mark.parametrize("point", POINTS)
    def test_killed(self, place: Place, point: str) -> None:
        destination = loaded(place)
        before = _seen(place, destination)
        commit = batch(place, destination.ledger()[1], {0: 12, 1: 7}, dead=[(0, 11)])
        with _started(place, commit, fault=f"{point}:1:kill") as process:
            process.join(_PATIENCE_S)
        if process.exitcode == 0:
            pytest.skip(f"the destination does not come by {point}")
        assert process.exitcode == -signal.SIGKILL
        after = (before[0] + 3, before[1] + 1, before[2] + 1)
        found = _seen(place, place.open())
        assert found in (before, after), "rows, dead letters and ledger are of different commits"
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
            pytest.skip(f"the destination does not come by {point}")
        assert _seen(place, place.open()) in ((0, 0, 1), (5, 0, 2))
        assert place.open().commit(commit).seq == 2
        assert _seen(place, place.open()) == (5, 0, 2) and proof(place.open()).ok

    def test_killed_at_any_moment(self, place: Place) -> None:
        """Without a crash-point: batch after batch, until the time is up."""
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
            assert rows == 6 * (seq - 1), "rows and ledger are of different commits"
            assert proof(place.open()).ok, proof(place.open()).problems

    @pytest.mark.parametrize("point", POINTS)
    def test_stopped_then_overtaken_then_awake(self, place: Place, point: str) -> None:
        """Everybody takes it for dead, and it goes on: of the two that were planned upon one ledger one lands."""
        destination = loaded(place)
        ledger = destination.ledger()[1]
        zombies, mine = batch(place, ledger, {0: 12, 1: 7}), batch(place, ledger, {0: 11})
        with _started(place, zombies, fault=f"{point}:1:stop") as process:
            if not _is_stopped(process):
                pytest.skip(f"the destination does not come by {point}")
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
        """A batch that was fenced is no reason to remove what was staged for it."""
        destination = loaded(place)
        commit = batch(place, destination.ledger()[1], {0: 12})
        place.open().commit(batch(place, destination.ledger()[1], {0: 11}))
        with pytest.raises(Fenced):
            destination.commit(commit)
        assert all(Path(file.path).exists() for file in commit.files)
