"""Retries of errors, and destinations whose answer to a commit is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from kpipe.errors import (
    BrokerUnreachable,
    DestinationBusy,
    DestinationError,
    OutcomeUnknown,
    TransformFailed,
)
from tests.kpipe.ingest.topics import World, fill


def test_a_retriable_error_is_tried_again_with_waits_that_double_up_to_ten_times_the_interval(world: World) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(6)))
    world.run({"batch": {"interval_ms": 1000, "max_retries": 6}})
    assert world.waits == [1, 2, 4, 8, 10, 10]
    assert len(world.kinds("retry")) == 6
    world.prove_exactly_once()


@pytest.mark.parametrize(
    ("batch", "waits"),
    [
        ({"retry_interval_ms": 300}, [0.3, 0.6, 1.2]),
        ({"retry_interval_ms": 300, "max_retry_interval_ms": 500}, [0.3, 0.5, 0.5]),
        ({"retry_interval_ms": 300, "exponential": False}, [0.3, 0.3, 0.3]),
        ({"interval_ms": 1000, "max_retry_interval_ms": 200}, [0.2, 0.2, 0.2]),
    ],
)
def test_the_waits_before_retries_can_be_chosen(world: World, batch: dict[str, object], waits: list[float]) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(3)))
    world.run({"batch": batch})
    assert world.waits == pytest.approx(waits)


def test_after_the_last_retry_the_error_comes_out_and_nothing_was_written(world: World) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(9)))
    with pytest.raises(BrokerUnreachable):
        world.run({"batch": {"interval_ms": 0}})
    assert world.topics.asked == 5
    assert world.waits == [0.1, 0.2, 0.4, 0.8]
    assert world.table.held.seq == 0


def test_a_batch_that_commits_resets_the_count_of_failures(world: World) -> None:
    fill(world)
    for call in (1, 2, 4, 5, 7, 8):
        world.stager.fail(DestinationBusy("held"), call)
    committed = world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 2}})
    assert len(committed) == 3
    assert world.waits == [2.5, 5, 2.5, 5, 2.5, 5]
    world.prove_exactly_once()


def test_an_error_that_is_not_retriable_ends_the_run_at_once(world: World) -> None:
    fill(world)
    world.stager.fail(TransformFailed("exit status 3"))
    with pytest.raises(TransformFailed):
        world.run()
    assert world.waits == []
    assert world.coordinates() == Counter()
    world.run()
    world.prove_exactly_once()


def test_each_try_plans_anew_under_a_new_id(world: World) -> None:
    fill(world)
    world.stager.fail(BrokerUnreachable("gone"))
    world.run()
    ids = [batch.id for batch, _ in world.stager.given]
    assert len(set(ids)) == 2


# The destination's answer is lost


def test_an_answer_that_is_lost_after_the_commit_landed_changes_nothing(world: World) -> None:
    fill(world)
    world.begin()
    world.table.store.fail_next("after_landed")
    assert len(world.run({"batch": {"max_offsets_per_partition": 4}})) == 3
    world.prove_exactly_once()


@pytest.mark.parametrize(("fault", "error"), [("before", DestinationError), ("unknown", OutcomeUnknown)])
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_commit_that_fails_or_whose_outcome_is_unknown_ends_the_run_and_the_next_one_finds_out(
    world: World, fault: str, error: type[Exception], call: int
) -> None:
    fill(world)
    small = {"batch": {"max_offsets_per_partition": 4}}
    world.run(small, max_batches=call)
    world.table.store.fail_next(fault)
    with pytest.raises(error):
        world.run(small)
    assert world.waits == [], "it is not simply sent again"
    world.run(small)
    world.prove_exactly_once()


def test_brokers_that_never_answered_are_not_retried(world: World) -> None:
    fill(world)
    never = BrokerUnreachable("no broker answered")
    never.reached = False
    world.topics.fail(never)
    with pytest.raises(BrokerUnreachable):
        world.run()
    assert world.topics.asked == 1 and world.waits == []
    world.run()
    world.prove_exactly_once()
