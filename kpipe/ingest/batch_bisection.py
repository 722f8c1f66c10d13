"""Isolate bad records: `errors.batch: skip` finds the offsets that fail a batch, `errors.constraint` the rejected records.

With `errors.batch: skip`, the parts of a batch that failed permanently are tried as batches of their own: each partition,
then halves of halves. Good parts are committed as any batch. A single offset that fails becomes a `skipped` lane, with the
compare-and-swap of any commit. So the ledger contains each offset that was left out, and BACKFILL PIPELINE can read it once.

Only errors that a record can cause are isolated. Others are errors that need an operator, fencing, unknown outcomes, limits,
and brokers, registries or destinations that do not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, RecordRejected, RecordsUnreadable, SchemaConflict, TransformFailed
from kpipe.ingest.staging import StagedBatch, staged
from kpipe.interfaces import Refusing, Stager
from kpipe.ledger.ledger import Lane, LaneChange, Ledger, Step
from kpipe.ledger.transitions import skip
from kpipe.offsets import Range, union
from kpipe.planning.planner import step_of
from kpipe.planning.reconcile import Survey
from kpipe.run_events import Event
from kpipe.topics import PartitionId, TopicSnapshot

__all__ = ["BadRecordIsolation", "Skip", "set_aside"]

# Maximum of single offsets to find in one batch. Beyond it, the smallest part doubles with each skipped one, so that a batch
# without any good record ends after some forty parts.
_MOST = 16
#: A part of a batch: a range of one partition.
Part = tuple[PartitionId, Range]


class Skip:
    """Ranges that are left out, and the error of the last attempt.

    Args:
        parts: ranges.
        error: error of the last attempt.
    """

    def __init__(self, parts: Sequence[Part], error: KpipeError) -> None:
        sources = sorted({source for source, _ in parts})
        self.parts = [(s, found) for s in sources for found in union(r for source, r in parts if source == s)]
        self.error = error

    @property
    def words(self) -> str:
        """The ranges as text."""
        return ", ".join(f"{source} {found}" for source, found in self.parts)

    def changes(self, ledger: Ledger) -> list[LaneChange]:
        """Return the lane changes that skip the ranges; ranges that are not waiting any more are unchanged."""
        lanes = ((_waiting(ledger, source, found), found.end) for source, found in self.parts)
        return [change for lane, end in lanes if lane is not None for change in skip(lane, end)]

    def batch(self, pipeline: str) -> Batch:
        """Return the ranges as a batch, for the error event."""
        return Batch("", pipeline, tuple(Step(Lane(s, r.start, r.start, r.end), r.end) for s, r in self.parts))


class BadRecordIsolation:
    """Failed batches of one run, and the parts of them to try next.

    Args:
        used: whether the pipeline has `errors.batch: skip`; otherwise nothing is isolated.
    """

    def __init__(self, used: bool) -> None:
        self._used = used
        self._suspects: list[Part] = []
        self._found = 0
        self._alone = False
        self._skip: Skip | None = None

    @property
    def busy(self) -> bool:
        """True while a batch is being narrowed: the next one must not be prefetched."""
        return self._alone or bool(self._suspects) or self._skip is not None

    def failed(self, error: KpipeError, batch: Batch | None) -> bool:
        """Handle a batch that failed permanently, and return whether the run continues.

        Args:
            error: error of the batch.
            batch: the batch; None if it was prefetched: it is tried once more, by itself.
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
        if isinstance(error, TransformFailed) and error.phase == "chance":
            return False  # a second try has passed, so the record is not the cause
        self._found += 1
        if self._found > _MOST and isinstance(error, SchemaConflict):
            return False  # the table rejects any row: no record is the cause
        self._skip = Skip(parts, error)
        return True

    @property
    def _smallest(self) -> int:
        return 1 if self._found < _MOST else 2 ** (self._found - _MOST + 1)

    def landed(self, batch: Batch) -> None:
        """Remove a committed batch from the parts to try."""
        self._alone = False
        done = [(step.source, step.range) for step in batch.steps]
        self._suspects = [part for part in self._suspects if part not in done]
        self._found = self._found if self._suspects else 0

    def record(self, ledger: Ledger, survey: Survey) -> Ledger:
        """Record permanently failed ranges as skipped, and return the ledger.

        Raises:
            KpipeError: the decision could not be committed.
        """
        skip, changes = self._skip, self._skip.changes(ledger) if self._skip is not None else []
        if skip is not None and changes:
            ledger = survey.decide("skip", changes, f"skip: {skip.words}; {skip.error.what}")
            error, kind = str(skip.error), type(skip.error).__name__
            survey.destination.record_state("running", f"skipped: {skip.words}; {error}", kind, skip.batch(ledger.pipeline))
        self._skip, self._alone = None, False
        self._found = self._found if self._suspects else 0
        return ledger

    def planned(self, ledger: Ledger, snapshot: TopicSnapshot, id: str) -> Batch | None:
        """Return the next part to try; None without one. Parts that another run has read in the meantime are dropped."""
        while self._suspects:
            source, found = self._suspects[0]
            lane = _waiting(ledger, source, found)
            if lane is not None:
                step = step_of(ledger, lane, found.end, snapshot.partitions.get(source), "offsets")
                return Batch(id, ledger.pipeline, (step,))
            self._suspects.pop(0)
        return None


def set_aside(
    pipeline: Pipeline, stager: Stager, batch: StagedBatch, error: SchemaConflict, on_event: Callable[[Event], None]
) -> StagedBatch | None:
    """Stage a batch again without the records that the table rejects, which become dead letters or are skipped.

    Args:
        pipeline: the definition.
        stager: stages the batch.
        batch: the staged batch.
        error: the error that names the records.
        on_event: called with every event.

    Returns:
        The batch; None if `errors.constraint` is `fail`, or the error names no new record.
    """
    if pipeline.errors.constraint == "fail" or not isinstance(stager, Refusing) or not stager.refuse(error.refused):
        return None
    count = sum(map(len, error.refused.values()))
    on_event(Event("restaged", batch.batch, text=f"staging again without records that the table rejects: {count:,}"))
    columns, closed, reports = staged(pipeline, stager, batch.batch, batch.columns, on_event, closed=batch.closed)
    return replace(batch, columns=columns, closed=closed, reports=reports)


def _by_records(error: KpipeError) -> bool:
    if isinstance(error, TransformFailed):
        return bool(error.phase)
    if isinstance(error, SchemaConflict):
        return error.by_rows
    return isinstance(error, (RecordRejected, RecordsUnreadable))


def _narrower(source: PartitionId, whole: Range, error: KpipeError) -> list[Part]:
    """Split a range of two offsets or more into smaller parts: around the record, if the error names one."""
    middle = whole.start + len(whole) // 2
    cuts = {whole.start, middle, whole.end}
    if error.record is not None and error.record[0] == source and error.record[1] in whole:
        cuts = {whole.start, error.record[1], error.record[1] + 1, whole.end}
    ends = sorted(cuts)
    return [(source, Range(start, end)) for start, end in pairwise(ends)]


def _waiting(ledger: Ledger, source: PartitionId, found: Range) -> Lane | None:
    """Return the lane whose next offsets are in that range."""
    lanes = (lane for lane in ledger.of(source) if not lane.finished and lane.next == found.start)
    return next((lane for lane in lanes if lane.end is None or found.end <= lane.end), None)
