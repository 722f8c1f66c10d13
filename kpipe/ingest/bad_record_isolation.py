"""`errors.batch: skip`: what makes a batch fail for good is narrowed down, recorded as skipped, and the stream goes on.

The parts of a batch that failed are tried as batches of their own: each partition, then halves of halves. What is good commits on
the way, as any batch; a single offset that fails is made a `skipped` lane, by the compare-and-swap of any commit. So nothing is
left out that the ledger does not name, and BACKFILL PIPELINE reads it later, once.

Only errors that records can be the reason of: never what an operator must decide, a ledger that moved, an outcome that is
unknown, brokers, registries or a destination that cannot be had, or a limit that was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kpipe.batch.batch import Batch
from kpipe.errors import KpipeError, RecordRejected, RecordsUnreadable, SchemaConflict, TransformFailed
from kpipe.ledger.ledger import Lane, LaneChange, Ledger, Step
from kpipe.ledger.transitions import skip
from kpipe.offsets import Range, union
from kpipe.topics import PartitionId

__all__ = ["Skip", "Skipping"]

# So many single offsets of one batch are found; from then on the smallest part that is looked at doubles with each that is
# skipped, so that a batch of which nothing is good ends after some forty.
_MOST = 16
#: A part of a batch: a range of one partition.
Part = tuple[PartitionId, Range]


class Skip:
    """What is left out, and why.

    Args:
        parts: ranges.
        error: that they fail with.
    """

    def __init__(self, parts: Sequence[Part], error: KpipeError) -> None:
        sources = sorted({source for source, _ in parts})
        self.parts = [(s, found) for s in sources for found in union(r for source, r in parts if source == s)]
        self.error = error

    @property
    def words(self) -> str:
        """The ranges, for people."""
        return ", ".join(f"{source} {found}" for source, found in self.parts)

    def changes(self, ledger: Ledger) -> list[LaneChange]:
        """What it does to the ledger; what is not waiting there any more is left alone."""
        lanes = ((_waiting(ledger, source, found), found.end) for source, found in self.parts)
        return [change for lane, end in lanes if lane is not None for change in skip(lane, end)]

    def batch(self, pipeline: str) -> Batch:
        """The ranges as a batch, for the record of the error."""
        return Batch("", pipeline, tuple(Step(Lane(s, r.start, r.start, r.end), r.end) for s, r in self.parts))


class Skipping:
    """What one run knows of batches that failed.

    Args:
        used: whether the pipeline skips; otherwise nothing here does anything.
    """

    def __init__(self, used: bool) -> None:
        self._used = used
        self._suspects: list[Part] = []
        self._found = 0
        self._alone = False
        self._skip: Skip | None = None

    @property
    def busy(self) -> bool:
        """Whether a batch is being narrowed, so that none behind it is to be extracted."""
        return self._alone or bool(self._suspects) or self._skip is not None

    def failed(self, error: KpipeError, batch: Batch | None) -> bool:
        """A batch failed for good. Gives whether the run goes on.

        Args:
            error: why.
            batch: None where it was extracted ahead: it is tried once more, by itself.
        """
        if not self._used or not _by_records(error):
            return False
        if batch is None:
            first, self._alone = not self._alone, True
            return first
        parts = [(step.source, step.range) for step in batch.steps]
        self._suspects = [part for part in self._suspects if part not in parts]
        if len(parts) > 1 or batch.span > self._smallest:
            self._suspects[:0] = parts if len(parts) > 1 else _narrower(*parts[0], error)
            return True
        self._found += 1
        if self._found > _MOST and isinstance(error, SchemaConflict):
            return False  # the table refuses whatever comes: no record's fault
        self._skip = Skip(parts, error)
        return True

    @property
    def _smallest(self) -> int:
        return 1 if self._found < _MOST else 2 ** (self._found - _MOST + 1)

    def landed(self, batch: Batch) -> None:
        """A batch committed."""
        self._alone = False
        done = [(step.source, step.range) for step in batch.steps]
        self._suspects = [part for part in self._suspects if part not in done]
        self._found = self._found if self._suspects else 0

    def due(self) -> Skip | None:
        """What is to be recorded as skipped before anything else."""
        return self._skip

    def recorded(self) -> None:
        """It is."""
        self._skip, self._alone = None, False
        self._found = self._found if self._suspects else 0

    def planned(self, ledger: Ledger, id: str) -> Batch | None:
        """The next part to try; None where none is left. Parts that somebody else has read meanwhile are forgotten."""
        while self._suspects:
            source, found = self._suspects[0]
            lane = _waiting(ledger, source, found)
            if lane is not None:
                return Batch(id, ledger.pipeline, (Step(lane, found.end, "offsets"),))
            self._suspects.pop(0)
        return None


def _by_records(error: KpipeError) -> bool:
    if isinstance(error, TransformFailed):
        return bool(error.phase)
    return isinstance(error, (RecordRejected, RecordsUnreadable, SchemaConflict))


def _narrower(source: PartitionId, whole: Range, error: KpipeError) -> list[Part]:
    """Smaller parts of a range of two offsets or more: around the record, where the error names one."""
    middle = whole.start + len(whole) // 2
    cuts = {whole.start, middle, whole.end}
    if error.record is not None and error.record[0] == source and error.record[1] in whole:
        cuts = {whole.start, error.record[1], error.record[1] + 1, whole.end}
    ends = sorted(cuts)
    return [(source, Range(start, end)) for start, end in pairwise(ends)]


def _waiting(ledger: Ledger, source: PartitionId, found: Range) -> Lane | None:
    """The lane whose next offsets these are."""
    lanes = (lane for lane in ledger.of(source) if not lane.finished and lane.next == found.start)
    return next((lane for lane in lanes if lane.end is None or found.end <= lane.end), None)
