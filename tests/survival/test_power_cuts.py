"""Power cuts: the home and the destination's files are on a disk that forgets what was not synced.

The disk fails after a drawn number of changes (tests/faults/lossy_disk.py). A run without a JVM works on it; after the cut,
the next run finds what the disk has kept. Some cuts keep nothing more than what was synced, others any part of the rest.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.lossy_disk import lossy, missing
from tests.faults.lossy_files import Cut, Kept
from tests.receiver import Receiver
from tests.survival.landings import Audited, Delta, DuckDBFile, Hook, Iceberg, Landing
from tests.survival.site import Site, kill
from tests.survival.small import UNSYNCED

REASON = missing()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

CUTS = int(os.environ.get("KPIPE_POWER_CUTS", "40"))
SEED = int(os.environ.get("KPIPE_SEED", "1"))


@pytest.fixture
def made(site: Callable[..., Site], tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], tuple[Site, Path]]:
    def make(kind: str) -> tuple[Site, Path]:
        landing: Landing
        if kind == "webhook":
            receiver = Receiver()
            request.addfinalizer(receiver.stop)
            landing = Hook(receiver)
        else:
            landing = {"duckdb": DuckDBFile, "delta": Delta, "iceberg": Iceberg, "audited": Audited}[kind]()
        place = tmp_path / "disk"
        place.mkdir()
        return site(f"power_{kind}", at=place, landing=landing), place

    return make


def acknowledged(said: str) -> int:
    """Return the number of the last commit that a run has reported."""
    return max((json.loads(line)["seq"] for line in said.splitlines() if line.startswith('{"event": "batch"')), default=0)


def cut_once(one: Site, place: Path, changes: int, cut: Cut, **more: str) -> None:
    """Run on a lossy disk that fails after so many changes; judge what is left."""
    one.writer.round(60)
    with lossy(place) as disk:
        disk.cut_after(changes, cut)
        run = one.small(**more)
        _, said = run.end()
        if not disk.failed():
            disk.cut_after(0, cut)  # the run has ended; what it has reported must be durable
        kill(run)
        assert one.processes() == []
        disk.restart()
    one.oracle.staging_was_lost()
    problems = one.oracle.problems(ended=False)
    assert not problems, f"{changes} changes, {cut}: {problems}\n{said}"
    assert (found := commits(one)) >= acknowledged(said), f"{changes} changes, {cut}: {found} commits\n{said}"
    one.exact()


def commits(one: Site) -> int:
    with one.oracle.landing.reading(one.kpipe.home, one.name) as database:
        return database.execute("SELECT max(seq) FROM kpipe_pipelines").fetchall()[0][0] if database else 0  # type: ignore[no-any-return]


def drawn(draw: random.Random, kind: str) -> Cut:
    # DuckDB stands no other cuts: tests/faults/test_lossy_disk.py. The ledger of a webhook is in DuckDB.
    kept = (Kept.NOTHING, Kept.FIRST) if kind in ("duckdb", "webhook") else tuple(Kept)
    return Cut(draw.choice(kept), draw.randrange(1_000_000))


def length(one: Site, place: Path) -> int:
    """Return how many changes a run makes."""
    one.writer.round(60)
    with lossy(place) as disk:
        status, said = one.small().end()
        assert status == 0, said
        number = disk.changes()
        disk.cut_after(0, Cut())
        disk.restart()
    one.oracle.staging_was_lost()
    one.exact()
    return number


@pytest.mark.parametrize("kind", ["duckdb", "delta"])
def test_a_few(made: Callable[[str], tuple[Site, Path]], kind: str) -> None:
    one, place = made(kind)
    one.writer.round(60)
    one.exact()
    changes = length(one, place)
    draw = random.Random(SEED)
    cut_once(one, place, draw.randrange(changes), Cut())
    cut_once(one, place, changes * 9 // 10, Cut(Kept.FIRST, draw.randrange(1000)))


@pytest.mark.minutes(15)
@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["duckdb", "delta", "iceberg", "audited", "webhook"])
def test_many(made: Callable[[str], tuple[Site, Path]], kind: str) -> None:
    one, place = made(kind)
    one.writer.round(60)
    one.exact()
    changes = length(one, place)
    draw = random.Random(f"{SEED} {kind}")
    for _ in range(CUTS):
        cut_once(one, place, draw.randrange(changes), drawn(draw, kind))


@pytest.mark.chaos
def test_a_run_that_syncs_nothing_is_found_out(made: Callable[[str], tuple[Site, Path]]) -> None:
    """What it has reported as committed is gone."""
    one, place = made("delta")
    one.writer.round(60)
    one.exact()
    with pytest.raises(AssertionError, match="commits"):
        cut_once(one, place, 1_000_000, Cut(), **{UNSYNCED: "1"})


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["duckdb", "delta", "iceberg", "audited", "webhook"])
def test_the_first_run(made: Callable[[str], tuple[Site, Path]], kind: str) -> None:
    """No database, no ledger, no table yet."""
    one, place = made(kind)
    new = place.with_name("new")
    shutil.copytree(place, new)
    draw = random.Random(f"{SEED} first {kind}")
    for _ in range(CUTS // 2):
        cut_once(one, place, draw.randrange(400), drawn(draw, kind))
        shutil.rmtree(place)
        shutil.copytree(new, place)
        one.oracle.landing.forget()
