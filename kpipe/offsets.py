"""Offsets of one Kafka partition: half-open ranges and sets of disjoint ranges.

Ends are exclusive everywhere: a range `[start, end)` has `end - start` offsets, and an empty one has
`start == end`. The next offset to read is therefore always an end (KIP-98: a position is the *next* offset).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Overlap", "Range", "RangeSet", "union"]


class Overlap(ValueError):
    """Two ranges share an offset."""


@dataclass(frozen=True, order=True)
class Range:
    """A range `[start, end)` of one partition. `end` is exclusive.

    Raises:
        ValueError: start is negative, or end is before start.
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
        """Return whether the two share an offset; an empty range shares none."""
        return max(self.start, other.start) < min(self.end, other.end)

    def split(self, pieces: int, smallest: int = 1) -> tuple[Range, ...]:
        """Split the range into at most `pieces` adjacent ranges of at least `smallest` offsets each.

        A range shorter than `2 * smallest` is returned whole.
        """
        count = max(1, min(pieces, len(self) // max(1, smallest)))
        cuts = [self.start + len(self) * i // count for i in range(count + 1)]
        return tuple(Range(a, b) for a, b in pairwise(cuts))


@dataclass(frozen=True)
class RangeSet:
    """Disjoint, non-empty ranges in ascending order, adjacent ones merged. Immutable: every change returns a new set."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> RangeSet:
        """Build the set of these ranges.

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
        """Return the number of offsets in the set (not of ranges). So unpack `ranges`: a list reserves memory for this number."""
        return sum(len(item) for item in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self.ranges, Range(offset + 1, offset + 1)) - 1
        return at >= 0 and offset in self.ranges[at]

    def add(self, item: Range) -> RangeSet:
        """Return the set plus that range.

        Raises:
            Overlap: the set contains an offset of the range already. The overlap is not merged: a duplicate offset is a
                duplicate row.
        """
        return RangeSet.of((*self.ranges, item))

    def without(self, item: Range) -> RangeSet:
        """Return the set minus that range."""
        kept = [Range(x.start, min(x.end, item.start)) for x in self.ranges if x.start < item.start]
        kept += [Range(max(x.start, item.end), x.end) for x in self.ranges if x.end > item.end]
        return RangeSet.of(kept if len(item) else self.ranges)

    def missing(self, within: Range) -> tuple[Range, ...]:
        """Return the parts of that range that the set does not contain, in ascending order: the gaps for a backfill."""
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
        """Return the first offset `>= start` that is not in the set."""
        gaps = self.missing(Range(start, max(start, self.ranges[-1].end) + 1 if self.ranges else start + 1))
        return gaps[0].start


def union(ranges: Iterable[Range]) -> RangeSet:
    """Build the set of all offsets of these ranges, which may overlap."""
    merged: list[Range] = []
    for item in sorted(ranges):
        if merged and item.start <= merged[-1].end:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, item.end))
        elif len(item):
            merged.append(item)
    return RangeSet(tuple(merged))
