"""Find the commit after which exactly these offsets were in the tables.

What is in a table follows from the history of committed ranges, not from the lanes: a reread changes lanes and deletes no row.
Only a clearing takes ranges out again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kpipe.offsets import Range, RangeSet
from kpipe.topics import PartitionId
from kpipe.verification.recount import Entry

__all__ = ["Content", "Match", "content_at", "find", "first_covering", "matched"]


@dataclass(frozen=True)
class Content:
    """Offsets that are in the tables after a commit.

    Attributes:
        seq: sequence number of the commit; 0: before the first commit with rows.
        batch: id of its batch.
        ranges: by partition.
        repeated: offsets that were read more than once, by partition: their rows may be duplicated.
    """

    seq: int = 0
    batch: str = ""
    ranges: Mapping[PartitionId, RangeSet] = field(default_factory=dict)
    repeated: Mapping[PartitionId, RangeSet] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """A commit, compared with the wanted offsets.

    Attributes:
        content: what is in after the commit.
        missing: wanted offsets that are not in, by partition.
        beyond: offsets that are in and not wanted, by partition.
        repeated: wanted offsets that were read more than once, by partition.
    """

    content: Content
    missing: Mapping[PartitionId, RangeSet]
    beyond: Mapping[PartitionId, RangeSet]
    repeated: Mapping[PartitionId, RangeSet]

    @property
    def exact(self) -> bool:
        """True if the wanted offsets are in, once each, and of the same partitions no others."""
        return not any((*self.missing.values(), *self.beyond.values(), *self.repeated.values()))


class _Covered:
    """A growing set of offsets. Adding costs little if ranges mostly follow each other, however many there are."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, item: Range) -> list[Range]:
        """Add a range, and return the parts of it that were in already."""
        if not len(item):
            return []
        first = bisect_left(self._ends, item.start)
        last = bisect_right(self._starts, item.end)
        known = [
            Range(max(s, item.start), min(e, item.end))
            for s, e in zip(self._starts[first:last], self._ends[first:last], strict=True)
        ]
        start = min([item.start, *self._starts[first : first + 1]]) if first < last else item.start
        end = max([item.end, *self._ends[last - 1 : last]]) if first < last else item.end
        self._starts[first:last], self._ends[first:last] = [start], [end]
        return [part for part in known if len(part)]

    @property
    def end(self) -> int:
        """End of the last range; 0 if the set is empty."""
        return self._ends[-1] if self._ends else 0

    def below(self, offset: int) -> int:
        """Return the number of offsets below this one."""
        at = bisect_left(self._starts, offset)
        return sum(min(e, offset) - s for s, e in zip(self._starts[:at], self._ends[:at], strict=True))

    def ranges(self) -> RangeSet:
        """Return the set."""
        return RangeSet(tuple(map(Range, self._starts, self._ends)))


class _State:
    """Keep what is in the tables, commit by commit."""

    def __init__(self) -> None:
        # By the first table of the ranges as well: a clearing applies to a table.
        self._in: dict[PartitionId, dict[str, _Covered]] = {}
        self._again: dict[PartitionId, dict[str, _Covered]] = {}

    def apply(self, entry: Entry) -> None:
        """Apply the next range of the history."""
        table = entry.table.lower()
        if entry.cleared:
            self._in.get(entry.source, {}).pop(table, None)
            self._again.get(entry.source, {}).pop(table, None)
        elif not entry.reread:
            again = self._again.setdefault(entry.source, {}).setdefault(table, _Covered())
            for part in self._in.setdefault(entry.source, {}).setdefault(table, _Covered()).add(entry.range):
                again.add(part)

    def end(self, source: PartitionId) -> int:
        return max((item.end for item in self._in.get(source, {}).values()), default=0)

    def counted(self, source: PartitionId, below: int) -> tuple[int, int]:
        """Return the number of offsets below one, each once, and how many of them were read more than once."""
        tables = list(self._in.get(source, {}).values())
        if len(tables) == 1:
            return tables[0].below(below), sum(item.below(below) for item in self._again.get(source, {}).values())
        merged, again = self._merged(source)
        return merged.below(below), again.below(below)

    def _merged(self, source: PartitionId) -> tuple[_Covered, _Covered]:
        merged, again = _Covered(), _Covered()
        for item in self._in.get(source, {}).values():
            for found in item.ranges():
                for part in merged.add(found):
                    again.add(part)
        for item in self._again.get(source, {}).values():
            for found in item.ranges():
                again.add(found)
        return merged, again

    def content(self, seq: int, batch: str) -> Content:
        """Return an immutable copy."""
        found = {source: self._merged(source) for source in self._in}
        return Content(
            seq,
            batch,
            {source: covered.ranges() for source, (covered, _) in sorted(found.items()) if covered.end},
            {source: again.ranges() for source, (_, again) in sorted(found.items()) if again.end},
        )


def _commits(history: Sequence[Entry]) -> Iterator[tuple[int, str, list[Entry]]]:
    """Return the ranges of each commit, in order."""
    for seq, items in groupby(history, lambda entry: entry.seq):
        entries = list(items)
        yield seq, entries[-1].batch, entries


def content_at(history: Sequence[Entry], seq: int) -> Content:
    """Return what is in the tables after the commit with this number, or after the last one before it."""
    state, last = _State(), (0, "")
    for number, batch, entries in _commits(history):
        if number > seq:
            break
        for entry in entries:
            state.apply(entry)
        last = number, batch
    return state.content(*last)


def find(history: Sequence[Entry], wanted: Mapping[PartitionId, int], starts: Mapping[PartitionId, int]) -> Match:
    """Find the commit after which the wanted offsets were in, and of the same partitions no others.

    If no commit ends exactly there: of the commits with none beyond them, that with the most of them; of these, that with the
    fewest read more than once; of these, the last one.

    Args:
        history: every committed range, in order of commit.
        wanted: next offset by partition, as a consumer group stores it: lower offsets are wanted. Others are not compared.
        starts: first offset of the ledger by partition; lower ones cannot be in.
    """
    best, score = 0, (0, 0, 0)
    state = _State()
    for seq, _, entries in _commits(history):
        for entry in entries:
            state.apply(entry)
        decided = all(entry.reread and not entry.cleared for entry in entries)  # it changes no table
        if decided or any(state.end(source) > to for source, to in wanted.items()):
            continue
        counted = [state.counted(source, to) for source, to in wanted.items()]
        found = sum(once for once, _ in counted), -sum(again for _, again in counted), seq
        if found >= score:
            best, score = seq, found
    return matched(content_at(history, best), wanted, starts)


def first_covering(
    history: Sequence[Entry], wanted: Mapping[PartitionId, int], starts: Mapping[PartitionId, int]
) -> Match | None:
    """Return the first commit after which all wanted offsets are in, whatever else is; None: there is none."""
    state = _State()
    for seq, batch, entries in _commits(history):
        for entry in entries:
            state.apply(entry)
        if all(state.counted(source, to)[0] >= to - starts.get(source, 0) for source, to in wanted.items()):
            return matched(state.content(seq, batch), wanted, starts)
    return None


def matched(content: Content, wanted: Mapping[PartitionId, int], starts: Mapping[PartitionId, int]) -> Match:
    """Compare what is in with the wanted offsets."""
    missing, beyond, repeated = {}, {}, {}
    for source, to in sorted(wanted.items()):
        held = content.ranges.get(source, RangeSet())
        start = min(starts.get(source, 0), to)
        missing[source] = RangeSet(held.missing(Range(start, to)))
        beyond[source] = RangeSet(tuple(Range(max(x.start, to), x.end) for x in held if x.end > to))
        again = content.repeated.get(source, RangeSet())
        repeated[source] = RangeSet(tuple(Range(x.start, min(x.end, to)) for x in again if x.start < to))
    return Match(content, missing, beyond, repeated)
