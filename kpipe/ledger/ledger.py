"""The destination's record of read offsets: lanes, and their changes by compare-and-swap.

The offsets of a partition are divided into lanes `[start, end)`, which never overlap. At most one is open (`end` is
None): the live one. A lane is read from its start to its end. `next` is the next offset to read, so `[start, next)` of
a `read` lane has been read. A jump closes the live lane and adds a `skipped` lane, which a backfill can turn into
a `read` one later. A loss that an operator accepts becomes a `lost` lane. Offsets that another loader has read are an
`adopted` lane, which no backfill reads. As lanes are disjoint, live ingest and any number of backfills can commit at the
same time, each with its own compare-and-swap. No offset is read twice, and a lane records each offset that is not read.

Every change, also the first one of a pipeline, is a `LaneChange`: the expected lane (None: it must not exist) and
the new lane (None: it is removed, only as part of a split). A destination applies all changes of a commit or none,
and compares lanes for equality (design.md, rules 2 and 3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from kpipe.errors import DestinationError, Fenced, LedgerMismatch
from kpipe.ledger.lanes import ADOPTED, LOST, READ, SKIPPED, Lane, LaneChange, Step
from kpipe.ledger.tail import SPAN, Tail
from kpipe.offsets import Overlap, Range, RangeSet
from kpipe.topics import PartitionId

__all__ = [
    "ADOPTED", "LOST", "READ", "SKIPPED", "Conflict", "Lane", "LaneChange", "Ledger", "Step", "check_disjoint", "checksum",
    "verify_checksum",
]  # fmt: skip


def checksum(lanes: Iterable[Lane | None]) -> int:
    """Combine the checksums of lanes (XOR), in any order.

    A destination stores the checksum of all lanes of a pipeline apart from the lanes. A commit changes it by the checksums
    of the lanes that it expects and makes. So `verify_checksum` detects a lane that was removed or edited, and kpipe does not
    take its partition for a new one.
    """
    combined = 0
    for lane in lanes:
        combined ^= 0 if lane is None else lane.checksum
    return combined


def verify_checksum(ledger: Ledger, kept: int, where: str) -> None:
    """Check that the lanes are those that commits have left.

    Raises:
        LedgerMismatch: a lane was removed, added or edited by something other than kpipe.
    """
    if checksum(ledger.lanes.values()) != kept:
        heads = ", ".join(f"{source}: {offset}" for source, offset in ledger.positions().items()) or "none"
        raise LedgerMismatch(
            f"pipeline {ledger.pipeline}: the ledger in {where} was changed by hand: lanes are missing or edited"
            f" (next offsets now: {heads})",
            "restore a backup; or use another pipeline name, with source.start at the end of the table",
        )


@dataclass(frozen=True)
class Ledger:
    """All lanes of one pipeline at one moment.

    Attributes:
        pipeline: the pipeline's name.
        seq: sequence number of the last commit; 0 before the first.
        lanes: by key.
        dead_letters: dead letters so far, for the pipeline's limit.
        of_tables: commits of all tables together, where each has a ledger of its own; 0: there is one ledger.
    """

    pipeline: str
    seq: int = 0
    lanes: Mapping[tuple[PartitionId, int], Lane] = field(default_factory=dict)
    dead_letters: int = 0
    of_tables: int = 0

    @property
    def age(self) -> int:
        """Number that each commit makes larger, and that is smaller after any table was restored to an earlier state."""
        return self.of_tables or self.seq

    @cached_property
    def _by_source(self) -> Mapping[PartitionId, tuple[Lane, ...]]:
        """Lanes by partition, computed once: a plan reads them for each partition, and a topic may have thousands."""
        by_source: dict[PartitionId, list[Lane]] = {}
        for lane in self.lanes.values():
            by_source.setdefault(lane.source, []).append(lane)
        return {source: tuple(sorted(by_source[source], key=lambda x: x.start)) for source in sorted(by_source)}

    def of(self, source: PartitionId) -> tuple[Lane, ...]:
        """Return the lanes of one partition in ascending order."""
        return self._by_source.get(source, ())

    def sources(self) -> tuple[PartitionId, ...]:
        """Return the partitions of the ledger, sorted."""
        return tuple(self._by_source)

    def of_topics(self, names: Collection[str]) -> Ledger:
        """Return the lanes of topics with these names, whatever their ids."""
        return replace(self, lanes={key: lane for key, lane in self.lanes.items() if lane.source.topic.name in names})

    def live(self, source: PartitionId) -> Lane | None:
        """Return the live lane of the partition: the open one, else the last `read` one."""
        lanes = self.of(source)
        read = [lane for lane in lanes if lane.kind == READ]
        return next((lane for lane in lanes if lane.open), read[-1] if read else None)

    def tail(self, lane: Lane) -> Tail | None:
        """Return the fingerprint of the records before the lane's next offset, or else of those before a lane not far below."""
        if lane.next > lane.start:
            return lane.tail
        below = (x for x in reversed(self.of(lane.source)) if x.tail is not None and x.next <= lane.next)
        found = next((x.tail for x in below), None)
        return found if found is not None and found.start >= lane.next - SPAN else None

    def retired(self, source: PartitionId) -> tuple[Lane, ...]:
        """Return the lanes with which a retired partition continues if it is back; none if it was not retired.

        Only `retire` leaves offsets between two lanes without a lane, and an empty skipped lane where the live lane was.
        """
        lanes = self.of(source)
        if not lanes or any(lane.open for lane in lanes):
            return ()
        holes = [Lane(source, a.end, a.end, b.start) for a, b in pairwise(lanes) if a.end is not None and a.end < b.start]
        last = lanes[-1]
        live = [Lane(source, last.start, last.start)] if last.kind == SKIPPED and last.start == last.end else []
        return (*holes, *live)

    def committed(self, source: PartitionId) -> RangeSet:
        """Return the ranges of the partition that have been read."""
        return RangeSet.of(Range(x.start, x.next) for x in self.of(source) if x.kind == READ)

    def unread(self, source: PartitionId, kind: str) -> RangeSet:
        """Return the `skipped`, `lost` or `adopted` ranges of the partition."""
        return RangeSet.of(Range(x.start, x.end) for x in self.of(source) if x.kind == kind and x.end is not None)

    def begun(self, source: PartitionId) -> frozenset[int]:
        """Return the offsets at which reading of the partition may have begun: starts of lanes that were read, lost or tried."""
        return frozenset(lane.start for lane in self.of(source) if lane.kind in (READ, LOST) or lane.tried)

    def overtaken(self, lane: Lane) -> bool:
        """Return whether later offsets of the partition have been read."""
        return any(x.kind == READ and x.start > lane.start and x.next > x.start for x in self.of(lane.source))

    def waiting_below(self, source: PartitionId) -> RangeSet:
        """Return unread ranges below offsets that have been read, or that the live lane reads first (a backfill)."""
        lanes = [lane for lane in self.of(source) if not lane.finished and lane.end is not None]
        live = self.live(source)
        opened = live is not None and live.open
        return RangeSet.of(Range(x.next, x.end) for x in lanes if x.end is not None and (opened or self.overtaken(x)))

    def positions(self) -> dict[PartitionId, int]:
        """Return the next offset of the live lane of each partition."""
        heads = ((source, self.live(source)) for source in self.sources())
        return {source: lane.next for source, lane in heads if lane is not None}

    def current_positions(self, present: Collection[PartitionId] = ()) -> dict[PartitionId, int]:
        """Return the next offset of each partition, without earlier topics of the same name.

        Args:
            present: partitions that the brokers have. A recreated topic has lanes under each of its ids, which stay open, so
                only the brokers distinguish them. If none is present, one with an open lane is returned.
        """
        heads = {source: lane for source in self.sources() if (lane := self.live(source)) is not None}
        ordered = sorted(heads, key=lambda source: (source in present, heads[source].open))
        last = {(source.topic.name, source.partition): source for source in ordered}
        return {source: heads[source].next for source in last.values()}

    def apply(self, changes: Iterable[LaneChange]) -> Ledger | Conflict:
        """Return the ledger after all these changes, or the first conflict: the reference for every destination."""
        changes, lanes, changed = tuple(changes), dict(self.lanes), set[tuple[PartitionId, int]]()
        for change in changes:
            current = lanes.get(change.key)
            if change.key in changed:
                return Conflict(self.pipeline, change, current, own=True)
            if current != change.expect:
                return Conflict(self.pipeline, change, current)
            if change.become is None:
                del lanes[change.key]
            else:
                lanes[change.key] = change.become
            changed.add(change.key)
        after = replace(self, lanes=lanes, seq=self.seq + 1)
        return after.overlap(changes) or after

    def overlap(self, changes: Sequence[LaneChange]) -> Conflict | None:
        """Return the conflict of these changes, already applied, if lanes of their partitions overlap now."""
        made: dict[PartitionId, list[Lane]] = {change.key[0]: [] for change in changes}
        for become in (change.become for change in changes if change.become):
            made.get(become.source, []).append(become)
        for source, lanes in made.items():
            if pair := (own := _overlap(lanes)) or _overlap(self.of(source)):
                return Conflict(self.pipeline, LaneChange(None, pair[1]), pair[0], own=own is not None)
        return None

    def after(self, changes: Iterable[LaneChange], batch: str = "") -> Ledger:
        """Return the ledger after the changes of a batch.

        Raises:
            Fenced: a lane differs from what its change expects, or overlaps a new lane. No change was applied.
            DestinationError: the changes contradict each other.
        """
        result = self.apply(changes)
        if isinstance(result, Conflict):
            raise result.error(batch)
        return result


@dataclass(frozen=True)
class Conflict:
    """Reason why changes do not apply to a ledger.

    Attributes:
        pipeline: the pipeline's name.
        change: the first change that does not apply.
        found: the lane of that key, or a lane that overlaps the new lane; None: no lane.
        own: whether the changes contradict each other, as they made `found` themselves; else another run committed first.
    """

    pipeline: str
    change: LaneChange
    found: Lane | None
    own: bool = False

    def error(self, batch: str = "") -> DestinationError:
        """Return the error for a batch with these changes."""
        if self.own:
            problem = "changes a lane twice" if self._same_lane else f"would read offsets twice: {self}"
            return DestinationError(f"batch {batch} {problem}")
        return Fenced(
            f"pipeline {self.pipeline}: {self}; another run committed first and nothing of this batch was written",
            "run it again: it continues after the other run's commit",
        )

    def __str__(self) -> str:
        """Return the expected and the found lane."""
        source, start = self.change.key
        if self._same_lane or self.found is None:
            return f"{source} (lane from {start}): expected {_position(self.change.expect)}, found {_position(self.found)}"
        return f"{source}: lane from {start} overlaps the lane from {self.found.start} to {self.found.end}"

    @property
    def _same_lane(self) -> bool:
        return self.found is not None and self.found.key == self.change.key


def _position(lane: Lane | None) -> str:
    return "no lane" if lane is None else f"next offset {lane.next}"


def check_disjoint(lanes: Iterable[Lane]) -> None:
    """Check that no two lanes of one partition share an offset, and at most one is open.

    Raises:
        Overlap: lanes overlap.
    """
    if pair := _overlap(lanes):
        first, second = pair
        raise Overlap(f"{second.source}: lane from {second.start} overlaps the lane from {first.start} to {first.end}")


def _overlap(lanes: Iterable[Lane]) -> tuple[Lane, Lane] | None:
    """Return the first two lanes of one partition that share an offset, in ascending order."""
    ordered = sorted(lanes, key=lambda lane: (lane.start, lane.end is None))
    return next((pair for pair in pairwise(ordered) if pair[0].end is None or pair[0].end > pair[1].start), None)
