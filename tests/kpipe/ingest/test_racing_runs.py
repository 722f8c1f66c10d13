"""Runs that race for the same partitions, and backfills beside live reading."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.errors import (
    Fenced,
)
from kpipe.ledger.ledger import SKIPPED
from kpipe.ledger.transitions import backfill
from kpipe.offsets import Range
from tests.kpipe.ingest.topics import World, fill


def test_the_run_that_commits_second_is_fenced_and_leaves_nothing(world: World) -> None:
    fill(world)
    world.run(max_batches=0)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)

    def overtake(_: object) -> None:
        world.stager.before = lambda _: None
        world.run({"batch": {"max_offsets_per_partition": 3}}, max_batches=1)
        world.after_the_winner = world.state()

    world.stager.before = overtake
    with pytest.raises(Fenced, match=r"tweets/0 .*expected next offset 2, found next offset 5") as raised:
        world.run()
    assert "run it again" in raised.value.hint
    assert world.state() == world.after_the_winner
    world.run()
    world.prove_exactly_once()


def test_runs_of_different_partitions_do_not_fence_each_other(world: World) -> None:
    fill(world)
    world.begin()
    world.stager.before = lambda batch: world.run(only={1}) if batch.steps[0].source.partition == 0 else None
    world.run(only={0})
    world.prove_exactly_once()


def test_offsets_that_another_run_committed_meanwhile_are_not_taken_for_the_end_of_the_log(world: World) -> None:
    """The brokers are asked after the ledger was read; an old answer would lie below the ledger's offsets."""
    fill(world)
    world.run()
    snapshot = world.topics.snapshot

    def slow() -> object:
        world.topics.snapshot = snapshot
        answer = snapshot()
        world.topics.numbered(0, 4)
        world.run()
        return answer

    world.topics.snapshot = slow
    world.run()
    world.prove_exactly_once()


def test_a_ledger_that_is_read_again_after_a_decision_may_be_ahead_of_the_brokers_answer(world: World) -> None:
    fill(world)
    world.run()
    world.topics.add_partitions()
    commit = world.table.commit

    def slow(wanted: Any) -> object:
        world.table.commit = commit
        result = commit(wanted)
        world.topics.numbered(0, 4)
        world.run()
        return result

    world.table.commit = slow
    world.run()
    world.prove_exactly_once()


def test_live_reading_and_a_backfill_of_the_skipped_range_take_turns(world: World) -> None:
    world.topics.numbered(0, 6)
    world.run({"source": {"start": "latest"}})
    ingest = world.ingest()
    source = world.topics.source(0)
    ingest.survey.decide("backfill", backfill(world.table.held, source, Range(0, 6)), "all of it")
    small = {"batch": {"max_offsets_per_partition": 2}}
    for _ in range(8):  # one new record before every batch: there is always something to read at the head
        world.topics.numbered(0, 1)
        world.run(small, max_batches=1)
    world.run(small)
    assert not world.table.held.unread(source, SKIPPED)
    world.prove_exactly_once()


def test_a_backfill_is_done_after_a_while_though_records_arrive_all_the_time(world: World) -> None:
    world.topics.numbered(0, 6)
    world.run({"source": {"start": "latest"}})
    source = world.topics.source(0)
    world.ingest().survey.decide("backfill", backfill(world.table.held, source, Range(0, 6)), "all of it")
    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}})
    for _ in range(12):
        world.topics.numbered(0, 1)
        loop.step()
    assert world.table.held.committed(source).missing(Range(0, 6)) == ()
