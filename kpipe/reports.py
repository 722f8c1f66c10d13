"""The driver's proof that the tasks did what the plan asked for, before anything is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kpipe.batch import Batch, Counts, RangeReport, total
from kpipe.errors import StagingFailed
from kpipe.offsets import Overlap, RangeSet
from kpipe.source import PartitionId

__all__ = ["collect"]


def collect(batch: Batch, reports: Sequence[RangeReport], plain: bool = False) -> dict[tuple[PartitionId, int], Counts]:
    """Counts by lane, proven: each range is covered once, and everything in it is accounted for.

    Args:
        batch: what was planned.
        reports: of the tasks.
        plain: whether rows have no key, so that all of them will be inserted.

    Raises:
        StagingFailed: pieces are missing, overlap, or do not add up.
    """
    result: dict[tuple[PartitionId, int], Counts] = {}
    for report in reports:
        _prove(batch, report)
    for step in batch.steps:
        mine = [r for r in reports if r.source == step.source and r.range.start >= step.range.start and r.range.end <= step.end]
        try:
            covered = RangeSet.of(report.range for report in mine)
        except Overlap as error:
            raise StagingFailed(f"batch {batch.id}: {step.source}: a range was staged twice: {error}") from error
        if covered.missing(step.range):
            raise StagingFailed(f"batch {batch.id}: {step.source}: not staged: {covered.missing(step.range)[0]}")
        counts = total(report.counts for report in mine)
        result[step.lane.key] = replace(counts, inserted=counts.rows) if plain else counts
    if sum(len(report.range) for report in reports) != batch.span:
        raise StagingFailed(f"batch {batch.id}: reports cover other offsets than the plan")
    return result


def _prove(batch: Batch, report: RangeReport) -> None:
    """One report adds up by itself: two wrong ones must not cancel each other out in the sum."""
    where = f"batch {batch.id}: {report.source} {report.range}"
    off = report.counts.unaccounted(len(report.range))
    if off:
        raise StagingFailed(f"{where}: {off} offsets are not accounted for: {report.counts}")
    pairs = (
        ("rows", report.counts.rows, report.rows),
        ("dead letters", report.counts.dead_letters, report.dead_letters),
        ("deletes", report.counts.deletes, report.deletes),
    )
    for name, count, file in pairs:
        held = 0 if file is None else file.rows
        if held != count:
            raise StagingFailed(f"{where}: {count} {name} were counted, the file holds {held}")
