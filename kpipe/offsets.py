"""Offsets of one Kafka partition: half-open ranges, and sets of them that never overlap.

Ends are exclusive everywhere, so a range `[start, end)` holds `end - start` offsets and an empty one has
`start == end`. The next offset to read is therefore always an end (KIP-98: a position is the *next* offset).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Overlap", "Range", "RangeSet", "union"]


class Overlap(ValueError):
    """Two ranges claim the same offset."""


@dataclass(frozen=True, order=True)
class Range:
    """`[start, end)` of one partition. `end` is exclusive.

    Raises:
        ValueError: start is negative, or end lies before start.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end < self.start:
            msg = f"not a range of offsets: [{self.start}, {self.end})"
            raise ValueError(msg)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    def overlaps(self, other: Range) -> bool:
        """Whether the two share an offset; an empty range shares none."""
        return max(self.start, other.start) < min(self.end, other.end)

    def split(self, pieces: int, smallest: int = 1) -> tuple[Range, ...]:
        """At most `pieces` adjoining ranges that cover this one, none shorter than `smallest` offsets.

        A range shorter than two of the smallest comes back whole.
        """
        count = max(1, min(pieces, len(self) // max(1, smallest)))
        cuts = [self.start + len(self) * i // count for i in range(count + 1)]
        return tuple(Range(a, b) for a, b in pairwise(cuts))


@dataclass(frozen=True)
class RangeSet:
    """Disjoint ranges in ascending order, adjoining ones merged, none empty. A value: every change gives a new set."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> RangeSet:
        """The set of these ranges.

        Raises:
            Overlap: two of them share an offset.
        """
        merged: list[Range] = []
        for item in sorted(ranges):
            if not len(item):
                continue
            if merged and merged[-1].overlaps(item):
                msg = f"{item} overlaps {merged[-1]}"
                raise Overlap(msg)
            if merged and merged[-1].end == item.start:
                merged[-1] = Range(merged[-1].start, item.end)
            else:
                merged.append(item)
        return cls(tuple(merged))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def __len__(self) -> int:
        """Number of offsets in the set (not of ranges)."""
        return sum(len(item) for item in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self.ranges, Range(offset + 1, offset + 1)) - 1
        return at >= 0 and offset in self.ranges[at]

    def add(self, item: Range) -> RangeSet:
        """The set with that range in it.

        Raises:
            Overlap: some offset of it is already in the set. Nothing is merged silently: an offset that comes
                twice is a doubled row.
        """
        return RangeSet.of((*self.ranges, item))

    def without(self, item: Range) -> RangeSet:
        """The set less that range."""
        kept = [Range(x.start, min(x.end, item.start)) for x in self.ranges if x.start < item.start]
        kept += [Range(max(x.start, item.end), x.end) for x in self.ranges if x.end > item.end]
        return RangeSet.of(kept if len(item) else self.ranges)

    def missing(self, within: Range) -> tuple[Range, ...]:
        """What the set lacks of that range, in ascending order: the ranges a backfill has to fill."""
        gaps: list[Range] = []
        at = within.start
        for item in self.ranges:
            if item.end <= at:
                continue
            if item.start >= within.end:
                break
            if item.start > at:
                gaps.append(Range(at, item.start))
            at = item.end
        if at < within.end:
            gaps.append(Range(at, within.end))
        return tuple(gaps)

    def cursor(self, start: int) -> int:
        """The first offset `>= start` that is not in the set."""
        gaps = self.missing(Range(start, max(start, self.ranges[-1].end) + 1 if self.ranges else start + 1))
        return gaps[0].start


def union(ranges: Iterable[Range]) -> RangeSet:
    """The set of all offsets of these ranges, which may share some."""
    merged: list[Range] = []
    for item in sorted(ranges):
        if merged and item.start <= merged[-1].end:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, item.end))
        elif len(item):
            merged.append(item)
    return RangeSet(tuple(merged))
