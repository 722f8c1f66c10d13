"""The driver's proof that the tasks did what the plan asked for, before anything is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kpipe.batch.batch import Batch, Counts, Mark, Portion, RangeReport, StagedFile, total
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import StagingFailed
from kpipe.ledger.ledger import Step
from kpipe.offsets import Overlap, RangeSet
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = ["collect", "distinct", "marks", "portions"]


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
    by_source = _by_source(reports)
    for step in batch.steps:
        mine = _of(step, by_source)
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


def marks(batch: Batch, reports: Sequence[RangeReport]) -> dict[tuple[PartitionId, int], Mark]:
    """By lane, marks of the rows of the first table."""
    by_source = _by_source(reports)
    return {step.lane.key: sum((report.mark for report in _of(step, by_source)), Mark()) for step in batch.steps}


def portions(
    batch: Batch,
    reports: Sequence[RangeReport],
    parts: Sequence[Pipeline],
    columns: Sequence[Columns],
    plain: Sequence[bool],
) -> tuple[Portion, ...]:
    """What goes to each further table.

    Args:
        batch: what was planned; `collect` has proven that the reports cover it.
        reports: of the tasks.
        parts: the definition for each further table.
        columns: that its rows were staged with.
        plain: whether its rows have no key, so that all of them will be inserted.

    Raises:
        StagingFailed: a report leaves a table out.
    """
    if any(len(report.also) != len(parts) for report in reports):
        raise StagingFailed(f"batch {batch.id}: reports are of other tables than the definition's {len(parts) + 1}")
    result, by_source = [], _by_source(reports)
    for at, (part, known) in enumerate(zip(parts, columns, strict=True)):
        counts, made = {}, {}
        for step in batch.steps:
            shares = [report.also[at] for report in _of(step, by_source)]
            rows = sum(share.count for share in shares)
            found = Counts(rows=rows, given=sum(share.mark.records for share in shares))
            made[step.lane.key] = sum((share.mark for share in shares), Mark())
            counts[step.lane.key] = replace(found, inserted=rows) if plain[at] else found
        files = tuple(report.also[at].rows for report in reports)
        result.append(Portion(part.into.table, known, distinct(files), counts, made))
    return tuple(result)


def distinct(files: Iterable[StagedFile | None]) -> tuple[StagedFile, ...]:
    """The files that reports name, each once.

    Raises:
        StagingFailed: ranges that share a file do not account for all of its rows, or tell of other bytes.
    """
    named: dict[str, list[StagedFile]] = {}
    for file in files:
        if file is not None:
            named.setdefault(file.path, []).append(file)
    for path, same in named.items():
        whole = {replace(file, share=None) for file in same}
        if len(whole) > 1 or sum(file.own for file in same) != same[0].rows:
            raise StagingFailed(
                f"staged file {path!r} holds {same[0].rows} rows, its ranges account for {sum(f.own for f in same)}"
            )
    return tuple(replace(same[0], share=None) for same in named.values())


def _by_source(reports: Sequence[RangeReport]) -> dict[PartitionId, list[RangeReport]]:
    result: dict[PartitionId, list[RangeReport]] = {}
    for report in reports:
        result.setdefault(report.source, []).append(report)
    return result


def _of(step: Step, by_source: Mapping[PartitionId, Sequence[RangeReport]]) -> list[RangeReport]:
    """The reports of pieces of a step."""
    mine = by_source.get(step.source, ())
    return [report for report in mine if report.range.start >= step.range.start and report.range.end <= step.end]


def _prove(batch: Batch, report: RangeReport) -> None:
    """One report adds up by itself: two wrong ones must not cancel each other out in the sum."""
    where = f"batch {batch.id}: {report.source} {report.range}"
    off = report.counts.unaccounted(len(report.range))
    if off:
        raise StagingFailed(f"{where}: {off} offsets are not accounted for: {report.counts}")
    pairs = (
        ("rows", report.counts.rows, report.files),
        ("dead letters", report.counts.dead_letters, (report.dead_letters,)),
        ("deletes", report.counts.deletes, (report.deletes,)),
    )
    further = [("rows of a further table", share.count, (share.rows,)) for share in report.also]
    for name, count, files in (*pairs, *further):
        held = sum(file.own for file in files if file is not None)
        if held != count:
            raise StagingFailed(f"{where}: {count} {name} were counted, the file holds {held}")
