"""Records that a run leaves out of the rows: those that a program fails on, and those whose rows the destination rejects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kpipe.batch.batch import Batch
from kpipe.offsets import Range
from kpipe.topics import PartitionId

__all__ = ["Reasons", "SetAside"]

#: The reason by partition and offset.
Reasons = Mapping[PartitionId, Mapping[int, str]]


class SetAside:
    """Offsets set aside in the batches that may be staged again.

    Two by default: while one batch is committed the next one is staged. The destination may reject records of the first one
    after that, in several steps, and it is staged again after each.

    Args:
        batches: how many of the last batches may be staged again; None: all.

    Attributes:
        poison_records: records that a program fails on, with the reasons, by partition and offset.
        refused: records whose rows the destination rejects, likewise.
    """

    def __init__(self, batches: int | None = 2) -> None:
        self.poison_records: Reasons = {}
        self.refused: Reasons = {}
        self._most = batches
        self._batches: dict[str, Mapping[PartitionId, tuple[Range, ...]]] = {}

    def add_poison(self, source: PartitionId, reasons: Mapping[int, str]) -> None:
        """Add records of a partition that a program fails on."""
        if reasons:
            self.poison_records = _joined(self.poison_records, {source: reasons})

    def refuse(self, records: Reasons) -> bool:
        """Add records whose rows the destination rejects, and return whether one of them is new."""
        before = self.refused
        self.refused = _joined(before, records)
        return any(len(reasons) > len(before.get(source, ())) for source, reasons in self.refused.items())

    def keep_for(self, batch: Batch) -> None:
        """Forget the offsets that are in none of the last batches, the last of which is this one: it is about to be read."""
        if self._most is None:
            return
        self._batches.pop(batch.id, None)
        while len(self._batches) >= self._most:
            del self._batches[next(iter(self._batches))]
        ranges: dict[PartitionId, tuple[Range, ...]] = {}
        for step in batch.steps:
            ranges[step.source] = (*ranges.get(step.source, ()), step.range)
        self._batches[batch.id] = ranges
        self.poison_records, self.refused = self._inside(self.poison_records), self._inside(self.refused)

    def _inside(self, reasons: Reasons) -> Reasons:
        """Return the entries whose offsets are in the ranges of a kept batch."""
        kept = {source: _within(offsets, self._ranges(source)) for source, offsets in reasons.items()}
        return {source: offsets for source, offsets in kept.items() if offsets}

    def _ranges(self, source: PartitionId) -> list[Range]:
        return [part for ranges in self._batches.values() for part in ranges.get(source, ())]


def _within(reasons: Mapping[int, str], ranges: Iterable[Range]) -> dict[int, str]:
    parts = tuple(ranges)
    return {offset: why for offset, why in reasons.items() if any(offset in part for part in parts)}


def _joined(first: Reasons, second: Reasons) -> Reasons:
    return {**first, **{source: {**first.get(source, {}), **reasons} for source, reasons in second.items() if reasons}}
