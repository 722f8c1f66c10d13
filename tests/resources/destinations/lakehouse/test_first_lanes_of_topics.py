"""First lanes of topics whose tables have a commit each: all topics of a decision are begun, or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.adoption.judge import Adoption, Start
from kpipe.batch.batch import Commit
from kpipe.errors import DeadLettersExceeded, DestinationBusy, Fenced
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, LaneChange
from kpipe.tables.upsert import KeyRule
from kpipe.topics import PartitionState, TopicId, TopicSnapshot
from kpipe_assets.runs.adoption import _begun
from resources.testing.place import live, source
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.lakehouse.test_runs_of_tables_by_topic import Killed, Site, killed_at
from tests.resources.destinations.lakehouse.test_tables_by_topic import fails, next_offsets, opened
from tests.resources.destinations.topic_batches import BLOG, SHOP, begun, commit, targets

PLACES: dict[str, Any] = {"delta": DeltaPlace, "iceberg": IcebergPlace, "parquet": ParquetPlace}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return PLACES[request.param](tmp_path)


def decision(kind: str, *changes: LaneChange, note: str = "") -> Commit:
    return Commit(uuid.uuid4().hex, "tweets", changes, kind=kind, note=note or f"{kind}: by me", run_id="r", started_ms=1)


def at_zero(*topics: TopicId) -> list[LaneChange]:
    return [LaneChange(None, Lane(source(0, topic), 0, 0)) for topic in topics]


@pytest.mark.parametrize("fault", ["kill", "busy"])
@pytest.mark.parametrize(("bounds", "expected"), [
    ({"end": "latest"}, [("a", 0), ("b.x", 0)]),
    ({"start": "latest"}, [("b.x", 1)]),
    ({"start": {"a:0": 0, "a:1": 0, "b.x:0": 1}, "end": {"a:0": 1, "a:1": 0, "b.x:0": 1}}, [("a", 0)]),
])  # fmt: skip
def test_a_begin_that_ends_between_two_tables(
    tmp_path: Path, bounds: dict[str, Any], expected: list[tuple[str, int]], fault: str
) -> None:
    site = Site(tmp_path, source={"brokers": "b:9092", "topic_pattern": ".", **bounds})
    site.topics.produce(0, {"id": 1}, topic="a")
    site.topics.produce(0, {"id": 2}, topic="b.x")
    if fault == "kill":
        killed_at("commit.next_table", 1)
        with pytest.raises(Killed):
            site.run()
        failpoints.arm(None)
    else:
        _busy_once("commit.next_table")
        site.run()
    site.topics.produce(0, {"id": 3}, topic="b.x")
    site.run()
    assert sorted((topic, offset) for _, topic, _, offset in site.rows()) == expected
    site.proof()


def _busy_once(point: str) -> None:
    left = [point]

    def reached(name: str) -> None:
        if name in left:
            left.clear()
            raise DestinationBusy("busy", "try again")

    failpoints.arm(reached)


def test_a_topic_that_appears_after_the_kill(tmp_path: Path) -> None:
    """It begins at its log start, and the others as they were decided."""
    site = Site(tmp_path, source={"brokers": "b:9092", "topic_pattern": ".", "start": "latest"})
    for topic in ("a", "b.x"):
        site.topics.produce(0, {"id": 1}, topic=topic)
    killed_at("commit.next_table", 1)
    with pytest.raises(Killed):
        site.run()
    failpoints.arm(None)
    site.topics.create("c", 1)
    for topic in ("a", "b.x", "c"):
        site.topics.produce(0, {"id": 2}, topic=topic)
    assert site.run() == 3
    assert sorted((topic, offset) for _, topic, _, offset in site.rows()) == [("a", 1), ("b.x", 1), ("c", 0)]
    site.proof()


@pytest.mark.parametrize("point", ["commit.open", "commit.next_table"])
def test_an_adoption_that_ends_between_two_tables(place: Any, tmp_path: Path, point: str) -> None:
    states = {source(0, BLOG): PartitionState(1, 9, 9), source(0, SHOP): PartitionState(0, 9, 9)}
    starts = [Start(where, at, states[where]) for where, at in ((source(0, BLOG), 3), (source(0, SHOP), 5))]
    adoption = Adoption("group x", starts)
    whole = decision("adopt", *adoption.changes, note=adoption.note)
    fails(opened(place), whole, point)
    after = opened(place)
    uid, ledger = after.ledger()
    assert uid and dict(ledger.lanes) == {change.key: change.become for change in adoption.changes}
    assert (ledger.seq, ledger.age) == (1, 2)
    pipeline: Any = SimpleNamespace(name="tweets")
    assert _begun(pipeline, ledger, TopicSnapshot(states, "."), adoption) == (True, "")
    done = after.commit(commit(place, after, {SHOP: 7, BLOG: 4}))
    assert (done.seq, done.age) == (2, 4)
    assert after.ledger() == opened(place).ledger() and next_offsets(after) == {"web-blog": 4, "web.shop": 7}
    assert targets(opened(place)) == {"raw_web_blog": 1, "raw_web_shop": 2}
    decisions = opened(place).trace("web.shop", 0, 2).decisions
    assert [(item.kind, item.note, item.seq) for item in decisions] == [("adopt", whole.note, 1)]


def test_decisions_about_a_topic_without_a_commit(place: Any) -> None:
    fails(opened(place), decision("begin", *at_zero(BLOG, SHOP)), "commit.open")
    after = opened(place)
    assert next_offsets(after) == {"web-blog": 0, "web.shop": 0}
    after.commit(decision("jump", *transitions.jump(after.ledger()[1], source(0, SHOP), 4)))
    after.commit(decision("begin", LaneChange(None, Lane(source(1, BLOG), 0, 0))))
    _, ledger = opened(place).ledger()
    assert {str(where): at for where, at in ledger.positions().items()} == {"web-blog/0": 0, "web-blog/1": 0, "web.shop/0": 4}
    assert ledger.age == after.ledger()[1].age == 4


@pytest.mark.parametrize("looks", [True, False])
def test_of_two_runs_one_decides(place: Any, looks: bool) -> None:
    destination, other, news = opened(place), opened(place), TopicId("cluster-1", "id-a", "a")
    assert destination.ledger() == other.ledger()
    fails(destination, decision("begin", *at_zero(BLOG, SHOP)), "commit.open")
    if looks:
        assert set(other.topics_of_tables()) == {"raw_web_blog", "raw_web_shop"}
    with pytest.raises(Fenced, match=r"web\.shop"):
        other.commit(decision("begin", LaneChange(None, Lane(source(0, SHOP), 2, 2)), *at_zero(news)))
    assert next_offsets(opened(place)) == {"web-blog": 0, "web.shop": 0}
    again = opened(place)
    again.commit(decision("begin", *at_zero(news)))
    assert next_offsets(again) == {"a": 0, "web-blog": 0, "web.shop": 0}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(("most", "ends", "dead", "found"), [
    (3, {SHOP: 4, BLOG: 4}, None, 4), (2, {SHOP: 2, BLOG: 4}, (SHOP, 1), 3),
])  # fmt: skip
def test_the_limit_of_dead_letters_is_that_of_all_tables(
    tmp_path: Path, kind: str, most: int, ends: dict[TopicId, int], dead: tuple[TopicId, int] | None, found: int
) -> None:
    """Two duplicates in one table, with two in the next one, or with a dead letter that the tasks have found for it."""
    place, rule = PLACES[kind](tmp_path), KeyRule(("id",), "error", duplicates="dead_letter", most=most)
    destination = begun(opened(place, rule=rule))
    with pytest.raises(DeadLettersExceeded, match=f"at most {most} dead letters"):
        destination.commit(commit(place, destination, ends, dead, keyed=True, pairs=True))
    after = opened(place, rule=replace(rule, most=found))
    assert after.ledger()[1].dead_letters <= most
    left = {topic: end for topic, end in ends.items() if not live(after.ledger()[1], 0, topic).next}
    after.commit(commit(place, after, left, dead, keyed=True, pairs=True))
    assert after.ledger()[1].dead_letters == found
