"""The plan: bounds, named reasons, fairness, and the proof that ledger and brokers fit together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch.batch import Batch
from kpipe.errors import DestinationError, Fenced, OffsetsBeyondEnd, OffsetsLost, SourceIdentityChanged
from kpipe.ledger import transitions
from kpipe.ledger.ledger import READ, SKIPPED, Conflict, Lane, LaneChange, Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, arrivals, check_source, lag, losses, plan
from kpipe.testing.topics import FakeTopics
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from tests.cases import each_case


def begun(topics: FakeTopics, **more: Any) -> Ledger:
    ledger = Ledger("tweets")
    for source, state in topics.snapshot().partitions.items():
        ledger = ledger.after(transitions.begin(source, more.get("at", state.log_start), state.log_start, more.get("end")))
    return ledger


def planned(ledger: Ledger, topics: FakeTopics, **limits: Any) -> Batch:
    result = plan(ledger, topics.snapshot(), Limits(**limits), "batch")
    assert isinstance(result, Batch), result
    return result


def after(ledger: Ledger, batch: Batch) -> Ledger:
    return ledger.after(step.change for step in batch.steps)


def idle(ledger: Ledger, topics: FakeTopics, only: set[int] | None = None) -> Idle:
    result = plan(ledger, topics.snapshot(), Limits(), "batch", only)
    assert isinstance(result, Idle), result
    return result


def test_a_batch_ends_at_the_last_stable_offset_though_the_log_goes_on() -> None:
    topics = FakeTopics()
    topics.numbered(0, 5)
    topics.open_transaction(0)
    topics.numbered(0, 4)
    ledger = begun(topics)
    batch = planned(ledger, topics)
    assert batch.steps[0].range == Range(0, 5)
    assert idle(after(ledger, batch), topics) == Idle("open_transaction", 4)


def test_a_lane_with_an_end_waits_for_an_open_transaction_too() -> None:
    topics = FakeTopics()
    topics.open_transaction(0)
    topics.numbered(0, 4)
    assert idle(begun(topics, end=3), topics) == Idle("open_transaction", 3)


def test_caught_up_finished_and_no_partitions_are_told_apart() -> None:
    topics = FakeTopics(2)
    assert idle(begun(topics), topics) == Idle("caught_up")
    assert idle(begun(topics), topics, {0}) == Idle("caught_up")
    assert idle(begun(topics, end=0), topics) == Idle("finished")
    assert idle(begun(topics), topics, {5}) == Idle("no_partitions")
    assert plan(Ledger("tweets"), TopicSnapshot(), Limits(), "batch") == Idle("no_partitions")


def test_a_topic_that_is_not_there_any_more_does_not_make_a_pipeline_finished() -> None:
    assert plan(begun(FakeTopics()), TopicSnapshot(), Limits(), "batch") == Idle("no_partitions")


def test_what_closed_a_range_is_the_limit_that_cut_it_or_that_nothing_was_left() -> None:
    topics = FakeTopics()
    topics.numbered(0, 10)
    ledger = begun(topics)
    source = topics.source(0)
    assert planned(ledger, topics).closed_by == "caught_up"
    assert planned(ledger, topics, offsets=10).closed_by == "caught_up"
    assert planned(ledger, topics, offsets=9).closed_by == "offsets"
    by_bytes = planned(ledger, topics, bytes=100, bytes_per_offset={source: 30.0})
    assert (by_bytes.closed_by, by_bytes.span) == ("bytes", 4)
    assert planned(ledger, topics, bytes=1, bytes_per_offset={source: 1e9}).span == 1, "never nothing"


def test_a_bound_in_bytes_probes_before_it_knows_the_size_of_records() -> None:
    topics = FakeTopics()
    topics.mark(0, 10_001)
    assert planned(begun(topics), topics, bytes=1).span == 10_000


def test_with_a_bound_on_partitions_every_one_gets_its_turn() -> None:
    topics = FakeTopics(5)
    for partition in range(5):
        topics.mark(partition, 100)
    ledger, turns = begun(topics), Counter[int]()
    for _ in range(10):
        batch = planned(ledger, topics, offsets=1, partitions=2)
        turns.update(step.source.partition for step in batch.steps)
        ledger = after(ledger, batch)
    assert set(turns.values()) == {4}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 50))
def test_nobody_waits_longer_than_one_round_of_turns(partitions: int, most: int, first: int) -> None:
    topics = FakeTopics(partitions)
    for partition in range(partitions):
        topics.mark(partition, 500)
    ledger, snapshot = begun(topics), topics.snapshot()
    seen: set[int] = set()
    for turn in range(first, first + -(-partitions // min(most, partitions)) + 1):
        batch = plan(ledger, snapshot, Limits(1, partitions=most), "batch", turn=turn)
        assert isinstance(batch, Batch)
        seen.update(step.source.partition for step in batch.steps)
        assert len(batch.steps) == min(most, partitions)
        ledger = after(ledger, batch)
    assert seen == set(range(partitions))


def test_a_backfill_waits_while_the_live_lane_is_behind_and_takes_turns_once_it_keeps_up() -> None:
    topics = FakeTopics()
    topics.mark(0, 30)
    source = topics.source(0)
    ledger = begun(topics, at=10)
    ledger = ledger.after(transitions.backfill(ledger, source, Range(0, 10)))
    snapshot = topics.snapshot()
    behind = [plan(ledger, snapshot, Limits(5), "batch", turn=turn) for turn in (0, 1)]
    assert [b.steps[0].range for b in behind if isinstance(b, Batch)] == [Range(10, 15), Range(10, 15)]
    keeps_up = [plan(ledger, snapshot, Limits(20), "batch", turn=turn) for turn in (0, 1)]
    assert [b.steps[0].range for b in keeps_up if isinstance(b, Batch)] == [Range(10, 30), Range(0, 10)]


@pytest.mark.parametrize(
    ("partitions", "limits"),
    [(2, {"partitions": 1}), (4, {"partitions": 2}), (6, {"partitions": 4}), (2, {"total": 5}), (4, {"total": 12}), (3, {})],
)
def test_each_backfill_ends_while_records_arrive_whatever_the_limits(partitions: int, limits: dict[str, int]) -> None:
    """The number of the batch chooses both the partitions and the lane: some partitions had only even numbers."""
    sources = [FakeTopics(partitions).source(at) for at in range(partitions)]
    ledger, high = Ledger("tweets"), 100
    ledger = ledger.after(change for source in sources for change in transitions.begin(source, 100, 0, None))
    ledger = ledger.after(change for source in sources for change in transitions.backfill(ledger, source, Range(0, 100)))
    for turn in range(300):
        high += 1
        snapshot = TopicSnapshot({source: PartitionState(0, high, high) for source in sources})
        batch = plan(ledger, snapshot, Limits(offsets=20, **limits), "batch", turn=turn)
        assert isinstance(batch, Batch)
        ledger = after(ledger, batch)
    assert all(lane.finished for source in sources for lane in ledger.of(source) if not lane.open)
    assert all(high - ledger.positions()[source] < 100 for source in sources)


def test_a_stale_plan_is_fenced_with_what_was_expected_and_what_was_found() -> None:
    topics = FakeTopics(2)
    topics.mark(0, 4)
    topics.mark(1, 4)
    ledger = begun(topics)
    slow, quick = planned(ledger, topics), planned(ledger, topics, offsets=3)
    moved = after(ledger, quick)
    with pytest.raises(Fenced, match=r"tweets/0 \(lane from 0\): expected next offset 0, found next offset 3"):
        after(moved, slow)
    with pytest.raises(Fenced):  # the very same batch again: nothing is read twice
        after(moved, quick)
    with pytest.raises(Fenced, match="found no lane"):
        Ledger("tweets").after([LaneChange(slow.steps[0].lane, slow.steps[0].lane.advanced(4))])


def test_all_partitions_of_a_commit_must_hold_or_none_moves() -> None:
    topics = FakeTopics(2)
    topics.mark(0, 4)
    topics.mark(1, 4)
    ledger = begun(topics)
    batch = planned(ledger, topics)
    moved = ledger.after([batch.steps[1].change])
    with pytest.raises(Fenced):
        after(moved, batch)
    assert moved.positions()[topics.source(0)] == 0


def test_a_change_that_would_hold_an_offset_twice_is_refused() -> None:
    source = FakeTopics().source(0)
    ledger = Ledger("tweets").after([LaneChange(None, Lane(source, 0, 0, 10))])
    with pytest.raises(Fenced, match="lane from 5 overlaps the lane from 0 to 10"):
        ledger.after([LaneChange(None, Lane(source, 5, 5, 12, SKIPPED))])
    with pytest.raises(
        DestinationError, match=r"b1 would read offsets twice: .* lane from 12 overlaps the lane from 10"
    ) as error:
        ledger.after([LaneChange(None, Lane(source, 10, 10)), LaneChange(None, Lane(source, 12, 12))], "b1")
    assert not isinstance(error.value, Fenced)


def test_a_conflict_is_a_value_with_what_was_found() -> None:
    source = FakeTopics().source(0)
    lane = Lane(source, 0, 0, 10)
    ledger = Ledger("tweets").after([LaneChange(None, lane)])
    stale, twice = LaneChange(lane.advanced(3), lane.advanced(5)), LaneChange(lane, lane.advanced(3))
    assert ledger.apply([stale]) == Conflict("tweets", stale, lane)
    assert ledger.apply([twice, stale]) == Conflict("tweets", stale, lane.advanced(3), own=True)
    with pytest.raises(DestinationError, match="batch b1 changes a lane twice"):
        ledger.after([twice, stale], "b1")


@each_case("wrong", [(5, 4, 9, READ), (5, 10, 9, READ), (-1, 0, 9, READ), (5, 5, None, SKIPPED), (5, 5, None, "lost")])
def test_a_lane_that_makes_no_sense_can_not_be_made(wrong: tuple[int, int, int | None, str]) -> None:
    with pytest.raises(ValueError, match="lane"):
        Lane(FakeTopics().source(0), *wrong)


# check_source: topic, partition, offsets, and what to type


def test_offsets_below_the_log_start_are_lost_only_if_somebody_still_wants_them() -> None:
    topics = FakeTopics(2)
    topics.mark(0, 20)
    ledger = begun(topics)
    topics.expire(0, 7)
    with pytest.raises(OffsetsLost) as raised:
        check_source(ledger, topics.snapshot())
    assert "tweets/0: offsets [0, 7)" in str(raised.value)
    assert "log start 7" in str(raised.value)
    assert "kpipe run tweets --on-data-loss record" in raised.value.hint
    assert losses(ledger, topics.snapshot()) == (topics.source(0),)
    jumped = ledger.after(transitions.jump(ledger, topics.source(0), 10))
    check_source(jumped, topics.snapshot())
    assert losses(jumped, topics.snapshot()) == ()


def test_a_lane_with_an_end_loses_only_up_to_its_end() -> None:
    topics = FakeTopics()
    topics.mark(0, 20)
    ledger = begun(topics, end=5)
    topics.expire(0, 9)
    with pytest.raises(OffsetsLost, match=r"\[0, 5\)"):
        check_source(ledger, topics.snapshot())
    accepted = ledger.after(transitions.accept_loss(ledger, topics.source(0), 9))
    check_source(accepted, topics.snapshot())
    assert accepted.unread(topics.source(0), "lost").ranges == (Range(0, 5),)


@each_case("end", [None, 18])
def test_a_ledger_beyond_the_end_of_the_log_is_an_error_for_every_unfinished_lane(end: int | None) -> None:
    topics = FakeTopics()
    topics.mark(0, 20)
    ledger = begun(topics, end=end)
    ledger = after(ledger, planned(ledger, topics, offsets=15))
    topics.truncate(0, 12)
    with pytest.raises(OffsetsBeyondEnd) as raised:
        check_source(ledger, topics.snapshot())
    assert "tweets/0: the log was truncated or rebuilt: expected its end at 15 or later, found 12" in str(raised.value)
    assert '{"0": 12}' in raised.value.hint


def test_a_partition_that_vanished_is_an_error() -> None:
    topics = FakeTopics(2)
    ledger = begun(topics)
    one = {source: state for source, state in topics.snapshot().partitions.items() if source.partition == 0}
    with pytest.raises(OffsetsBeyondEnd, match=r"tweets/1 is in the ledger \(next offset 0\)") as raised:
        check_source(ledger, TopicSnapshot(one))
    assert raised.value.hint


@each_case("partitions", [1, 2, 3])
def test_a_recreated_topic_is_known_by_its_id_whatever_it_holds(partitions: int) -> None:
    topics = FakeTopics(2)
    ledger = begun(topics)
    topics.recreate(partitions)
    with pytest.raises(SourceIdentityChanged) as raised:
        check_source(ledger, topics.snapshot())
    for part in ("topic tweets", "topic-1", "topic-2", "0: 0, 1: 0", "kpipe run tweets --on-new-topic begin"):
        assert part in str(raised.value)
    assert len(arrivals(ledger, topics.snapshot())) == partitions


def test_another_cluster_with_the_same_contents_is_refused() -> None:
    topics = FakeTopics()
    ledger = begun(topics)
    topics.fail_over("cluster-2")
    with pytest.raises(SourceIdentityChanged, match="belong to a different cluster: expected cluster-1, found cluster-2"):
        check_source(ledger, topics.snapshot())


@each_case("noun", ["table", "list", "data file"])
def test_another_table_than_the_one_that_was_begun_is_refused_until_it_is_begun(noun: str) -> None:
    old, new, more = (PartitionId(TopicId("shop", "1", name), 0) for name in ("a/orders", "a/main.orders", "a/new"))
    ledger = Ledger("tweets").after(transitions.begin(old, 4, 0, None))
    snapshot = TopicSnapshot({new: PartitionState(0, 9, 9), more: PartitionState(0, 2, 2)}, "^a/(main|new)", noun)
    with pytest.raises(SourceIdentityChanged, match=r"expected a/orders \(next offset .*: 4\), found a/main.orders"):
        check_source(ledger, snapshot)
    check_source(Ledger("tweets"), snapshot)
    check_source(ledger, TopicSnapshot({}, "^a/(main|new)", noun))
    check_source(ledger.after(transitions.begin(new, 0, 0, None)), snapshot)
    check_source(ledger, replace(snapshot, noun="file"))  # new files appear under any name


def test_arrivals_are_the_partitions_that_the_ledger_does_not_know() -> None:
    topics = FakeTopics(1)
    ledger = begun(topics)
    assert arrivals(ledger, topics.snapshot()) == ()
    topics.add_partitions(2)
    assert [source.partition for source in arrivals(ledger, topics.snapshot())] == [1, 2]
    check_source(ledger, topics.snapshot())


def test_lag_counts_unread_offsets_up_to_the_high_watermark_but_none_that_are_skipped_or_lost() -> None:
    topics = FakeTopics(2)
    topics.mark(0, 10)
    source = topics.source(0)
    ledger = begun(topics)
    ledger = ledger.after(transitions.jump(ledger, source, 4))
    topics.open_transaction(0)
    topics.mark(0, 3)
    assert lag(ledger, topics.snapshot())[source] == 9
    ledger = ledger.after(transitions.backfill(ledger, source, Range(1, 3)))
    assert lag(ledger, topics.snapshot())[source] == 11
    topics.add_partitions()
    topics.mark(2, 6)
    assert lag(ledger, topics.snapshot())[topics.source(2)] == 6


# moves


def test_beginning_late_keeps_what_lies_before_for_a_backfill() -> None:
    topics = FakeTopics()
    topics.mark(0, 10)
    topics.expire(0, 2)
    ledger = begun(topics, at=7)
    assert ledger.unread(topics.source(0), SKIPPED).ranges == (Range(2, 7),)
    assert ledger.positions() == {topics.source(0): 7}


def test_a_jump_to_where_it_stands_changes_nothing_and_backwards_is_refused() -> None:
    topics = FakeTopics()
    topics.mark(0, 10)
    ledger = begun(topics, at=4)
    assert transitions.jump(ledger, topics.source(0), 4) == ()
    with pytest.raises(ValueError, match="cannot go on at 3"):
        transitions.jump(ledger, topics.source(0), 3)


def test_a_backfill_of_what_was_read_or_is_being_read_changes_nothing() -> None:
    topics = FakeTopics()
    topics.mark(0, 10)
    ledger = begun(topics)
    assert transitions.backfill(ledger, topics.source(0), Range(0, 10)) == ()
    ledger = ledger.after(transitions.jump(ledger, topics.source(0), 6))
    ledger = ledger.after(transitions.backfill(ledger, topics.source(0), Range(2, 4)))
    assert transitions.backfill(ledger, topics.source(0), Range(2, 4)) == ()
    assert ledger.unread(topics.source(0), SKIPPED).ranges == (Range(0, 2), Range(4, 6))
