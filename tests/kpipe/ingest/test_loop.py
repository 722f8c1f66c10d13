"""The loop plans, stages and commits until it has caught up, with fakes on every edge."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kpipe.ledger.ledger import SKIPPED
from kpipe.ledger.transitions import jump
from kpipe.offsets import Range
from tests.kpipe.ingest.topics import World, fill


def test_it_catches_up_and_accounts_for_every_offset(world: World) -> None:
    fill(world)
    committed = world.run()
    assert len(committed) == 1
    assert committed[0].batch.closed_by == "caught_up"
    totals = committed[0].commit.totals
    assert (totals.rows, totals.dead_letters, totals.filtered, totals.gaps) == (12, 2, 2, 8)
    world.prove_exactly_once()


def test_a_run_with_nothing_new_commits_nothing(world: World) -> None:
    fill(world)
    world.run()
    before = world.state()
    assert world.run() == []
    assert world.state() == before


def test_an_empty_topic_is_begun_but_no_batch_is_committed(world: World) -> None:
    assert world.run() == []
    assert world.table.held.seq == 1
    assert [event.text for event in world.kinds("idle")] == ["caught_up"]


def test_a_single_record_lands(world: World) -> None:
    world.topics.numbered(0, 1)
    assert [c.batch.span for c in world.run()] == [1]
    world.prove_exactly_once()


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_any_size_of_batches_and_pieces_gives_each_row_once(world: World, limit: int, pieces: int) -> None:
    fill(world)
    world.stager.pieces = pieces
    committed = world.run({"batch": {"max_offsets_per_partition": limit}})
    assert len(committed) == -(-12 // limit)
    assert [c.seq for c in committed] == list(range(2, len(committed) + 2))
    world.prove_exactly_once()


def test_it_ends_at_the_limit_of_batches(world: World) -> None:
    fill(world)
    assert len(world.run({"batch": {"max_offsets_per_partition": 1}}, max_batches=3)) == 3
    assert world.run(max_batches=0) == []


def test_it_stops_after_the_batch_at_hand_when_it_is_told(world: World) -> None:
    fill(world)
    stop = itertools.chain([False, False, True]).__next__
    assert len(world.run({"batch": {"max_offsets_per_partition": 1}}, stopped=stop)) == 2


def test_it_follows_and_waits_the_interval_only_when_it_is_caught_up(world: World) -> None:
    fill(world)
    rounds = 0

    def wait(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        world.waits.append(seconds)
        if rounds < 3:
            world.topics.numbered(0, 2)

    loop = world.ingest(
        {"batch": {"interval_ms": 600_000, "max_offsets_per_partition": 6}}, wait=wait, stopped=lambda: rounds == 3
    )
    assert len(list(loop.run(follow=True))) == 4
    # From the beginning of a batch that left nothing; those before it left something, and none of them was waited for.
    assert len(world.waits) == 3
    assert all(0 < seconds <= 600 for seconds in world.waits)
    world.prove_exactly_once()


def test_chosen_partitions_are_read_and_no_others(world: World) -> None:
    fill(world)
    world.run(only={1})
    assert {partition for partition, _ in world.coordinates()} == {1}
    world.run()
    world.prove_exactly_once()


# What is told


def test_events_come_in_order_with_what_they_are_about(world: World) -> None:
    fill(world)
    world.run()
    assert [event.kind for event in world.events] == ["decided", "planned", "staged", "committed", "idle"]
    assert world.kinds("committed")[0].committed.batch.id == world.kinds("planned")[0].batch.id


def test_the_metadata_to_publish_is_part_of_the_commit_and_adds_up(world: World) -> None:
    fill(world)
    commit = world.run({"batch": {"max_offsets_per_partition": 5}}, max_batches=1)[0].commit
    shown = commit.metadata[world.topics.source(0)]
    assert (shown["start_offset"], shown["end_offset"], shown["lag"]) == (0, 5, 7)
    assert shown["rows"] + shown["dead_letters"] + shown["filtered"] + shown["gaps"] == 5
    assert commit.ends[world.topics.source(0)] == (0, 12)


def test_a_jump_leaves_a_skipped_range_that_is_not_read(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)
    loop = world.ingest()
    source = world.topics.source(0)
    loop.survey.decide("jump", jump(world.table.held, source, 8), "to 8")
    world.run()
    assert world.table.held.unread(source, SKIPPED).ranges == (Range(2, 8),)
    assert set(world.coordinates()) == {(0, 0), (0, 1), (0, 8), (0, 9)}
    assert world.audit().ok


def test_the_engine_is_announced_before_partitions_are_begun(world: World) -> None:
    fill(world)
    seqs: list[int] = []
    world.run(on_work=lambda: seqs.append(world.table.held.seq))
    assert seqs[0] == 0, "the commit that begins the partitions has yet to come"
    before = world.table.held.seq
    world.topics.numbered(0, 1)
    seqs.clear()
    world.run(on_work=lambda: seqs.append(world.table.held.seq))
    assert seqs == [before]


@pytest.mark.parametrize("start", ["earliest", "latest", {"0": 10, "1": 10}])
def test_no_engine_is_announced_where_nothing_can_be_read(world: World, start: object) -> None:
    if start != "earliest":
        for partition in (0, 1):
            world.topics.numbered(partition, 10)
    source = {"source": {"brokers": "b:9092", "topic": "tweets", "start": start}}

    def announced() -> None:
        raise AssertionError("nothing can be read")

    assert world.run(source, on_work=announced) == []
    assert world.run(source, on_work=announced) == []
    world.topics.open_transaction(0)
    world.topics.numbered(0, 1)
    assert world.run(source, on_work=announced) == [], "records of an open transaction wait"
    assert world.run(source, on_work=announced, only={1}) == []


def test_no_engine_is_announced_for_partitions_that_were_not_chosen(world: World) -> None:
    world.topics.numbered(0, 3)
    announced: list[int] = []
    assert world.run(only={1}, on_work=lambda: announced.append(1)) == []
    assert announced == []


def test_a_pass_reads_offsets_after_it_was_admitted(world: World) -> None:
    world.topics.numbered(0, 1)

    @contextmanager
    def admission() -> Iterator[bool]:
        world.topics.numbered(0, 2)  # arrive while the pass waits for its turn
        yield True

    (committed,) = world.run(max_batches=1, admission=admission)
    assert committed.commit.totals.rows == 3


def test_a_pass_that_was_not_admitted_ends_the_run(world: World) -> None:
    world.topics.numbered(0, 1)

    @contextmanager
    def admission() -> Iterator[bool]:
        yield False

    before = world.state()
    assert world.run(admission=admission) == []
    assert world.state() == before
