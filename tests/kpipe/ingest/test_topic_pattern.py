"""Topics that a pattern finds: they appear, disappear, and are recreated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.errors import SourceIdentityChanged, TopicGone, TopicUnknown
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, plan
from kpipe.planning.reconcile import Survey
from kpipe.planning.seek import backfills, forget
from kpipe.run_events import Decisions
from tests.kpipe.conftest import World
from tests.kpipe.ingest.several_topics import NAMED, proof, prove, with_, world_of

FOUND: dict[str, Any] = {"source": {"topic": None, "topic_pattern": r"^web\."}}


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
        with pytest.raises(TopicGone, match=r"web\.y no longer exists .*0: 5.* -> .*DROP ORPHAN PARTITIONS"):
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


@pytest.mark.parametrize("end", [None, "latest"])
def test_a_topic_that_was_dropped_and_is_visible_again_is_read_on(web: World, end: str | None) -> None:
    bounds = {**FOUND, "source": {**FOUND["source"], "end": end}, "batch": {"max_offsets_per_partition": 2}}
    next(iter(web.ingest(bounds).run()))
    hidden = web.topics._topics.pop("web.y")
    survey = Survey(web.ingest(bounds).pipeline, web.topics, web.table, seen=web.seen, forgetting=True)
    snapshot, ledger = survey.look()
    (decision,) = forget(ledger, snapshot, None)
    survey.decide(decision.kind, decision.changes, decision.note)
    web.run(bounds)
    web.topics._topics["web.y"] = hidden
    web.run(bounds)
    assert Counter(row["_kafka_topic"] for row in web.table.rows) == {"web.x": 5, "web.y": 5}
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
    with pytest.raises(SourceIdentityChanged, match=r"web\.y was recreated: expected topic id"):
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
        with pytest.raises(SourceIdentityChanged, match=f"topic {second} was recreated: expected topic id"):
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
