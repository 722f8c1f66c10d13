"""`delivery: at_most_once` with real Kafka and DuckDB: a kill between the claim and the rows loses that batch, and only that."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import duckdb
import pytest

from kpipe_assets.runs.proof import prove
from resources.home import Home
from tests.survival.oracle import ROW
from tests.survival.site import Site


@pytest.fixture(scope="module")
def hasty(site: Callable[..., Site]) -> Site:
    made = site("hasty")
    made.define(delivery="at_most_once")
    made.writer.plain(90)
    made.go_on()
    assert places(made) == written(made)
    return made


def written(site: Site) -> Counter[tuple[int, int]]:
    """Every record that must be a row."""
    site.oracle.observer.look()
    return Counter(place for place, (_, sort) in site.oracle.observer.seen.items() if sort == ROW)


def places(site: Site) -> Counter[tuple[int, int]]:
    """Where the rows of the table come from."""
    with duckdb.connect(str(site.oracle.path), read_only=True) as database:
        return Counter(database.execute(f'SELECT _kafka_partition, _kafka_offset FROM "{site.name}"').fetchall())


def lost(site: Site) -> set[tuple[int, int]]:
    """Offsets that the ledger calls lost."""
    with duckdb.connect(str(site.oracle.path), read_only=True) as database:
        lanes = database.execute("SELECT partition, lane_start, lane_end FROM kpipe_ledger WHERE kind = 'lost'").fetchall()
    return {(number, at) for number, start, end in lanes for at in range(start, end)}


# The commits of a run here are claim, rows, claim, rows: the 4th passing of a point of a commit is in that of the second rows.
@pytest.mark.parametrize(
    ("fault", "loses"),
    [
        pytest.param("plan.offsets:2", False, marks=pytest.mark.chaos),
        pytest.param("commit.before:3", False, marks=pytest.mark.chaos),
        ("commit.after:3", True),
        pytest.param("plan.frozen:2", True, marks=pytest.mark.chaos),
        ("collect.all:2", True),
        pytest.param("commit.data:2", True, marks=pytest.mark.chaos),
        ("commit.before:4", True),
        ("commit.after:4", False),
        pytest.param("publish.before:2", False, marks=pytest.mark.chaos),
    ],
)
def test_killed(hasty: Site, fault: str, loses: bool) -> None:
    gone, rows = lost(hasty), places(hasty)
    hasty.writer.plain(180)
    status, said = hasty.small(f"{fault}:kill").end()
    assert status == -signal.SIGKILL, said
    now = lost(hasty)
    assert bool(now - gone) == loses
    assert not now & places(hasty).keys(), "a row is there that the ledger calls lost"
    hasty.go_on()
    assert lost(hasty) == now, "what was lost stays lost, and nothing else is"
    want = written(hasty)
    assert places(hasty) == Counter({place: 1 for place in want if place not in now})
    assert rows <= places(hasty)
    home = Home.at(hasty.kpipe.home)
    report = prove(home.pipeline(hasty.name), home)
    assert report.ok, report.problems
    assert bool(report.lost) == bool(now)
    assert report.span + len(now) == sum(hasty.oracle.observer.stable.values())
    assert hasty.go_on() == []
