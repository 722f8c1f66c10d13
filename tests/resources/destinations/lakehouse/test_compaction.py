"""Compaction of tables in table formats: the same rows, or no commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.state import proof
from tests.resources.destinations.lake_place import IcebergPlace

RULE = RULES["replace"]
SOON = Limits(min_input_files=3)


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path)


def maintained(place: IcebergPlace, limits: Limits = SOON) -> Maintained:
    return place.open(rule=RULE).maintain(limits, place.staging.parent / "scratch")  # type: ignore[attr-defined]


def test_small_files_and_their_deletes_become_one_file(place: IcebergPlace) -> None:
    destination = begun(place, RULE, 1)
    for first in range(0, 40, 10):
        writes = [Write(0, first + at, (first // 2 + at) % 15, f"t{first + at}") for at in range(10)]
        destination.commit(commit_of(place, destination.ledger()[1], writes, RULE))
    before = contents(place)
    done = maintained(place)
    assert (done.files_before, done.files_after, done.deletes_after, done.commits) == (4, 1, 0, 1)
    assert done.deletes_before > 1 and done.rows == len(before)
    assert contents(place) == before and proof(destination).ok
    assert maintained(place).commits == 0
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 40, 3, "later"), Write(0, 41, 99, "new")], RULE))
    assert contents(place) == {**before, 3: ("later", None, 0, 40), 99: ("new", None, 0, 41)} and proof(destination).ok
