"""Several topics in one pipeline: names of partitions, reading, start and end, with the four proofs of each run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline, Source
from kpipe.errors import InvalidPipeline
from kpipe.ledger.ledger import SKIPPED
from kpipe.offsets import Range
from kpipe.planning.planner import Idle
from kpipe.topics import chosen, in_order, part, parts, unnamed
from kpipe.verification.verify import Recount, TableRecount, audit
from tests.cases import each_case
from tests.kpipe.conftest import World
from tests.kpipe.ingest.several_topics import NAMED, proof, prove, with_, world_of


def test_a_partition_is_its_number_or_topic_and_number(two: World) -> None:
    first, second, third = two.topics.source(0, "a"), two.topics.source(1, "a"), two.topics.source(0, "b")
    assert parts([third, second, first], multi_topic=True) == ["a:0", "a:1", "b:0"]
    assert parts([second, first], multi_topic=False) == [0, 1]
    assert [in_order(part(third, multi_topic)) for multi_topic in (True, False)] == [("b", 0), ("", 0)]
    assert chosen(first, None) and chosen(first, ["a:0"]) and chosen(first, [0]) and not chosen(first, ["b:0", 1])
    assert not unnamed(["a:0"], True) and not unnamed([0], False)
    assert "TOPIC:3" in unnamed(["a:0", 3], True) and "write 0" in unnamed(["a:0"], False)


def test_numbers_of_two_digits_stand_behind_those_of_one() -> None:
    assert sorted(["b:2", "a:10", "a:9"], key=in_order) == ["a:9", "a:10", "b:2"]


@each_case(
    ("given", "multi_topic"),
    [({"topic": "a"}, False), ({"topics": ["a"]}, False), ({"topics": ["a", "a"]}, False), ({"topics": ["a", "b"]}, True),
     ({"topic_pattern": "a"}, True)],
)  # fmt: skip
def test_partitions_are_told_apart_by_topic_where_there_may_be_several(given: dict[str, Any], multi_topic: bool) -> None:
    pipeline = Pipeline.model_validate({"name": "p", "source": {"brokers": "b", **given}, "into": {"table": "t"}})
    assert pipeline.source.multi_topic == multi_topic
    assert ("topic" in pipeline.coordinates) == multi_topic and "topic" not in pipeline.metadata


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
    [({0}, "0 is a partition of each of several topics: write TOPIC:0"),
     ({"a:2"}, "partition a:2 does not exist -> use partitions a:0 to b:0"),
     ({"c:0"}, "partition c:0 does not exist")],
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
    assert "partition b:0: expected 7 rows, found 6 in the table" in proof(two).problems
    assert any("b/0 [0, 7): 6 rows found" in problem for problem in proof(two).problems)
    # Put back under the name of the other topic, the number of rows of that partition number is right, and the proof is not.
    two.table.rows.append({**gone, "_kafka_topic": "a"})
    problems = proof(two).problems
    assert "partition b:0: expected 7 rows, found 6 in the table" in problems
    assert "partition a:0: expected 10 rows, found 11 in the table" in problems


def test_rows_that_name_no_topic_are_compared_with_all_of_their_number(two: World) -> None:
    two.run(NAMED)
    recount = two.table.recount()
    (table,) = recount.tables.values()
    untold = Recount({"t": TableRecount({0: 5, "a:0": 5, "b:0": 7, "a:1": 4}, table.expected_rows)}, recount.dead_letters)
    assert audit(two.table.held, two.table.history(), untold, multi_topic=True).problems == []
    lost = Recount({"t": TableRecount({0: 5, "a:0": 5, "b:0": 6, "a:1": 3}, table.expected_rows)}, recount.dead_letters)
    assert audit(two.table.held, two.table.history(), lost, multi_topic=True).problems == [
        "partition 0 of all topics together: expected 17 rows, found 16 in the table",
        "partition a:1: expected 4 rows, found 3 in the table",
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
     ({"start": {"a:2": 1}}, "partition a:2 does not exist")],
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
