"""Ledger, moves and plan under everything that happens to a topic, with planners that race. A model counts offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from kpipe.batch.batch import Batch
from kpipe.errors import Fenced, OffsetsLost
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, READ, SKIPPED, LaneChange, Ledger, check_disjoint
from kpipe.offsets import Range, RangeSet
from kpipe.planning.planner import Idle, Limits, arrivals, check_source, lag, plan
from kpipe.testing.topics import FakeTopics
from kpipe.topics import PartitionId

partitions = st.integers(0, 3)
few = st.integers(1, 8)


class Lanes(RuleBasedStateMachine):
    """The ledger is the system; `read`, `lost` and `began` are the model."""

    plans: Bundle[tuple[Ledger, Batch]] = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics(2)
        self.ledger = Ledger("tweets")
        self.read: Counter[tuple[PartitionId, int]] = Counter()
        self.lost: set[tuple[PartitionId, int]] = set()
        self.history: list[tuple[PartitionId, Range]] = []
        self.began: dict[PartitionId, int] = {}
        self.bounded: set[PartitionId] = set()
        self.turn = 0

    @initialize(n=st.integers(0, 10), m=st.integers(0, 10), expired=st.integers(0, 4))
    def first_records(self, n: int, m: int, expired: int) -> None:
        self.topics.mark(0, n)
        self.topics.mark(1, m)
        self.topics.expire(0, expired)

    # What happens to the topic

    @rule(partition=partitions, number=few)
    def grow(self, partition: int, number: int) -> None:
        self.topics.mark(partition % self.size, number)

    @rule(partition=partitions)
    def begin_transaction(self, partition: int) -> None:
        if self.topics.snapshot().partitions[self.topics.source(partition % self.size)].high == self.stable(partition):
            self.topics.open_transaction(partition % self.size)

    @rule(partition=partitions)
    def end_transaction(self, partition: int) -> None:
        self.topics.close_transaction(partition % self.size)

    @rule(partition=partitions, to=st.integers(0, 60))
    def expire(self, partition: int, to: int) -> None:
        # Retention never passes an open transaction.
        self.topics.expire(partition % self.size, min(to, self.stable(partition)))

    @precondition(lambda self: self.size < 4)
    @rule()
    def add_partition(self) -> None:
        self.topics.add_partitions()

    # What kpipe does

    @rule(data=st.data(), bounded=st.booleans())
    def begin(self, data: st.DataObject, bounded: bool) -> None:
        snapshot = self.topics.snapshot()
        for source in arrivals(self.ledger, snapshot):
            state = snapshot.partitions[source]
            at = data.draw(st.integers(state.log_start, state.end), label=f"begin {source}")
            end = data.draw(st.integers(at, state.high), label="end") if bounded else None
            self.apply(transitions.begin(source, at, state.log_start, end))
            self.began[source] = state.log_start
            if bounded:
                self.bounded.add(source)

    @rule(target=plans, limit=few, most=st.none() | few, only=st.none() | st.sets(partitions, min_size=1))
    def make_a_plan(self, limit: int, most: int | None, only: set[int] | None) -> object:
        snapshot = self.topics.snapshot()
        try:
            check_source(self.ledger, snapshot)
        except OffsetsLost:
            self.accept_loss()
        self.turn += 1
        batch = plan(self.ledger, snapshot, Limits(limit, partitions=most), f"batch-{self.turn}", only, self.turn)
        if isinstance(batch, Idle):
            pending = lag(self.ledger, snapshot)
            known = {s for s in self.ledger.sources() if only is None or s.partition in only}
            assert sum(pending[s] for s in known) == batch.waiting, "idle although there is something to read"
            return self.ledger, Batch("nothing", "tweets", ())
        self.prove_plan(batch, limit, most, only)
        return self.ledger, batch

    @rule(planned=consumes(plans), pieces=few)
    def commit(self, planned: tuple[Ledger, Batch], pieces: int) -> None:
        """Commits a plan, perhaps a stale one; then the loser is fenced and changes nothing."""
        seen, batch = planned
        still = all(self.ledger.lanes.get(step.lane.key) == step.lane for step in batch.steps)
        before = self.ledger
        changes = tuple(step.change for step in batch.steps)
        if not still:
            assert seen.seq < before.seq
            with pytest.raises(Fenced, match=r"expected .*, found "):
                before.after(changes)
            assert self.ledger == before
            return
        self.apply(changes)
        for step in batch.steps:
            parts = step.range.split(pieces)
            assert RangeSet.of(parts) == RangeSet.of([step.range])
            self.read.update((step.source, offset) for part in parts for offset in range(part.start, part.end))
            self.history.append((step.source, step.range))

    @rule(partition=partitions, at=st.integers(0, 60))
    def jump(self, partition: int, at: int) -> None:
        source = self.topics.source(partition % self.size)
        live = self.ledger.live(source)
        end = self.stable(partition)
        if live is None or not live.open or at < live.next:
            with pytest.raises(ValueError, match="cannot go on"):
                transitions.jump(self.ledger, source, at)
            return
        self.apply(transitions.jump(self.ledger, source, min(max(at, live.next), max(end, live.next))))

    @rule(partition=partitions, start=st.integers(0, 60), length=few)
    def backfill(self, partition: int, start: int, length: int) -> None:
        source = self.topics.source(partition % self.size)
        wanted = Range(start, start + length)
        skipped = self.ledger.unread(source, SKIPPED)
        self.apply(transitions.backfill(self.ledger, source, wanted))
        kept = self.ledger.unread(source, SKIPPED)
        assert {o for o in range(80) if o in skipped and o not in kept} == {o for o in range(80) if o in skipped and o in wanted}

    @rule(partition=partitions)
    def retire_and_come_back(self, partition: int) -> None:
        source, snapshot = self.topics.source(partition % self.size), self.topics.snapshot()
        lanes, behind = self.ledger.of(source), lag(self.ledger, snapshot)[source]
        self.apply(transitions.retire(self.ledger, source))
        assert all(lane.finished for lane in self.ledger.of(source))
        if not self.ledger.of(source):
            assert not lanes or (lanes[0].open and lanes[0].next == lanes[0].start)
            self.began.pop(source, None)
            return
        assert lag(self.ledger, snapshot)[source] == behind
        assert (source in arrivals(self.ledger, snapshot)) == any(not lane.finished for lane in lanes)
        self.apply(transitions.resume(self.ledger, source))
        assert lag(self.ledger, snapshot)[source] == behind
        assert source not in arrivals(self.ledger, snapshot)

    @rule()
    def accept_loss(self) -> None:
        snapshot = self.topics.snapshot()
        for source in self.ledger.sources():
            log_start = snapshot.partitions[source].log_start
            due = {(source, o) for lane in self.ledger.of(source) if not lane.finished for o in range(lane.next, log_start)
                   if lane.end is None or o < lane.end}  # fmt: skip
            self.apply(transitions.accept_loss(self.ledger, source, log_start))
            self.lost |= due
        check_source(self.ledger, snapshot)

    # What must hold after every step

    @invariant()
    def no_offset_is_read_twice_or_both_read_and_lost(self) -> None:
        assert all(times == 1 for times in self.read.values())
        assert not self.lost & self.read.keys()

    @invariant()
    def lanes_are_disjoint(self) -> None:
        for source in self.ledger.sources():
            check_disjoint(self.ledger.of(source))

    @invariant()
    def every_offset_below_the_live_cursor_is_in_exactly_one_state(self) -> None:
        for source in self.ledger.sources():
            lanes = self.ledger.of(source)
            live = self.ledger.live(source)
            assert live is not None or source in self.bounded, "an unbounded partition has a live lane"
            for offset in range(self.began[source], live.next if live else lanes[-1].next):
                states = [
                    READ if lane.kind == READ and offset < lane.next else "to be read" if lane.kind == READ else lane.kind
                    for lane in lanes
                    if lane.start <= offset and (lane.end is None or offset < lane.end)
                ]
                assert len(states) == 1, f"{source} offset {offset}: {states}"
                assert (states[0] == READ) == (self.read[source, offset] == 1)
                assert (states[0] == LOST) == ((source, offset) in self.lost)

    @invariant()
    def history_equals_lanes(self) -> None:
        for source in self.ledger.sources():
            mine = RangeSet.of(span for at, span in self.history if at == source)
            assert mine == self.ledger.committed(source)

    def teardown(self) -> None:
        """Everything that was skipped is backfilled: every offset that was not lost was read exactly once."""
        for partition in range(self.size):
            self.topics.close_transaction(partition)
        for source in self.ledger.sources():
            self.apply(transitions.backfill(self.ledger, source, Range(0, 10_000)))
        self.accept_loss()
        snapshot = self.topics.snapshot()
        for turn in range(10_000):
            batch = plan(self.ledger, snapshot, Limits(5), "last", turn=turn)
            if isinstance(batch, Idle):
                break
            self.commit((self.ledger, batch), 2)
        assert isinstance(batch, Idle)
        assert batch.waiting == 0
        for source, log_start in self.began.items():
            lanes = self.ledger.of(source)
            end = lanes[-1].end if source in self.bounded else snapshot.partitions[source].high
            whole = {(source, offset) for offset in range(log_start, end or 0)}
            assert {key for key in self.read if key[0] == source} == whole - self.lost
            assert {key for key in self.lost if key[0] == source} <= whole
        self.no_offset_is_read_twice_or_both_read_and_lost()
        self.history_equals_lanes()

    # Helpers

    @property
    def size(self) -> int:
        return len(self.topics.snapshot().partitions)

    def stable(self, partition: int) -> int:
        return self.topics.snapshot().partitions[self.topics.source(partition % self.size)].end

    def apply(self, changes: tuple[LaneChange, ...]) -> None:
        before = dict(self.ledger.lanes)
        after = self.ledger.after(changes)
        assert self.ledger.lanes == before, "a ledger is a value"
        assert after.seq == self.ledger.seq + 1
        self.ledger = after

    def prove_plan(self, batch: Batch, limit: int, most: int | None, only: set[int] | None) -> None:
        snapshot = self.topics.snapshot()
        sources = [step.source for step in batch.steps]
        assert sources == sorted(set(sources)), "one range for each partition, in order"
        assert most is None or len(sources) <= most
        assert only is None or {source.partition for source in sources} <= only
        for step in batch.steps:
            state = snapshot.partitions[step.source]
            assert state.log_start <= step.range.start < step.range.end <= state.end
            assert step.lane.end is None or step.range.end <= step.lane.end
            assert len(step.range) <= limit
            assert step.range.start == step.lane.next
            assert (step.closed_by == "offsets") == (step.range.end < min(state.end, step.lane.end or state.end))
        with pytest.raises(FrozenInstanceError):
            batch.steps = ()  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError):
            batch.steps[0].end = 0  # type: ignore[misc]


TestLanes = Lanes.TestCase
