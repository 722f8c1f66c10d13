"""The destination's record of what has been read: lanes, and changes to them by compare-and-swap.

The offsets of a partition are divided into lanes, `[start, end)`, that never overlap. Exactly one may be open
(`end` is None): the live one. A lane is read from its start to its end; `next` is the next offset to read, so
`[start, next)` of a `read` lane has been read. Jumping ahead closes the live lane and leaves a `skipped` one behind
that a backfill can turn into a `read` one later; a loss that an operator accepts becomes a `lost` lane. As lanes are
disjoint, live ingest and any number of backfills commit at the same time, each with its own compare-and-swap, and
no offset can be read twice or forgotten without a lane that says so.

Every change, also the first one of a pipeline, is a `LaneChange`: what the lane must be now (None: must not exist)
and what it becomes (None: it goes away, only ever inside a split). A destination makes all changes of a commit or
none, and compares for equality (design.md, rules 2 and 3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kpipe.errors import Fenced, LedgerMismatch
from kpipe.offsets import Overlap, Range, RangeSet
from kpipe.topics import PartitionId

__all__ = ["LOST", "READ", "SKIPPED", "Lane", "LaneChange", "Ledger", "Step", "check_disjoint", "check_seal", "seal"]

READ = "read"
SKIPPED = "skipped"
LOST = "lost"


@dataclass(frozen=True)
class Lane:
    """A stretch of one partition's offsets, and how far it has been read.

    Attributes:
        source: the partition.
        start: first offset of the lane.
        next: next offset to read; `[start, next)` is done. Of a skipped lane: its end where its offsets were tried and made every
            batch fail (`errors.batch: skip`), its start where they were left out.
        end: exclusive end; None while the lane is open (live).
        kind: `read`, `skipped` (deliberately not read; a backfill may) or `lost` (gone from Kafka before it was read).
    """

    source: PartitionId
    start: int
    next: int
    end: int | None = None
    kind: str = READ

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.next and (self.end is None or self.next <= self.end)):
            msg = f"not a lane: {self.source} start {self.start} next {self.next} end {self.end}"
            raise ValueError(msg)
        if self.kind != READ and self.end is None:
            msg = f"a {self.kind} lane has an end: {self.source} from {self.start}"
            raise ValueError(msg)

    @property
    def key(self) -> tuple[PartitionId, int]:
        """What names the lane in the ledger: partition and first offset."""
        return self.source, self.start

    @property
    def open(self) -> bool:
        """Whether it is the live lane."""
        return self.end is None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to read in it."""
        return self.kind != READ or self.next == self.end

    @property
    def tried(self) -> bool:
        """Whether a skipped lane was tried, and made every batch fail."""
        return self.next > self.start

    @property
    def seal(self) -> int:
        """63 bits over all that the lane says."""
        topic = self.source.topic
        said = (topic.cluster, topic.topic_id, topic.name, self.source.partition, self.start, self.next, self.end, self.kind)
        return int.from_bytes(hashlib.blake2b(repr(said).encode(), digest_size=8).digest(), "big") >> 1

    def advanced(self, to: int) -> Lane:
        """The lane with everything before `to` read."""
        return replace(self, next=to)


@dataclass(frozen=True)
class LaneChange:
    """Compare-and-swap of one lane: what it must be now, what it becomes."""

    expect: Lane | None
    become: Lane | None

    def __post_init__(self) -> None:
        if self.expect is None and self.become is None:
            msg = "a change expects or makes something"
            raise ValueError(msg)
        if self.expect and self.become and self.expect.key != self.become.key:
            msg = f"a change stays in its lane: {self.expect.key} -> {self.become.key}"
            raise ValueError(msg)

    @property
    def key(self) -> tuple[PartitionId, int]:
        """Key of the lane that changes."""
        lane = self.expect or self.become
        assert lane is not None
        return lane.key


@dataclass(frozen=True)
class Step:
    """One lane's share of a batch: the lane as the plan found it, and the exclusive end of what is read now.

    Attributes:
        lane: the lane; the range starts at its `next`.
        end: exclusive end of the range.
        closed_by: what ended the range: `caught_up` (nothing more to read), `offsets` or `bytes` (a limit).
    """

    lane: Lane
    end: int
    closed_by: str = "caught_up"

    @property
    def source(self) -> PartitionId:
        """The partition."""
        return self.lane.source

    @property
    def range(self) -> Range:
        """`[lane.next, end)`."""
        return Range(self.lane.next, self.end)

    @property
    def change(self) -> LaneChange:
        """What committing it does to the ledger."""
        return LaneChange(self.lane, self.lane.advanced(self.end))


def seal(lanes: Iterable[Lane | None]) -> int:
    """The seals of lanes as one, whatever their order.

    A destination keeps that of all lanes of a pipeline apart from them, and a commit changes it by the seal of what it
    expects and of what it makes (XOR). So a lane that somebody removed or edited is noticed (`check_seal`), and is not
    taken for a partition that has not been read yet.
    """
    found = 0
    for lane in lanes:
        found ^= 0 if lane is None else lane.seal
    return found


def check_seal(ledger: Ledger, kept: int, where: str) -> None:
    """Proof that the lanes are those that commits have left.

    Raises:
        LedgerMismatch: some lane was removed, added or edited by other hands.
    """
    if seal(ledger.lanes.values()) != kept:
        heads = ", ".join(f"{source}: {at}" for source, at in ledger.positions().items()) or "none"
        raise LedgerMismatch(
            f"pipeline {ledger.pipeline}: the ledger in {where} was changed by hand: lanes are missing or edited"
            f" (next offsets now: {heads})",
            "restore a backup; or go on under another pipeline name, with source.start where the table ends",
        )


@dataclass(frozen=True)
class Ledger:
    """All lanes of one pipeline at one moment, as the destination holds them.

    Attributes:
        pipeline: the pipeline's name.
        seq: sequence number of the last commit; 0 before the first.
        lanes: by key.
        dead_letters: records set aside so far, for the pipeline's limit.
    """

    pipeline: str
    seq: int = 0
    lanes: Mapping[tuple[PartitionId, int], Lane] = field(default_factory=dict)
    dead_letters: int = 0

    @cached_property
    def _by_source(self) -> Mapping[PartitionId, tuple[Lane, ...]]:
        """Made once: a look asks for each partition, and a topic may have thousands."""
        found: dict[PartitionId, list[Lane]] = {}
        for lane in self.lanes.values():
            found.setdefault(lane.source, []).append(lane)
        return {source: tuple(sorted(found[source], key=lambda x: x.start)) for source in sorted(found)}

    def of(self, source: PartitionId) -> tuple[Lane, ...]:
        """Lanes of one partition in ascending order."""
        return self._by_source.get(source, ())

    def sources(self) -> tuple[PartitionId, ...]:
        """Partitions that the ledger knows, sorted."""
        return tuple(self._by_source)

    def live(self, source: PartitionId) -> Lane | None:
        """The lane that runs at the head of the partition: the open one, else the last one that is read."""
        lanes = self.of(source)
        read = [lane for lane in lanes if lane.kind == READ]
        return next((lane for lane in lanes if lane.open), read[-1] if read else None)

    def committed(self, source: PartitionId) -> RangeSet:
        """Ranges of the partition that have been read."""
        return RangeSet.of(Range(x.start, x.next) for x in self.of(source) if x.kind == READ)

    def unread(self, source: PartitionId, kind: str) -> RangeSet:
        """Ranges of the partition that are `skipped`, or `lost`."""
        return RangeSet.of(Range(x.start, x.end) for x in self.of(source) if x.kind == kind and x.end is not None)

    def begun(self, source: PartitionId) -> frozenset[int]:
        """Offsets at which the partition may have been begun: lanes start there that were not only left out."""
        return frozenset(lane.start for lane in self.of(source) if lane.kind != SKIPPED or lane.tried)

    def overtaken(self, lane: Lane) -> bool:
        """Whether offsets of the partition behind that lane have been read."""
        return any(x.kind == READ and x.start > lane.start and x.next > x.start for x in self.of(lane.source))

    def waiting_below(self, source: PartitionId) -> RangeSet:
        """Ranges that wait to be read below offsets that have been read, or that the live lane reads first (a backfill)."""
        lanes = [lane for lane in self.of(source) if not lane.finished and lane.end is not None]
        live = self.live(source)
        opened = live is not None and live.open
        return RangeSet.of(Range(x.next, x.end) for x in lanes if x.end is not None and (opened or self.overtaken(x)))

    def positions(self) -> dict[PartitionId, int]:
        """Next offset at the head of each partition."""
        heads = ((source, self.live(source)) for source in self.sources())
        return {source: lane.next for source, lane in heads if lane is not None}

    def apply(self, changes: Iterable[LaneChange]) -> Ledger:
        """The ledger after these changes: the reference for what every destination must do.

        Raises:
            Fenced: some lane is not what its change expects. All or nothing.
            Overlap: the result would hold an offset twice.
        """
        lanes = dict(self.lanes)
        touched: set[PartitionId] = set()
        for change in changes:
            found = lanes.get(change.key)
            if found != change.expect:
                raise fenced(self.pipeline, change, found)
            if change.become is None:
                del lanes[change.key]
            else:
                lanes[change.key] = change.become
            touched.add(change.key[0])
        after = replace(self, lanes=lanes, seq=self.seq + 1)
        for source in touched:
            check_disjoint(after.of(source))
        return after


def fenced(pipeline: str, change: LaneChange, found: Lane | None) -> Fenced:
    """The error of a compare-and-swap that found something else: says what it expected and what it found."""
    source, start = change.key

    def words(lane: Lane | None) -> str:
        return "no lane" if lane is None else f"next offset {lane.next}"

    return Fenced(
        f"pipeline {pipeline}: {source} (lane from {start}): expected {words(change.expect)}, found {words(found)};"
        " another run committed first and nothing of this batch was written",
        "run it again: it goes on from where the other run stopped",
    )


def check_disjoint(lanes: Iterable[Lane]) -> None:
    """Proof that no two lanes of one partition share an offset, and at most one is open.

    Raises:
        Overlap: they do.
    """
    last: Lane | None = None
    for lane in sorted(lanes, key=lambda x: (x.start, x.end is None)):
        if last is not None and (last.end is None or last.end > lane.start):
            msg = f"{lane.source}: lane from {lane.start} overlaps the lane from {last.start} to {last.end}"
            raise Overlap(msg)
        last = lane
