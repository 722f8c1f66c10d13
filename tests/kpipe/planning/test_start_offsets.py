"""`start` and `end`: every form, and bounded pipelines by the rules that Druid's bounded supervisor is tested with."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from kpipe.ledger.ledger import SKIPPED
from kpipe.offsets import Range
from kpipe.planning.planner import Idle
from kpipe.testing.topics import FakeTopics

World = Any


@pytest.fixture
def ten(world: World) -> World:
    """Ten records in each partition, one a second from 1970-01-01T00:00:00Z on; the first two have expired."""
    for partition in (0, 1):
        for second in range(10):
            world.topics.produce(partition, {"id": second}, at_ms=second * 1000)
        world.topics.expire(partition, 2)
    return world


def read(world: World, partition: int) -> tuple[Range, ...]:
    found: tuple[Range, ...] = world.table.held.committed(world.topics.source(partition)).ranges
    return found


def moment(second: int) -> dict[str, str]:
    return {"timestamp": f"1970-01-01T00:00:{second:02}Z"}


@pytest.mark.parametrize(
    ("start", "ranges"),
    [
        ("earliest", [(2, 10), (2, 10)]),
        (moment(0), [(2, 10), (2, 10)]),
        (moment(6), [(6, 10), (6, 10)]),
        ({"1": 7}, [(2, 10), (7, 10)]),
        ({"0": 2, "1": 9}, [(2, 10), (9, 10)]),
    ],
)
def test_partitions_begin_where_start_says(ten: World, start: object, ranges: list[tuple[int, int]]) -> None:
    ten.run({"source": {"start": start}})
    assert [read(ten, partition) for partition in (0, 1)] == [(Range(*pair),) for pair in ranges]
    for partition, (at, _) in enumerate(ranges):
        skipped = ten.table.held.unread(ten.topics.source(partition), SKIPPED)
        assert skipped.ranges == ((Range(2, at),) if at > 2 else ())


@pytest.mark.parametrize("start", ["latest", moment(50), {"0": 10, "1": 10}])
def test_starting_at_the_end_reads_only_what_comes_later(ten: World, start: object) -> None:
    assert ten.run({"source": {"start": start}}) == []
    ten.topics.numbered(0, 3)
    ten.run({"source": {"start": start}})
    assert read(ten, 0) == (Range(10, 13),)


def test_start_counts_at_the_first_run_only(ten: World) -> None:
    ten.run({"source": {"start": {"0": 5, "1": 5}}}, max_batches=1)
    ten.run({"source": {"start": "earliest"}})
    assert read(ten, 0) == (Range(5, 10),)


@pytest.mark.parametrize("name", ["start", "end"])
@pytest.mark.parametrize("offset", [1, 11])
def test_an_offset_that_the_log_does_not_hold_is_refused_with_what_it_holds(ten: World, name: str, offset: int) -> None:
    with pytest.raises(InvalidPipeline, match=rf"source.{name}: tweets/1 has no offset {offset}: expected 2 to 10"):
        ten.run({"source": {name: {"0": 5, "1": offset}}})
    assert ten.table.held.seq == 0


@pytest.mark.parametrize("name", ["start", "end"])
def test_a_partition_that_does_not_exist_is_refused(ten: World, name: str) -> None:
    with pytest.raises(InvalidPipeline, match=rf"source.{name}: partition 4 does not exist -> .*0 to 1"):
        ten.run({"source": {name: {"0": 5, "4": 5}}})


def test_offsets_by_partition_number_are_refused_when_there_are_several_topics() -> None:
    for name in ("start", "end"):
        with pytest.raises(ValueError, match=f"{name}: 0 is a partition of each of several topics: write TOPIC:0"):
            Source(brokers="b", topics=["a", "b"], **{name: {"0": 3}})
        with pytest.raises(ValueError, match=f"{name}: a:0: the pipeline reads one topic: write 0"):
            Source(brokers="b", topic="a", **{name: {"a:0": 3}})


@pytest.mark.parametrize("topics", [("a", "b", "c"), ("b", "c")])
@pytest.mark.parametrize("bounded", [False, True])
def test_a_topic_is_added_when_the_log_no_longer_has_the_start_of_another(
    worlds: Any, topics: tuple[str, ...], bounded: bool
) -> None:
    """`start` and `end` apply once, also if the definition no longer reads the topic."""
    world = worlds()
    world.topics = world.stager.topics = FakeTopics({"a": 1, "b": 1})
    for topic in "ab":
        world.topics.numbered(0, 10, topic)
    bounds: dict[str, Any] = {"start": {"a:0": 2}, **({"end": {"a:0": 8, "b:0": 8}} if bounded else {})}
    world.run({"source": {"topic": None, "topics": ["a", "b"], **bounds}})
    world.topics.expire(0, 9, "a")
    world.topics.create("c")
    world.topics.numbered(0, 10, "c")
    world.topics.name(*topics)
    bounds = {name: {**offsets, "c:0": 6 if name == "start" else 7} for name, offsets in bounds.items()}
    world.run({"source": {"topic": None, "topics": list(topics), **bounds}})
    committed = world.table.held.committed
    assert committed(world.topics.source(0, "a")).ranges == (Range(2, 8 if bounded else 10),)
    assert committed(world.topics.source(0, "c")).ranges == (Range(6, 7 if bounded else 10),)


@pytest.mark.parametrize(("part", "words"), [("c:0", "c/0 has no offset 11"), ("c:1", "c:1 does not exist"), ("d:0", "d:0 does")])
def test_the_bounds_of_an_added_topic_are_checked(worlds: Any, part: str, words: str) -> None:
    world = worlds(1)
    world.topics.numbered(0, 3)
    world.run()
    world.topics.create("c")
    world.topics.name("tweets", "c")
    source = {"topic": None, "topics": ["tweets", "c"], "start": {part: 11}}
    with pytest.raises(InvalidPipeline, match=f"source.start: (partition )?{words}"):
        world.run({"source": source})


# Bounded pipelines


@pytest.mark.parametrize(("end", "at"), [("latest", 10), (moment(6), 6), (moment(50), 10), ({"0": 7, "1": 7}, 7), (moment(0), 2)])
def test_a_bounded_pipeline_reads_to_its_end_and_is_finished(ten: World, end: object, at: int) -> None:
    bounded = {"source": {"end": end}}
    ten.run(bounded)
    ten.topics.numbered(0, 5)
    assert ten.run(bounded) == []
    assert ten.kinds("idle")[-1].text == "finished"
    for partition in (0, 1):
        assert read(ten, partition) == ((Range(2, at),) if at > 2 else ())


def test_the_end_is_fixed_at_the_first_plan(ten: World) -> None:
    bounded = {"source": {"end": "latest"}, "batch": {"max_offsets_per_partition": 3}}
    ten.run(bounded, max_batches=1)
    ten.topics.numbered(0, 20)
    ten.run(bounded)
    assert read(ten, 0) == (Range(2, 10),)


def test_an_empty_bounded_range_completes_at_once(world: World) -> None:
    loop = world.ingest({"source": {"end": "latest"}})
    assert loop.step() == Idle("finished")
    assert list(world.ingest({"source": {"end": "latest"}}).run(follow=True)) == []
    assert world.waits == []


@pytest.mark.parametrize(
    ("start", "end"), [({"0": 8, "1": 2}, {"0": 5, "1": 5}), (moment(7), moment(4)), ("latest", {"0": 5, "1": 5})]
)
def test_a_start_beyond_the_end_is_an_error_and_does_not_silently_complete(ten: World, start: object, end: object) -> None:
    with pytest.raises(InvalidPipeline, match=r"source.start: tweets/0 would begin at \d+, beyond its end \d"):
        ten.run({"source": {"start": start, "end": end}})
    assert ten.table.held.seq == 0


def test_a_start_at_the_end_is_an_empty_range(ten: World) -> None:
    assert ten.ingest({"source": {"start": {"0": 5, "1": 5}, "end": {"0": 5, "1": 5}}}).step() == Idle("finished")


@pytest.mark.parametrize(("end", "words"), [(5, "has been read up to 8, beyond 5"), (9, "ends at 8 in the ledger, not at 9")])
def test_a_bounded_pipeline_of_which_the_end_is_changed_does_not_silently_complete(ten: World, end: int, words: str) -> None:
    ten.run({"source": {"end": {"0": 8, "1": 8}}})
    before = ten.state()
    for _ in range(2):
        with pytest.raises(InvalidPipeline, match=rf"source.end: tweets/1 {words}; .* -> set it to 8"):
            ten.run({"source": {"end": {"0": 8, "1": end}}})
    assert ten.state() == before and ten.run({"source": {"end": {"0": 8, "1": 8}}}) == []


def test_an_end_below_what_is_being_read_is_an_error(ten: World) -> None:
    limits = {"batch": {"max_offsets_per_partition": 4}}
    ten.run({"source": {"end": {"0": 10, "1": 10}}, **limits}, max_batches=1)
    with pytest.raises(InvalidPipeline, match="tweets/0 has been read up to 6, beyond 5"):
        ten.run({"source": {"end": {"0": 5, "1": 5}}, **limits})


@pytest.mark.parametrize("start", [3, 5])
def test_a_bounded_pipeline_of_which_the_start_is_changed_is_refused(ten: World, start: int) -> None:
    ends = {"end": {"0": 8, "1": 8}}
    ten.run({"source": {"start": {"0": 4, "1": 4}, **ends}}, max_batches=1)
    with pytest.raises(InvalidPipeline, match=f"source.start: tweets/0 was begun at 4, not at {start}"):
        ten.run({"source": {"start": {"0": start, "1": 4}, **ends}})
    assert ten.run({"source": {"start": {"0": 4, "1": 4}, **ends}}) == []


@pytest.mark.parametrize("end", ["latest", {"0": 10, "1": 10}, moment(6)])
def test_an_end_that_comes_later_or_goes_is_refused(ten: World, end: object) -> None:
    ten.run()
    with pytest.raises(
        InvalidPipeline, match=r"source\.end: tweets/0: the end is fixed at the first plan: expected none, found one"
    ):
        ten.run({"source": {"end": end}})
    assert ten.run() == []


def test_an_end_that_is_taken_away_is_refused_and_not_taken_for_caught_up(ten: World) -> None:
    ten.run({"source": {"end": "latest"}})
    ten.topics.numbered(0, 5)
    with pytest.raises(
        InvalidPipeline, match=r"source\.end: tweets/0: the end is fixed at the first plan: expected 10, found none"
    ):
        ten.run()


def test_every_partition_of_a_bounded_pipeline_has_an_end(ten: World) -> None:
    with pytest.raises(InvalidPipeline, match=r"source.end gives no offset for tweets/1"):
        ten.run({"source": {"end": {"0": 5}}})


def test_a_partition_that_appears_later_lies_beyond_the_end_of_a_bounded_pipeline(ten: World) -> None:
    bounded = {"source": {"end": "latest"}, "batch": {"max_offsets_per_partition": 3}}
    ten.run(bounded, max_batches=1)
    ten.topics.add_partitions()
    ten.topics.numbered(2, 5)
    ten.run(bounded)
    assert read(ten, 2) == ()
    assert ten.kinds("idle")[-1].text == "finished"


def test_a_bounded_pipeline_ends_when_the_last_offsets_hold_no_record(world: World) -> None:
    world.topics.numbered(0, 3)
    world.topics.mark(0, 2)
    world.topics.numbered(1, 4)
    world.topics.compact(1, 2, 3)
    world.run({"source": {"end": "latest"}})
    assert [read(world, partition) for partition in (0, 1)] == [(Range(0, 5),), (Range(0, 4),)]
    assert world.audit().ok
