"""Lanes of offsets, their changes, and their parts of a batch (kpipe/ledger/ledger.py)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe.topics import PartitionId

__all__ = ["ADOPTED", "LOST", "READ", "SKIPPED", "Lane", "LaneChange", "Step"]

READ = "read"
SKIPPED = "skipped"
LOST = "lost"
ADOPTED = "adopted"


@dataclass(frozen=True)
class Lane:
    """A range of one partition's offsets, and its next offset to read.

    Attributes:
        source: the partition.
        start: first offset of the lane.
        next: next offset to read; `[start, next)` has been read. For a skipped lane: its end if its offsets were tried and
            failed every batch (`errors.batch: skip`), else its start.
        end: exclusive end; None while the lane is open (live).
        kind: `read`, `skipped` (not read on purpose; a backfill can read it), `lost` (deleted from Kafka before it
            was read) or `adopted` (another loader has read it; see kpipe/adoption/).
        tail: fingerprint of the last records before `next`; None: unknown.
    """

    source: PartitionId
    start: int
    next: int
    end: int | None = None
    kind: str = READ
    tail: Tail | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.next and (self.end is None or self.next <= self.end)):
            msg = f"not a lane: {self.source} start {self.start} next {self.next} end {self.end}"
            raise ValueError(msg)
        if self.kind != READ and self.end is None:
            msg = f"a {self.kind} lane has an end: {self.source} from {self.start}"
            raise ValueError(msg)
        if self.tail is not None and (self.kind != READ or self.tail.end != self.next):
            msg = f"not the fingerprint of this lane: {self.source} next {self.next}: {self.tail}"
            raise ValueError(msg)

    @property
    def key(self) -> tuple[PartitionId, int]:
        """Key of the lane in the ledger: partition and first offset."""
        return self.source, self.start

    @property
    def open(self) -> bool:
        """True for the live lane."""
        return self.end is None

    @property
    def finished(self) -> bool:
        """True if nothing is left to read in the lane."""
        return self.kind != READ or self.next == self.end

    @property
    def tried(self) -> bool:
        """True for a skipped lane whose offsets were tried and failed every batch."""
        return self.next > self.start

    @property
    def checksum(self) -> int:
        """Checksum of the lane: 63 bits over all its fields."""
        topic = self.source.topic
        values = (topic.cluster, topic.topic_id, topic.name, self.source.partition, self.start, self.next, self.end, self.kind)
        if self.tail is not None:  # lanes of older versions have none, and keep their checksum
            values = (*values, self.tail.text)  # type: ignore[assignment]
        return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest(), "big") >> 1

    def advanced(self, to: int, tail: Tail | None = None) -> Lane:
        """Return the lane with everything before `to` read, and the fingerprint of the last records before it."""
        return replace(self, next=to, tail=tail)

    def closed(self) -> Lane:
        """Return the lane with its end where reading is: a decision continues elsewhere."""
        return replace(self, end=self.next, tail=self.tail and self.tail.accepted())


@dataclass(frozen=True)
class LaneChange:
    """Compare-and-swap of one lane: the expected lane and the new one."""

    expect: Lane | None
    become: Lane | None

    def __post_init__(self) -> None:
        if self.expect is None and self.become is None:
            msg = "lane change without an expected and a new lane"
            raise ValueError(msg)
        if self.expect and self.become and self.expect.key != self.become.key:
            msg = f"lane change: the key must stay the same: expected {self.expect.key}, found {self.become.key}"
            raise ValueError(msg)

    @property
    def key(self) -> tuple[PartitionId, int]:
        """Key of the lane that changes."""
        lane = self.expect or self.become
        assert lane is not None
        return lane.key


@dataclass(frozen=True)
class Step:
    """One lane's part of a batch: the lane at plan time, and the exclusive end of the range.

    Attributes:
        lane: the lane; the range starts at its `next`.
        end: exclusive end of the range.
        closed_by: what limited the range: `caught_up` (no more records), `offsets` or `bytes` (a limit), or `transaction`
            (`batch.cut`).
        after: fingerprint of the records before the range, as far as the log should contain them; None: nothing to compare.
        epoch: leader epoch of the partition at plan time; -1: unknown.
        tail: fingerprint of the last records before the end, when the range was read.
    """

    lane: Lane
    end: int
    closed_by: str = "caught_up"
    after: Tail | None = field(default=None, compare=False)
    epoch: int = field(default=-1, compare=False)
    tail: Tail | None = field(default=None, compare=False)

    @property
    def source(self) -> PartitionId:
        """Partition of the lane."""
        return self.lane.source

    @property
    def range(self) -> Range:
        """Range `[lane.next, end)` that the step reads."""
        return Range(self.lane.next, self.end)

    @property
    def change(self) -> LaneChange:
        """Change of the lane when the step is committed."""
        return LaneChange(self.lane, self.lane.advanced(self.end, self.tail))
