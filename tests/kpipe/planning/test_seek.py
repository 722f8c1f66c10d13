"""Going elsewhere: forward keeps what it skips, back reads once what was skipped, and twice only what somebody asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.errors import InvalidStatement
from kpipe.ledger.ledger import LOST, READ, SKIPPED, Lane, LaneChange, Ledger
from kpipe.offsets import Range, RangeSet
from kpipe.planning.seek import Decision, backfills, forget, set_offsets
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from tests.kpipe.conftest import World

SMALL = {"batch": {"max_offsets_per_partition": 4}}


def decide(
    world: World, make: Callable[..., Iterable[Decision]], *more: Any, pipeline: dict[str, Any] | None = None, **named: Any
) -> list[str]:
    """Make the commits of a wish, as a statement does."""
    ingest = world.ingest(pipeline)
    snapshot, ledger = ingest.survey.look()
    found = list(make(ledger, snapshot, *more, **named))
    for item in found:
        ingest.survey.decide(item.kind, item.changes, item.note, item.steps)
    return [item.note for item in found]


def offsets(world: World, where: Mapping[int, int], reread: bool = False, **more: Any) -> list[str]:
    return decide(world, set_offsets, {world.topics.source(at): to for at, to in where.items()}, reread=reread, **more)


def backfill(world: World, *more: Any) -> list[str]:
    return decide(world, lambda ledger, snapshot: backfills(ledger, snapshot, *more)[0])


def lanes(world: World, partition: int = 0) -> list[tuple[int, int, int | None, str]]:
    return [(x.start, x.next, x.end, x.kind) for x in world.table.held.of(world.topics.source(partition))]


def read(world: World, partition: int = 0) -> Counter[int]:
    return Counter(row["_kafka_offset"] for row in world.table.rows if row["_kafka_partition"] == partition)


@pytest.fixture
def filled(world: World) -> World:
    world.topics.numbered(0, 10)
    world.topics.numbered(1, 10)
    return world


def test_forward_keeps_what_it_skips(filled: World) -> None:
    filled.run(SMALL, max_batches=1)
    assert offsets(filled, {0: 8}) == ["jump: tweets/0 from 4 to 8"]
    assert lanes(filled) == [(0, 4, 4, READ), (4, 4, 8, SKIPPED), (8, 8, None, READ)]
    filled.run()
    assert read(filled) == Counter(dict.fromkeys((0, 1, 2, 3, 8, 9), 1))
    assert read(filled, 1) == Counter(range(10)), "the other partition stayed where it was"
    assert backfill(filled) == ["backfill: tweets/0 [4, 8)"]
    filled.run()
    filled.prove_exactly_once()
    assert [commit.kind for commit in filled.table.commits] == ["begin", "batch", "jump", "batch", "backfill", "batch"]


def test_back_over_what_was_skipped_reads_it_once_and_in_order(filled: World) -> None:
    offsets(filled, {0: 9, 1: 10})
    filled.run()
    assert offsets(filled, {1: 3}) == ["rewind: tweets/1 from 3"]
    assert lanes(filled, 1) == [(0, 0, 3, SKIPPED), (3, 3, None, READ)]
    filled.topics.numbered(1, 2)
    filled.run(SMALL)
    assert read(filled, 1) == Counter(range(3, 12))
    assert filled.audit().ok


def test_back_over_what_was_read_is_refused_in_words(filled: World) -> None:
    filled.run()
    before = filled.state()
    with pytest.raises(InvalidStatement, match=r"tweets/0: offsets \[5, 10\) have been read -> add REREAD .*; BACKFILL"):
        offsets(filled, {0: 5, 1: 10})
    assert filled.state() == before


def test_on_demand_offsets_are_read_again_and_the_proof_knows(filled: World) -> None:
    filled.run()
    assert offsets(filled, {0: 6}, reread=True) == ["reread: tweets/0 from 6, [6, 10) again"]
    assert lanes(filled) == [(0, 6, 6, READ), (6, 6, None, READ)]
    assert filled.audit().ok, "also before anything was read again"
    filled.topics.numbered(0, 1)
    filled.run()
    assert read(filled) == Counter({**dict.fromkeys(range(11), 1), **dict.fromkeys(range(6, 10), 2)})
    audit = filled.audit()
    assert audit.ok, audit.problems
    assert (audit.span, audit.counts.rows) == (25, 25)
    offsets(filled, {0: 0}, reread=True)
    filled.run(SMALL)
    assert read(filled)[6] == 3 and read(filled)[0] == 2
    assert filled.audit().ok


def test_what_was_read_twice_without_a_demand_is_still_found(filled: World) -> None:
    filled.run()
    offsets(filled, {0: 5}, reread=True)
    filled.run()
    first = filled.table.entries[0]
    filled.table.entries.append(first)
    assert any("committed twice" in problem for problem in filled.audit().problems)


def test_reading_again_goes_over_what_was_skipped_too(filled: World) -> None:
    filled.run(SMALL, max_batches=1)
    offsets(filled, {0: 8})
    filled.run()
    assert offsets(filled, {0: 2}, reread=True) == ["reread: tweets/0 from 2, [2, 4) [8, 10) again"]
    assert lanes(filled) == [(0, 2, 2, READ), (2, 2, None, READ)]
    filled.run()
    assert read(filled) == Counter({0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1, 8: 2, 9: 2})
    assert filled.audit().ok


def test_where_it_stands_already_nothing_is_committed(filled: World) -> None:
    filled.run()
    seq = filled.table.held.seq
    assert offsets(filled, {0: 10, 1: 10}) == []
    assert offsets(filled, {0: 10}, reread=True) == []
    assert backfill(filled) == []
    assert filled.table.held.seq == seq


def test_offsets_that_do_not_exist_are_refused(filled: World) -> None:
    filled.run()
    filled.topics.expire(0, 4)
    for to in (3, 11):
        with pytest.raises(InvalidStatement, match=rf"tweets/0 has no offset {to}: expected 4 to 10 -> .* from 4 to 10"):
            offsets(filled, {0: to}, reread=True)


def test_a_lost_end_of_a_bounded_pipeline_is_read_again() -> None:
    """With `at_most_once` a run that was killed leaves its claim, here the last range."""
    source = PartitionId(TopicId("c", "i", "tweets"), 0)
    ledger = Ledger("tweets").after(LaneChange(None, lane) for lane in (Lane(source, 0, 50, 50), Lane(source, 50, 50, 100, LOST)))
    snapshot = TopicSnapshot({source: PartitionState(0, 100, 100)})
    for to in (50, 60):
        (decision,) = set_offsets(ledger, snapshot, {source: to}, reread=True)
        after = ledger.after(decision.changes)
        assert decision.kind == "reread" and [lane.next for lane in after.of(source) if not lane.finished] == [to]


def test_a_bounded_pipeline_is_not_taken_beyond_its_end(filled: World) -> None:
    bounded = {"source": {"end": {"0": 5, "1": 5}}}
    filled.run(bounded)
    with pytest.raises(InvalidStatement, match="a bounded pipeline"):
        offsets(filled, {0: 8}, pipeline=bounded)
    offsets(filled, {0: 1}, reread=True, pipeline=bounded)
    filled.run(bounded)
    assert read(filled) == Counter({0: 1, 1: 2, 2: 2, 3: 2, 4: 2})


def test_a_backfill_takes_what_the_log_still_holds(filled: World) -> None:
    offsets(filled, {0: 8, 1: 8})
    filled.topics.expire(0, 3)
    _, ledger = filled.ingest().survey.look()
    found, gone = backfills(ledger, filled.topics.snapshot(), None, Range(1, 6))
    assert gone == 2
    assert [item.note for item in found] == ["backfill: tweets/0 [3, 6), tweets/1 [1, 6)"]
    assert backfill(filled, 0, Range(1, 6)) == ["backfill: tweets/0 [3, 6)"]
    assert backfill(filled, 0, Range(0, 3)) == [], "gone"
    filled.run()
    assert read(filled) == Counter([3, 4, 5, 8, 9])
    assert lanes(filled)[0] == (0, 0, 3, SKIPPED)
    assert filled.audit().ok
    with pytest.raises(InvalidStatement, match="partition 7 does not exist"):
        backfill(filled, 7)


def test_a_partition_that_is_gone_is_not_waited_for(world: World, worlds: Callable[..., World]) -> None:
    source = world.topics.source(5)
    ledger = Ledger("tweets", 3, {lane.key: lane for lane in (Lane(source, 0, 4, 9), Lane(source, 9, 9))})
    world.begin()
    known = world.table.held
    both = Ledger("tweets", 3, {**known.lanes, **ledger.lanes})
    (found,) = forget(both, world.topics.snapshot(), None)
    assert (found.kind, found.note) == ("retire", "retire: tweets/5")
    after = both.after(found.changes)
    assert [(x.start, x.next, x.end) for x in after.of(source)] == [(0, 4, 4), (9, 9, 9)]
    assert forget(after, world.topics.snapshot(), None) == ()
    assert forget(both, world.topics.snapshot(), [5])[0].changes == found.changes


def test_a_partition_that_is_there_is_forgotten_only_on_demand(filled: World) -> None:
    filled.run()
    with pytest.raises(InvalidStatement, match="tweets/1 exists: DROP PARTITION would read it again"):
        decide(filled, forget, [1])
    with pytest.raises(InvalidStatement, match="no partition 9 in the ledger"):
        decide(filled, forget, [9])
    assert decide(filled, forget, [1], reread=True) == ["reread: tweets/1 from 0, [0, 10) again"]
    filled.run()
    assert read(filled, 1) == Counter(dict.fromkeys(range(10), 2))
    assert read(filled, 0) == Counter(range(10))
    assert filled.audit().ok


# Every order of wishes: a model counts how often each offset may have been read

wishes = st.lists(
    st.tuples(st.sampled_from(["to", "again", "backfill", "run", "grow", "expire"]), st.integers(0, 30), st.integers(0, 30)),
    max_size=10,
)


@settings(max_examples=60)
@given(wishes)
def test_no_order_of_wishes_loses_or_doubles_what_nobody_asked_for(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[str, int, int]]
) -> None:
    world = World(Path(tmp_path_factory.mktemp("world")), partitions=1)
    world.topics.numbered(0, 12)
    source, times = world.topics.source(0), Counter[int]()
    again: Counter[int] = Counter()
    for verb, a, b in found:
        _, ledger = world.ingest().survey.look() if verb != "expire" else (None, world.table.held)
        done = ledger.committed(source)
        try:
            if verb == "to":
                offsets(world, {0: a})
            elif verb == "again":
                offsets(world, {0: a}, reread=True)
                behind = a < ledger.positions().get(source, 0)
                again.update(at for item in done for at in range(item.start, item.end) if behind and at >= a)
            elif verb == "backfill":
                backfill(world, 0, Range(min(a, b), max(a, b) + 1))
            elif verb == "run":
                world.run(SMALL, max_batches=1 + a % 3)
            elif verb == "grow":
                world.topics.numbered(0, 1 + a % 4)
            elif ledger.sources():
                waiting = [x.next for x in ledger.of(source) if not x.finished]
                world.topics.expire(0, min([a, *waiting]))
        except InvalidStatement:
            pass
        assert world.audit().ok, world.audit().problems
    world.run()
    times = read(world)
    after = world.table.held
    known = RangeSet.of([*after.committed(source), *after.unread(source, SKIPPED), *after.unread(source, LOST)])
    assert not known.missing(Range(min((x.start for x in known), default=0), max((x.end for x in known), default=0)))
    for at, count in times.items():
        assert count <= 1 + again[at], f"offset {at} was read {count} times"
    for item in after.committed(source):
        assert all(times[at] >= 1 for at in range(item.start, item.end))
    assert world.audit().ok
