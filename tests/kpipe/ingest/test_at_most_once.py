"""`delivery: at_most_once`: rows come once or not at all, and the ledger says which."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Batch
from kpipe.errors import BrokerUnreachable, Fenced, KpipeError, OutcomeUnknown
from kpipe.ingest.at_most_once import claim
from kpipe.ledger.ledger import LOST, READ, SKIPPED, Lane, Ledger, Step
from kpipe.ledger.transitions import backfill
from kpipe.offsets import Range
from kpipe.run_events import Seen
from kpipe.topics import PartitionId, TopicId

World = Any
MODE = {"delivery": "at_most_once", "batch": {"max_offsets_per_partition": 4, "max_retries": 0}}
SOURCE = PartitionId(TopicId("c", "t", "tweets"), 0)


class Killed(BaseException):
    """Stands for SIGKILL: nothing is given back, and whoever comes next is another process."""


def killed(world: World, point: str, number: int = 1) -> None:
    """A run that is killed there."""
    left = number

    def die(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if reached == point and not left:
            raise Killed

    loop = world.ingest(MODE)
    loop.delivery.give_back = lambda: None
    failpoints.arm(die)
    try:
        with pytest.raises(Killed):
            list(loop.run())
    finally:
        failpoints.arm(None)


def lost(world: World) -> set[tuple[int, int]]:
    held = world.table.held
    return {(s.partition, at) for s in held.sources() for r in held.unread(s, LOST) for at in range(r.start, r.end)}


def prove(world: World) -> None:
    """What is there and what the ledger calls lost are together what was written, each of it once."""
    have, gone = world.coordinates(), lost(world)
    assert set(have.values()) <= {1}
    assert not have.keys() & gone
    heads = {source.partition: at for source, at in world.table.held.positions().items()}
    assert have.keys() == {place for place in world.expected() if place[1] < heads[place[0]]} - gone
    report = world.audit()
    assert report.ok, report.problems
    assert bool(report.lost) == bool(gone)


def test_unless_it_is_killed_nothing_is_lost(world: World) -> None:
    world.topics.numbered(0, 10)
    world.topics.numbered(1, 3)
    assert len(world.run(MODE)) == 3
    world.prove_exactly_once()
    assert not world.audit().lost
    assert world.run(MODE) == []
    assert [commit.kind for commit in world.table.commits] == ["begin", *["claim", "batch"] * 3]
    world.topics.numbered(0, 9)
    world.run(MODE)
    world.prove_exactly_once()
    assert len(world.table.held.lanes) <= 6, "the number of lanes grows with that of batches"


@pytest.mark.parametrize("point", ["plan.frozen", "collect.all"])
@pytest.mark.parametrize("number", [1, 2])
def test_killed_behind_the_claim_loses_that_batch_and_only_that(world: World, point: str, number: int) -> None:
    world.topics.numbered(0, 10)
    killed(world, point, number)
    assert lost(world) == {(0, at) for at in range(4 * number - 4, 4 * number)}
    prove(world)
    world.run(MODE)
    assert lost(world) == {(0, at) for at in range(4 * number - 4, 4 * number)}
    prove(world)
    assert len(world.table.rows) == 6


@pytest.mark.parametrize("point", ["plan.ledger", "plan.offsets", "publish.before"])
def test_killed_before_the_claim_or_behind_the_rows_loses_nothing(world: World, point: str) -> None:
    world.topics.numbered(0, 10)
    killed(world, point)
    assert not lost(world)
    world.run(MODE)
    world.prove_exactly_once()


def test_a_batch_that_fails_gives_its_claim_back(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run(MODE, max_batches=1)
    stage = world.stager.stage

    def broken(*_: object) -> None:
        raise BrokerUnreachable("away")

    world.stager.stage = broken
    with pytest.raises(BrokerUnreachable):
        world.run(MODE)
    assert not lost(world)
    world.stager.stage = stage
    world.run(MODE)
    world.prove_exactly_once()
    assert [c.kind for c in world.table.commits].count("release") == 1


@pytest.mark.parametrize("fault", ["before", "unknown"])
@pytest.mark.parametrize("commits_before", [0, 1])
def test_a_commit_that_fails_without_a_kill_loses_nothing(world: World, fault: str, commits_before: int) -> None:
    world.topics.numbered(0, 10)
    world.begin()
    world.table.store.faults += [None] * commits_before + [fault]
    with pytest.raises(KpipeError):
        world.run(MODE)
    prove(world)
    assert not lost(world)
    world.run(MODE)
    world.prove_exactly_once()


def test_where_the_claim_cannot_be_given_back_it_stays_lost(world: World) -> None:
    world.topics.numbered(0, 10)
    world.begin()
    world.table.store.faults += [None, "before", "before"]
    with pytest.raises(KpipeError):
        world.run(MODE)
    assert lost(world) == {(0, at) for at in range(4)}
    assert any("could not be released" in event.text for event in world.kinds("decided"))
    world.run(MODE)
    prove(world)


def test_two_runs_at_once_never_read_the_same_offsets(world: World) -> None:
    """One is overtaken between its claim and its rows: both have theirs."""
    world.topics.numbered(0, 10)
    stage, other = world.stager.stage, world.ingest(MODE)

    def overtaken(*asked: Any) -> Any:
        world.stager.stage = stage
        other.step()
        return stage(*asked)

    world.stager.stage = overtaken
    world.run(MODE)
    assert not lost(world)
    world.prove_exactly_once()


def test_a_claim_that_was_fenced_gives_nothing_back(world: World) -> None:
    """Two runs with the same plan have equal claims: that of the other one stays, also if it was killed."""
    world.topics.numbered(0, 10)
    world.begin()
    first, second = world.ingest(MODE, seen=Seen()), world.ingest(MODE, seen=Seen())
    before = second.reconcile(second.observe())
    planned = second.plan(before)
    observed = first.reconcile(first.observe())
    first.stage(observed, first.plan(observed))  # and is killed
    claimed = dict(world.table.held.lanes)
    with pytest.raises(Fenced), second.delivery.attempt():
        second.stage(before, planned)
    assert world.table.held.lanes == claimed and lost(world) == {(0, at) for at in range(4)}
    world.run(MODE)
    prove(world)


def test_a_bounded_end_is_claimed_like_anything(world: World) -> None:
    world.topics.numbered(0, 10)
    world.topics.numbered(1, 10)
    bounded = {**MODE, "source": {"end": {"0": 6, "1": 0}}}
    world.run(bounded)
    assert sorted(row["_kafka_offset"] for row in world.table.rows) == list(range(6))
    assert world.audit().ok
    assert world.run(bounded) == []


def test_a_backfill_is_claimed_like_anything(world: World) -> None:
    world.topics.numbered(0, 10)
    late = {**MODE, "source": {"start": {"0": 7}}}
    world.run(late)
    source = next(iter(world.table.held.sources()))
    world.ingest(late).survey.decide("backfill", backfill(world.table.held, source, Range(1, 7)), "backfill")
    world.run(late)
    have = world.coordinates()
    assert have == {place: 1 for place in world.expected() if place[1] > 0}
    assert world.audit().ok
    assert not lost(world)


def test_lanes_side_by_side_are_folded_and_others_left_alone() -> None:
    lanes = [
        Lane(SOURCE, 0, 2, 2),
        Lane(SOURCE, 2, 2, 5, SKIPPED),
        Lane(SOURCE, 5, 7, 7),
        Lane(SOURCE, 7, 9, 9),
        Lane(SOURCE, 9, 11),
    ]
    ledger = Ledger("p", 1, {lane.key: lane for lane in lanes})
    found = claim(ledger, Batch("b", "p", (Step(lanes[-1], 15),)))
    after = ledger.after(found.changes)
    assert after.of(SOURCE) == (
        lanes[0],
        lanes[1],
        Lane(SOURCE, 5, 11, 11),
        Lane(SOURCE, 11, 11, 15, LOST),
        Lane(SOURCE, 15, 15),
    )
    assert after.after(found.landing).committed(SOURCE) == ledger.committed(SOURCE).add(found.batch.steps[0].range)
    given_back = after.after(found.release)
    assert given_back.committed(SOURCE) == ledger.committed(SOURCE)
    assert given_back.live(SOURCE) == Lane(SOURCE, 11, 11)
    assert all(lane.kind == READ for lane in given_back.of(SOURCE)[2:])


def test_the_group_follows(world: World) -> None:
    world.topics.numbered(0, 3)
    assert [{s.partition: at for s, at in done.heads().items()} for done in world.run(MODE)] == [{0: 3}]


def test_an_unknown_outcome_is_an_error_still(world: World) -> None:
    world.topics.numbered(0, 3)
    world.begin()
    world.table.store.faults += [None, "unknown"]
    with pytest.raises(OutcomeUnknown):
        world.run(MODE)
    world.prove_exactly_once()
