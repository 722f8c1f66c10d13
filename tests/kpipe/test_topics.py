"""Several topics in one pipeline, named or found by a pattern: the loop over fakes, with the four proofs of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline, Source
from kpipe.errors import InvalidPipeline, SourceIdentityChanged, TopicGone, TopicUnknown
from kpipe.ingest.loop import Decisions
from kpipe.ledger.ledger import SKIPPED
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, plan
from kpipe.planning.reconcile import Survey
from kpipe.planning.seek import backfills, forget
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import RECORD, FakeTopics
from kpipe.topics import chosen, in_order, part, parts, unnamed
from kpipe.verification.verify import Audit, Recount, audit
from tests.kpipe.conftest import World

NAMED: dict[str, Any] = {"source": {"topic": None, "topics": ["a", "b"]}}
FOUND: dict[str, Any] = {"source": {"topic": None, "topic_pattern": r"^web\."}}


def world_of(folder: Path, topics: dict[str, int], pattern: str = "") -> World:
    world = World(folder)
    world.topics = FakeTopics(topics, pattern=pattern)
    world.stager = FakeStager(world.topics, folder)
    return world


def with_(pipeline: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {**pipeline, "source": {**pipeline["source"], **source}}


def proof(world: World) -> Audit:
    return audit(world.table.held, world.table.history(), world.table.recount(), several=True)


def prove(world: World) -> Audit:
    """Every record of every topic once, told apart by its topic, and the audit agrees."""
    found = Counter((row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in world.table.rows)
    there = Counter(
        (name, number, offset)
        for name, topic in world.topics._topics.items()
        for number, log in enumerate(topic.logs)
        for offset, slot in enumerate(log.slots)
        if slot.kind == RECORD and slot.value is not None
    )
    assert found == there
    report = proof(world)
    assert report.ok, report.problems
    return report


@pytest.fixture
def two(tmp_path: Path) -> World:
    """Topics a (2 partitions) and b (1), some records in each."""
    world = world_of(tmp_path, {"a": 2, "b": 1})
    for topic, number, count in (("a", 0, 10), ("a", 1, 4), ("b", 0, 7)):
        world.topics.numbered(number, count, topic=topic)
    return world


@pytest.fixture
def web(tmp_path: Path) -> World:
    """Topics web.x and web.y that a pattern finds, and one that it does not."""
    world = world_of(tmp_path, {"web.x": 1, "web.y": 1, "other": 1}, pattern=r"^web\.")
    for topic in ("web.x", "web.y"):
        world.topics.numbered(0, 5, topic=topic)
    return world


# Names of partitions


def test_a_partition_is_its_number_or_topic_and_number(two: World) -> None:
    first, second, third = two.topics.source(0, "a"), two.topics.source(1, "a"), two.topics.source(0, "b")
    assert parts([third, second, first], several=True) == ["a:0", "a:1", "b:0"]
    assert parts([second, first], several=False) == [0, 1]
    assert [in_order(part(third, several)) for several in (True, False)] == [("b", 0), ("", 0)]
    assert chosen(first, None) and chosen(first, ["a:0"]) and chosen(first, [0]) and not chosen(first, ["b:0", 1])
    assert not unnamed(["a:0"], True) and not unnamed([0], False)
    assert "TOPIC:3" in unnamed(["a:0", 3], True) and "write 0" in unnamed(["a:0"], False)


def test_numbers_of_two_digits_stand_behind_those_of_one() -> None:
    assert sorted(["b:2", "a:10", "a:9"], key=in_order) == ["a:9", "a:10", "b:2"]


@pytest.mark.parametrize(
    ("given", "several"),
    [({"topic": "a"}, False), ({"topics": ["a"]}, False), ({"topics": ["a", "a"]}, False), ({"topics": ["a", "b"]}, True),
     ({"topic_pattern": "a"}, True)],
)  # fmt: skip
def test_partitions_are_told_apart_by_topic_where_there_may_be_several(given: dict[str, Any], several: bool) -> None:
    pipeline = Pipeline.model_validate({"name": "p", "source": {"brokers": "b", **given}, "into": {"table": "t"}})
    assert pipeline.source.several == several
    assert ("topic" in pipeline.coordinates) == several and "topic" not in pipeline.metadata


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        Source(brokers="b", topic_pattern="web.(")


# Reading


def test_all_topics_are_read_and_rows_name_theirs(two: World) -> None:
    (committed,) = two.run(NAMED)
    assert [str(step.source) for step in committed.commit.steps] == ["a/0", "a/1", "b/0"]
    report = prove(two)
    assert {name: item["rows"] for name, item in report.partitions.items()} == {"a:0": 10, "a:1": 4, "b:0": 7}
    (publication,) = two.table.unpublished()
    assert sorted(publication.metadata) == ["a:0", "a:1", "b:0"]
    assert two.run(NAMED) == []


def test_a_batch_of_one_of_them_still_names_it(two: World) -> None:
    two.run(NAMED)
    two.topics.numbered(0, 3, topic="b")
    two.run(NAMED)
    assert list(two.table.unpublished()[-1].metadata) == ["b:0"]
    prove(two)


def test_partitions_of_one_topic_can_be_chosen(two: World) -> None:
    two.run(NAMED, only={"a:1", "b:0"})
    assert Counter(row["_kafka_topic"] for row in two.table.rows) == {"a": 4, "b": 7}
    two.run(NAMED)
    prove(two)


@pytest.mark.parametrize(
    ("only", "words"),
    [({0}, "0 is a partition of each of several topics: write TOPIC:0"), ({"a:2"}, "no partition a:2 -> there are a:0 to b:0"),
     ({"c:0"}, "no partition c:0")],
)  # fmt: skip
def test_what_is_chosen_must_be_there_and_name_its_topic(two: World, only: set[Any], words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        two.run(NAMED, only=only)
    assert two.table.rows == []


def test_a_topic_of_one_partition_gets_its_turn_beside_one_of_many(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"a": 6, "b": 1})
    for number in range(6):
        world.topics.numbered(number, 100, topic="a")
    world.topics.numbered(0, 100, topic="b")
    limited = {**NAMED, "batch": {"max_partitions": 2, "max_offsets_per_partition": 10}}
    turns = [step.source.topic.name for batch in world.run(limited, max_batches=14) for step in batch.commit.steps]
    assert Counter(turns) == {"a": 24, "b": 4}  # 28 places for 7 partitions
    world.run(limited)
    prove(world)


def test_the_same_offsets_of_two_topics_are_two_rows_and_a_lost_one_is_missed(two: World) -> None:
    two.run(NAMED)
    gone = next(row for row in two.table.rows if row["_kafka_topic"] == "b" and row["_kafka_offset"] == 3)
    two.table.rows.remove(gone)
    assert "partition b:0: the table holds 6 rows, the ledger says 7" in proof(two).problems
    assert any("b/0 [0, 7): 6 rows found" in problem for problem in proof(two).problems)
    # Put back under the name of the other topic, the number of rows of that partition number is right, and the proof is not.
    two.table.rows.append({**gone, "_kafka_topic": "a"})
    problems = proof(two).problems
    assert "partition b:0: the table holds 6 rows, the ledger says 7" in problems
    assert "partition a:0: the table holds 11 rows, the ledger says 10" in problems


def test_rows_that_name_no_topic_are_compared_with_all_of_their_number(two: World) -> None:
    two.run(NAMED)
    recount = two.table.recount()
    untold = Recount({0: 5, "a:0": 5, "b:0": 7, "a:1": 4}, recount.dead_letters, expected_rows=recount.expected_rows)
    assert audit(two.table.held, two.table.history(), untold, several=True).problems == []
    lost = Recount({0: 5, "a:0": 5, "b:0": 6, "a:1": 3}, recount.dead_letters, expected_rows=recount.expected_rows)
    assert audit(two.table.held, two.table.history(), lost, several=True).problems == [
        "partition 0 of all topics together: the table holds 16 rows, the ledger says 17",
        "partition a:1: the table holds 3 rows, the ledger says 4",
    ]


def test_one_topic_is_shown_by_number_whatever_rows_name(two: World) -> None:
    two.topics.name("a")
    two.run({"source": {"topic": "a"}})
    report = audit(two.table.held, two.table.history(), two.table.recount())
    assert report.ok and list(report.partitions) == ["0", "1"]
    assert list(two.table.unpublished()[-1].metadata) == ["0", "1"]


# Where reading begins and ends


def test_start_and_end_name_their_topic(two: World) -> None:
    bounded = with_(NAMED, start={"a:0": 4, "b:0": 2}, end={"a:0": 9, "a:1": 4, "b:0": 7})
    two.run(bounded)
    assert sorted((r["_kafka_topic"], r["_kafka_partition"], r["_kafka_offset"]) for r in two.table.rows) == [
        *(("a", 0, at) for at in range(4, 9)), *(("a", 1, at) for at in range(4)), *(("b", 0, at) for at in range(2, 7)),
    ]  # fmt: skip
    assert isinstance(two.ingest(bounded).step(), Idle)
    assert two.table.held.unread(two.topics.source(0, "a"), SKIPPED).ranges == (Range(0, 4),)


@pytest.mark.parametrize(
    ("source", "words"),
    [({"end": {"a:0": 9}}, "source.end gives no offset for a/1, b/0"), ({"start": {"b:0": 8}}, "b/0 has no offset 8"),
     ({"start": {"a:2": 1}}, "partition a:2, which is not there")],
)  # fmt: skip
def test_offsets_that_do_not_exist_are_refused(two: World, source: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        two.run(with_(NAMED, **source))
    assert two.table.held.seq == 0


def test_an_offset_of_a_topic_that_has_begun_does_not_stand_in_the_way_of_another(two: World) -> None:
    two.topics.name("a")
    two.run({"source": {"topic": None, "topics": ["a"], "start": {"0": 4}}})
    two.topics.name("a", "b")
    two.run(with_(NAMED, start={"a:0": 4, "b:0": 6}))
    assert two.table.held.positions()[two.topics.source(0, "b")] == 7
    assert [r["_kafka_offset"] for r in two.table.rows if r.get("_kafka_topic") == "b"] == [6]


# Topics that a pattern finds


def test_a_topic_that_appears_begins_by_itself_at_its_first_record(web: World) -> None:
    latest = with_(FOUND, start="latest")
    web.run(latest)
    assert web.table.rows == []
    web.topics.create("web.z")
    web.topics.create("not.web.z")
    web.topics.numbered(0, 3, topic="web.z")
    web.topics.numbered(0, 3, topic="not.web.z")
    web.run(latest)
    assert [(row["_kafka_topic"], row["_kafka_offset"]) for row in web.table.rows] == [("web.z", 0), ("web.z", 1), ("web.z", 2)]
    assert web.table.commits[-2].kind == "begin" and "web.z/0 at 0" in web.table.commits[-2].note
    assert proof(web).ok


def test_a_topic_that_appears_lies_beyond_the_end_of_a_bounded_pipeline(web: World) -> None:
    bounded = with_(FOUND, end="latest")
    web.run(bounded)
    web.topics.create("web.z")
    web.topics.numbered(0, 3, topic="web.z")
    web.topics.numbered(0, 3, topic="web.x")
    assert web.run(bounded) == []
    assert web.ingest(bounded).step() == Idle("finished")
    assert Counter(row["_kafka_topic"] for row in web.table.rows) == {"web.x": 5, "web.y": 5}


def test_a_topic_appears_while_a_batch_is_on_its_way(web: World) -> None:
    def appear(_: Batch) -> None:
        if "web.z" not in web.topics._topics:
            web.topics.create("web.z", 2)
            web.topics.numbered(1, 4, topic="web.z")

    web.stager.before = appear
    web.run({**FOUND, "batch": {"max_offsets_per_partition": 2}})
    assert Counter(row["_kafka_topic"] for row in web.table.rows) == {"web.x": 5, "web.y": 5, "web.z": 4}
    assert proof(web).ok


def test_a_topic_that_is_gone_stops_the_pipeline_until_somebody_decides(web: World) -> None:
    web.run(FOUND)
    web.topics.delete("web.y")
    web.topics.numbered(0, 1, topic="web.x")
    before = web.state()
    for _ in range(2):
        with pytest.raises(TopicGone, match=r"web\.y is gone .*0: 5.* -> .*DROP ORPHAN PARTITIONS"):
            web.run(FOUND)
        assert web.state() == before
    survey = Survey(web.ingest(FOUND).pipeline, web.topics, web.table, seen=web.seen, forgetting=True)
    snapshot, ledger = survey.look()
    for decision in forget(ledger, snapshot, None):
        survey.decide(decision.kind, decision.changes, decision.note)
    assert web.table.commits[-1].kind == "retire" and web.table.commits[-1].note == "retire: web.y/0"
    web.run(FOUND)
    assert Counter(row["_kafka_topic"] for row in web.table.rows) == {"web.x": 6, "web.y": 5}
    assert proof(web).ok


def test_a_gone_topic_that_was_dropped_can_come_back_only_on_demand(web: World) -> None:
    web.run(FOUND)
    old = web.topics.source(0, "web.y")
    web.topics.delete("web.y")
    survey = Survey(web.ingest(FOUND).pipeline, web.topics, web.table, seen=web.seen, forgetting=True)
    snapshot, ledger = survey.look()
    (decision,) = forget(ledger, snapshot, ["web.y:0"])
    survey.decide(decision.kind, decision.changes, decision.note)
    assert all(lane.finished for lane in web.table.held.of(old))
    web.topics.create("web.y")
    web.topics.numbered(0, 2, topic="web.y")
    with pytest.raises(SourceIdentityChanged, match=r"web\.y was deleted and made again"):
        web.run(FOUND)
    web.run(FOUND, decisions=Decisions(on_new_topic="begin"))
    assert Counter(row["_kafka_topic"] for row in web.table.rows) == {"web.x": 5, "web.y": 7}
    assert proof(web).ok


@pytest.mark.parametrize("pipeline", [NAMED, FOUND])
def test_one_of_several_deleted_and_made_again_stops_all_until_somebody_decides(tmp_path: Path, pipeline: dict[str, Any]) -> None:
    first, second = ("a", "b") if pipeline is NAMED else ("web.x", "web.y")
    world = world_of(tmp_path, {first: 1, second: 1}, pipeline["source"].get("topic_pattern", ""))
    for topic in (first, second):
        world.topics.numbered(0, 4, topic=topic)
    world.run(pipeline)
    world.topics.recreate(topic=second)
    for topic in (first, second):
        world.topics.numbered(0, 3, topic=topic)
    before = world.state()
    for _ in range(2):
        with pytest.raises(SourceIdentityChanged, match=f"topic {second} was deleted and made again"):
            world.run(pipeline)
        assert world.state() == before
    world.run(pipeline, decisions=Decisions(on_new_topic="begin", who="anna"))
    assert Counter(row["_kafka_topic"] for row in world.table.rows) == {first: 7, second: 7}
    assert "anna" in next(commit.note for commit in reversed(world.table.commits) if commit.kind == "begin")
    assert proof(world).ok


def test_recreated_while_it_is_read_nothing_of_the_batch_is_committed(two: World) -> None:
    two.stager.after = lambda _: two.topics.recreate(topic="b")
    with pytest.raises(SourceIdentityChanged, match="topic b"):
        two.run(NAMED)
    assert two.table.rows == [] and two.table.held.positions()[two.topics.source(0, "a")] == 0


def test_a_named_topic_that_is_gone_is_named(two: World) -> None:
    two.run(NAMED)
    two.topics.delete("b")
    with pytest.raises(TopicUnknown, match="no topic b"):
        two.run(NAMED)


def test_a_topic_that_the_definition_names_no_more_is_left_alone(two: World) -> None:
    two.run(NAMED)
    two.topics.name("a")
    two.topics.delete("b")
    two.topics.numbered(0, 1, topic="a")
    two.run({"source": {"topic": "a"}})
    assert len(two.table.rows) == 22


def test_a_backfill_names_its_topic(two: World) -> None:
    two.run(with_(NAMED, start="latest"))
    snapshot, ledger = two.ingest(NAMED).survey.look()
    found, gone = backfills(ledger, snapshot, "b:0", Range(2, 5))
    assert gone == 0 and [decision.note for decision in found] == ["backfill: b/0 [2, 5)"]
    two.ingest(NAMED).survey.decide("backfill", found[0].changes, found[0].note)
    two.run(NAMED)
    assert sorted((row["_kafka_topic"], row["_kafka_offset"]) for row in two.table.rows) == [("b", 2), ("b", 3), ("b", 4)]


def test_the_plan_of_a_chosen_topic_says_that_it_is_finished(two: World) -> None:
    bounded = with_(NAMED, end="latest")
    two.run(bounded, only={"b:0"})
    snapshot, ledger = two.ingest(bounded).survey.look()
    assert plan(ledger, snapshot, Limits(), "x", {"b:0"}) == Idle("finished")
    assert isinstance(plan(ledger, snapshot, Limits(), "x", {"a:1"}), Batch)


def test_any_order_of_chosen_runs_reads_each_record_once(tmp_path: Path, worlds: Callable[..., World]) -> None:
    world = world_of(tmp_path, {"a": 2, "b": 2})
    for round in range(6):
        for topic, number in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
            world.topics.numbered(number, 1 + (round + number) % 3, topic=topic)
        world.run({**NAMED, "batch": {"max_offsets_per_partition": 2}}, only=({"a:0", "b:1"}, {"b:0"}, None)[round % 3])
    world.run(NAMED)
    prove(world)
