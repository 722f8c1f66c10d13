"""`delivery: at_least_once` with real Kafka and DuckDB: a kill between rows and ledger doubles that batch, and only that."""

from __future__ import annotations

import re
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
def double(site: Callable[..., Site]) -> Site:
    made = site("double")
    made.define(delivery="at_least_once")
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


# The commits of a run here are rows, ledger, rows, ledger: the 4th passing of a point of a commit is in the second ledger's.
@pytest.mark.parametrize(
    ("fault", "doubles"),
    [
        pytest.param("plan.frozen:2", False, marks=pytest.mark.chaos),
        pytest.param("collect.all:2", False, marks=pytest.mark.chaos),
        pytest.param("commit.data:2", False, marks=pytest.mark.chaos),
        ("commit.before:3", False),
        ("commit.after:3", True),
        pytest.param("readback:3", True, marks=pytest.mark.chaos),
        pytest.param("commit.ledger:4", True, marks=pytest.mark.chaos),
        ("commit.before:4", True),
        ("commit.after:4", False),
        pytest.param("publish.before:2", False, marks=pytest.mark.chaos),
    ],
)
def test_killed(double: Site, fault: str, doubles: bool) -> None:
    before = places(double)
    double.writer.plain(180)
    status, said = double.small(f"{fault}:kill").end()
    assert status == -signal.SIGKILL, said
    home = Home.at(double.kpipe.home)
    known = set(prove(home.pipeline(double.name), home).repeated)
    double.go_on()
    now, want = places(double), written(double)
    assert now.keys() == want.keys() and before <= now, "nothing is lost"
    again = {place for place, times in now.items() if times > 1 and times > before[place]}
    assert bool(again) == doubles
    report = prove(home.pipeline(double.name), home)
    assert report.ok, report.problems
    assert known == set(report.repeated), "said before it is read again"
    assert again <= {place for place in now if any(_within(place, text) for text in report.repeated)}
    assert double.go_on() == []


def _within(place: tuple[int, int], text: str) -> bool:
    """Whether a place lies in what `repeated` says: `topic/0 [3, 7)`."""
    found = re.fullmatch(r".*/(\d+) \[(\d+), (\d+)\)", text)
    assert found
    number, start, end = map(int, found.groups())
    return place[0] == number and start <= place[1] < end
