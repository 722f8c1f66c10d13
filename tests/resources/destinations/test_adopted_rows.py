"""A table that another loader has filled: its rows at adopted offsets are not counted, all others are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.adoption.judge import positions_of
from kpipe.batch.batch import Commit
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LaneChange
from kpipe.ledger.transitions import adopt
from kpipe.provenance.explain import ROW, explain
from kpipe.topics import TopicId
from resources.testing.counting import with_topic
from resources.testing.keyed import RULES, Write, commit_of
from resources.testing.place import TOPIC, Place, batch, begin, source
from resources.testing.state import proof
from tests.resources.destinations.databases import database
from tests.resources.destinations.lake_place import DeltaPlace


@pytest.fixture(params=["duckdb", "postgres", "mysql", "delta"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield DeltaPlace(tmp_path) if request.param == "delta" else database(request, tmp_path)
    failpoints.arm(None)


def insert(place: Any, rows: list[tuple[int, int]], first_id: int = 1) -> None:
    """Insert rows as another program does."""
    if isinstance(place, DeltaPlace):
        import deltalake

        fields = {"id": pa.int64(), "_kafka_partition": pa.int32(), "_kafka_offset": pa.int64()}
        block = [dict(zip(fields, (first_id + at, *row), strict=True)) for at, row in enumerate(rows)]
        deltalake.write_deltalake(
            str(place.folder / "tweets"),
            pa.Table.from_pylist(block, pa.schema(list(fields.items()))),
            mode="append",
            schema_mode="merge",
        )
        return
    for at, (number, offset) in enumerate(rows):
        place.sql(f"INSERT INTO tweets (id, _kafka_partition, _kafka_offset) VALUES ({first_id + at}, {number}, {offset})")


def adopted(place: Place, positions: dict[int, int], pipeline: str = "tweets") -> Any:
    destination = place.open(pipeline)
    changes: list[LaneChange] = [change for number, at in positions.items() for change in adopt(source(number), at, 0)]
    destination.commit(Commit(uuid.uuid4().hex, pipeline, tuple(changes), kind="adopt", note="adopt: group old -> tweets/0 at 5"))
    return destination


def test_rows_below_the_position_are_the_other_loaders(place: Place) -> None:
    destination = adopted(place, {0: 5, 1: 0})
    destination.commit(batch(place, destination.ledger()[1], {0: 8, 1: 3}))
    found = proof(destination)
    assert (found.ok, list(found.adopted)) == (True, ["tweets/0 [0, 5)"]), found.problems
    insert(place, [(0, at) for at in range(5)])
    found = proof(destination)
    assert (found.ok, found.partitions["0"]["rows_found"]) == (True, 3), found.problems
    insert(place, [(0, 5)])
    assert not proof(destination).ok
    place.delete_row(0, 5)  # both of them
    assert any("expected 3 rows, found 2" in problem for problem in proof(destination).problems)


def test_a_row_that_is_missing_stays_missing_when_the_table_gets_a_key(place: Place) -> None:
    """The other loader's rows do not stand for it."""
    destination = adopted(place, {0: 5, 1: 0})
    destination.commit(batch(place, destination.ledger()[1], {0: 8, 1: 3}))
    insert(place, [(0, at) for at in range(5)], first_id=100)
    assert proof(destination).ok
    place.delete_row(0, 6)
    assert not proof(destination).ok
    keyed = place.open("tweets", rule=RULES["replace"])
    keyed.commit(commit_of(place, keyed.ledger()[1], [Write(0, 8, 77, "x")], RULES["replace"]))
    assert any("found" in problem for problem in proof(keyed).problems)


def test_rows_of_the_only_adopted_topic_may_lack_its_name(place: Place) -> None:
    """As where a definition names topics since a later batch."""
    destination = adopted(place, {0: 5})
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    insert(place, [(0, at) for at in range(5)])
    assert proof(destination).ok
    with_topic(destination, place, TOPIC, 10)
    assert proof(destination).ok, proof(destination).problems


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_of_another_topic_that_name_none_are_not_the_other_loaders(place: Place, keyed: bool) -> None:
    destination, other = adopted(place, {0: 5}), TopicId(TOPIC.cluster, "topic-id-2", "more")
    with_topic(destination, place, TOPIC, 8)
    two = place.open("other")
    two.commit(begin("other", (0,), topic=other))
    two.commit(replace(batch(place, two.ledger()[1], {0: 3}, topic=other), pipeline="other"))
    if keyed:
        destination = place.open("tweets", rule=RULES["replace"])
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 8, 77, "x")], RULES["replace"]))
    assert proof(destination).ok and proof(two).ok, (proof(destination).problems, proof(two).problems)


def test_rows_of_other_partitions_are_counted(place: Place) -> None:
    destination = adopted(place, {0: 5, 1: 0})
    destination.commit(batch(place, destination.ledger()[1], {0: 8, 1: 3}))
    insert(place, [(1, 0)])
    assert not proof(destination).ok


def test_rows_of_another_pipeline_are_counted(place: Place) -> None:
    """A pipeline that takes over from another one, in the same table."""
    old = place.open("old")
    old.commit(begin("old", (0,)))
    old.commit(batch(place, old.ledger()[1], {0: 5}))
    destination = adopted(place, {0: 5})
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    found = proof(destination)
    assert (found.ok, found.partitions["0"]["rows_found"]) == (True, 8), found.problems
    place.delete_row(0, 2)
    assert not proof(destination).ok


def fate(destination: Any, offset: int) -> Any:
    facts = destination.trace("tweets", 0, offset)
    (found,) = explain(facts, source(0), offset).fates
    return found


def test_rows_at_adopted_offsets_are_not_attributed_to_a_reading(place: Place) -> None:
    destination = adopted(place, {0: 5, 1: 0})
    changes, _ = transitions.reread(destination.ledger()[1], source(0), 3)
    destination.commit(Commit(uuid.uuid4().hex, "tweets", changes, kind="rewind", note="rewind: tweets/0 from 3"))
    read = batch(place, destination.ledger()[1], {0: 8}, gaps={(0, 3)})
    counts = {key: replace(found, gaps=0, filtered=1, messages=5) for key, found in read.counts.items()}
    destination.commit(read.stored(counts))
    insert(place, [(0, at) for at in range(5)])
    for offset, rows in ((3, 1), (4, 2)):  # of offset 3, the row is the other loader's; of offset 4, one of two
        found = fate(destination, offset)
        assert (found.rows, found.unattributed, found.decision) == ({}, {"tweets": rows}, "")
    found = fate(destination, 5)
    assert (found.rows, found.unattributed, found.decision) == ({"tweets": 1}, {}, ROW)


def test_a_pipeline_that_was_taken_over_keeps_its_rows(place: Place) -> None:
    old = place.open("old")
    old.commit(begin("old", (0,)))
    old.commit(batch(place, old.ledger()[1], {0: 5}))
    destination = adopted(place, {0: 5})
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    assert [fate(old, 2).rows, fate(destination, 6).rows] == [{"tweets": 1}] * 2


def test_positions_are_read_from_the_note() -> None:
    note = "adopt: table a -> b/0 at 7 -> web.a-1/0 at 5, web.a-1/12 at 0, b/0 at 9; by me, c/0 at 1 today"
    assert positions_of(note)[:3] == [("web.a-1", 0, 5), ("web.a-1", 12, 0), ("b", 0, 9)]
    assert positions_of("reread: tweets/0 at 5") == []
