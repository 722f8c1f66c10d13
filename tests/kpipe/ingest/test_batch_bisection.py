"""`errors.batch: skip`: what fails for good is narrowed down and skipped on record; all else is there, it can be had later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch.batch import Batch
from kpipe.errors import (
    BrokerUnreachable,
    DeadLettersExceeded,
    DestinationError,
    Fenced,
    KpipeError,
    OffsetsLost,
    OutcomeUnknown,
    RecordRejected,
    RecordsUnreadable,
    SchemaConflict,
    StagingFailed,
    TransformFailed,
)
from kpipe.ledger.ledger import SKIPPED
from kpipe.offsets import Range
from kpipe.planning.seek import backfills

World = Any
MODE = {"errors": {"batch": "skip"}, "batch": {"max_offsets_per_partition": 40, "max_retries": 1}}


def poison(world: World, bad: Collection[tuple[int, int]], error: Callable[[], KpipeError]) -> None:
    """A batch with one of these in it cannot be staged."""

    def before(batch: Batch) -> None:
        if any(step.source.partition == number and at in step.range for step in batch.steps for number, at in bad):
            raise error()

    world.stager.before = before


def skipped(world: World) -> set[tuple[int, int]]:
    held = world.table.held
    return {(s.partition, at) for s in held.sources() for r in held.unread(s, SKIPPED) for at in range(r.start, r.end)}


def prove(world: World, gone: Collection[tuple[int, int]]) -> None:
    """What is skipped is that, everything else is there once."""
    assert skipped(world) == set(gone)
    assert world.coordinates() == Counter({place: 1 for place in world.expected() if place not in gone})
    report = world.audit()
    assert report.ok, report.problems
    assert bool(report.skipped) == bool(gone)


def rejected() -> KpipeError:
    return RecordRejected("no")


@given(bad=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 29)), max_size=6), most=st.integers(1, 40))
def test_just_what_fails_is_left_out_and_can_be_read_later(
    worlds: Callable[..., World], bad: set[tuple[int, int]], most: int
) -> None:
    world = worlds()
    world.topics.numbered(0, 30)
    world.topics.numbered(1, 30)
    poison(world, bad, rejected)
    mode = {**MODE, "batch": {**MODE["batch"], "max_offsets_per_partition": most}}
    world.run(mode)
    prove(world, bad)
    assert len([commit for commit in world.table.commits if commit.kind == "skip"]) == len(bad)
    # Mended: what was skipped is read, once; what comes next, too.
    world.stager.before = lambda _: None
    world.topics.numbered(0, 5)
    loop = world.ingest(mode)
    snapshot, ledger = loop.survey.look()
    for item in backfills(ledger, snapshot)[0]:
        loop.survey.decide(item.kind, item.changes, item.note, item.steps)
    world.run(mode)
    prove(world, ())


def test_each_is_on_record_with_its_reason(world: World) -> None:
    world.topics.numbered(0, 30)
    poison(world, {(0, 7), (0, 20)}, lambda: TransformFailed("it crashed", phase="work"))
    world.run(MODE)
    notes = [commit.note for commit in world.table.commits if commit.kind == "skip"]
    assert notes == ["skip: tweets/0 [7, 8); it crashed", "skip: tweets/0 [20, 21); it crashed"]
    events = [row for row in world.table.view("errors") if not row["dead_letter"]]
    assert [row["error_code"] for row in events] == ["TransformFailed"] * 2
    assert "[7, 8)" in str(events)
    assert len(world.kinds("narrowed")) > 2 and not world.waits


def test_a_record_that_the_error_names_is_found_at_once(world: World) -> None:
    world.topics.numbered(0, 40)

    def named() -> KpipeError:
        error = rejected()
        error.record = (world.topics.source(0), 33)
        return error

    poison(world, {(0, 33)}, named)
    world.run(MODE)
    prove(world, {(0, 33)})
    assert world.stager.calls == 4  # the whole, what is before it, itself, what is behind it


def test_where_nothing_is_good_it_ends(world: World) -> None:
    world.topics.numbered(0, 4000)
    every = {(0, at) for at in range(4000)}
    poison(world, every, lambda: TransformFailed("no", phase="work"))
    world.run({**MODE, "batch": {"max_offsets_per_partition": 4000}})
    prove(world, every)
    assert world.stager.calls < 80


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachable("away"),
        DestinationError("refused"),
        Fenced("overtaken"),
        OutcomeUnknown("unknown"),
        StagingFailed("disk is full"),
        DeadLettersExceeded("too many"),
        OffsetsLost("gone"),
        TransformFailed("it could not be started"),
        SchemaConflict("permission denied", by_rows=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_record_is_the_reason_of_stops_it(world: World, error: KpipeError) -> None:
    world.topics.numbered(0, 10)
    world.begin()
    poison(world, {(0, 3)}, lambda: error)
    with pytest.raises(type(error)):
        world.run(MODE)
    assert not skipped(world) and not world.coordinates()


def test_a_record_with_which_a_second_try_passed_is_not_skipped(world: World) -> None:
    world.topics.numbered(0, 1)
    world.begin()
    poison(world, {(0, 0)}, lambda: TransformFailed("a second run did not fail", phase="chance"))
    with pytest.raises(TransformFailed):
        world.run(MODE)
    assert not skipped(world)


@pytest.mark.parametrize("kind", [SchemaConflict, RecordsUnreadable])
def test_what_the_table_or_the_bytes_refuse_is_skipped_like_that(world: World, kind: type[KpipeError]) -> None:
    world.topics.numbered(0, 30)
    poison(world, {(0, 3)}, lambda: kind("no"))
    world.run(MODE)
    prove(world, {(0, 3)})


def test_a_table_that_takes_nothing_stops_it(world: World) -> None:
    world.topics.numbered(0, 30)
    poison(world, {(0, at) for at in range(30)}, lambda: SchemaConflict("a column is missing"))
    with pytest.raises(SchemaConflict):
        world.run(MODE)
    assert len(skipped(world)) == 16


def test_an_error_that_can_be_tried_again_is(world: World) -> None:
    world.topics.numbered(0, 10)
    world.stager.fail(BrokerUnreachable("away"), 1)
    world.run(MODE)
    prove(world, ())
    assert len(world.waits) == 1


def test_a_failure_ahead_of_a_commit(world: World) -> None:
    world.topics.numbered(0, 200)
    poison(world, {(0, 50), (0, 199)}, rejected)
    world.run(MODE)
    prove(world, {(0, 50), (0, 199)})


def test_skipping_with_claims(world: World) -> None:
    """`at_most_once`: what failed is given back, narrowed, and skipped; nothing is lost."""
    world.topics.numbered(0, 30)
    poison(world, {(0, 7)}, rejected)
    world.run({**MODE, "delivery": "at_most_once"})
    prove(world, {(0, 7)})
    assert not world.audit().lost


def test_a_range_that_is_backfilled_may_fail_as_well(world: World) -> None:
    world.topics.numbered(0, 30)
    late = {**MODE, "source": {"start": {"0": 20}}}
    world.run(late)
    loop = world.ingest(late)
    snapshot, ledger = loop.survey.look()
    (item,) = backfills(ledger, snapshot, 0, Range(0, 15))[0]
    loop.survey.decide(item.kind, item.changes, item.note)
    poison(world, {(0, 4)}, rejected)
    world.run(late)
    prove(world, {(0, 4), *((0, at) for at in range(15, 20))})


@pytest.mark.parametrize("fault", ["before", "after_landed", "unknown"])
def test_the_commit_that_skips_fails(world: World, fault: str) -> None:
    world.topics.numbered(0, 1)
    world.begin()
    poison(world, {(0, 0)}, rejected)
    world.table.store.faults += [fault]
    if fault == "after_landed":
        world.run(MODE)
    else:
        with pytest.raises(KpipeError):
            world.run(MODE)
        assert skipped(world) == (set() if fault == "before" else {(0, 0)})
        world.run(MODE)
    prove(world, {(0, 0)})


def test_another_run_reads_it_meanwhile(world: World) -> None:
    world.topics.numbered(0, 30)
    poison(world, {(0, 7)}, rejected)
    loop = world.ingest(MODE)
    passes = loop.passes()
    next(passes)  # a good part
    world.stager.before = lambda _: None
    world.run(MODE)
    list(passes)
    prove(world, ())
