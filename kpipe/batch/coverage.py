"""Check on the driver that the tasks' reports cover the plan, before anything is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kpipe.batch.batch import Batch, Counts, Mark, RangeReport, StagedFile, TableWrite, total
from kpipe.batch.table_write import BatchTables, ByLane, TableReport
from kpipe.errors import StagingFailed
from kpipe.ledger.ledger import Step
from kpipe.ledger.tail import Tail
from kpipe.offsets import Overlap, RangeSet
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = ["collect", "distinct", "lookup_versions", "table_writes", "task_seconds", "with_tails"]


def collect(batch: Batch, reports: Sequence[RangeReport]) -> dict[ByLane, Counts]:
    """Return the records' counts of each lane, after checking that each range is covered once and every offset accounted for.

    Args:
        batch: the plan.
        reports: the reports of the tasks.

    Raises:
        StagingFailed: pieces are missing, overlap, or do not add up.
    """
    result: dict[ByLane, Counts] = {}
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
        result[step.lane.key] = total(report.records for report in mine)
    if (found := sum(len(report.range) for report in reports)) != batch.span:
        raise StagingFailed(f"batch {batch.id}: reports do not match the plan: expected {batch.span} offsets, found {found}")
    return result


def table_writes(
    batch: Batch,
    reports: Sequence[RangeReport],
    parts: BatchTables,
    columns: Sequence[Columns],
    plain: Sequence[bool],
    marked: bool = False,
) -> tuple[TableWrite, ...]:
    """Collect the writes to each table.

    Args:
        batch: the plan; `collect` has checked that the reports cover it.
        reports: the reports of the tasks.
        parts: the tables of the batch.
        columns: for each table, the columns of its staged rows.
        plain: for each table, whether its rows have no key, so that all of them will be inserted.
        marked: whether a record may give several rows: then every range has a fingerprint.

    Of tables by a field, those without rows of the batch are left out, and so are ranges without rows in a table.

    Raises:
        StagingFailed: a report does not list all tables.
    """
    if any(len(report.tables) != len(parts.of(report.source)) for report in reports):
        raise StagingFailed(f"batch {batch.id}: a report does not list every table: expected {len(parts.parts)} tables")
    by_source = _by_source(reports)
    of_tables: list[dict[ByLane, list[TableReport]]] = [{} for _ in parts.parts]
    follows = True
    for step in batch.steps:
        pieces = _of(step, by_source)
        records = total(report.records for report in pieces)
        for nth, at in enumerate(parts.of(step.source)):
            of_tables[at][step.lane.key] = mine = [report.tables[nth] for report in pieces]
            rows = sum(table.counts.rows for table in mine)
            follows = follows and (not plain[at] or Mark.follows(replace(records, rows=rows), len(step.range)))
    marked = marked or not (follows or any(map(_untraced, of_tables)))
    result = []
    for at, (part, known, found) in enumerate(zip(parts.parts, columns, of_tables, strict=True)):
        counts = {lane: total(table.counts for table in tables) for lane, tables in found.items()}
        if plain[at]:
            counts = {lane: replace(count, inserted=count.rows) for lane, count in counts.items()}
        result.append(
            TableWrite(
                part.into.table,
                known,
                distinct(file for tables in found.values() for table in tables for file in table.files),
                distinct(table.deletes for tables in found.values() for table in tables),
                counts,
                {lane: sum((table.mark for table in tables), Mark()) for lane, tables in found.items()} if marked else {},
            )
        )
    return tuple(result) if batch.routes is None else tuple(_with_rows(write) for write in result if write.totals.rows)


def _untraced(found: Mapping[ByLane, Sequence[TableReport]]) -> bool:
    """Return whether rows of a table have no offsets, where a record gives one row at most."""
    return any(table.mark.records != table.counts.rows for tables in found.values() for table in tables)


def _with_rows(write: TableWrite) -> TableWrite:
    counts = {lane: count for lane, count in write.counts.items() if count.rows}
    return replace(write, counts=counts, marks={lane: write.marks[lane] for lane in counts if lane in write.marks})


def distinct(files: Iterable[StagedFile | None]) -> tuple[StagedFile, ...]:
    """Return the files of the reports, each once.

    Raises:
        StagingFailed: ranges that share a file do not account for all of its rows, or report different bytes.
    """
    named: dict[str, list[StagedFile]] = {}
    for file in files:
        if file is not None:
            named.setdefault(file.path, []).append(file)
    for path, same in named.items():
        whole = {(file.size, file.rows, file.sha256) for file in same}
        if len(whole) > 1 or sum(file.own for file in same) != same[0].rows:
            raise StagingFailed(
                f"staged file {path!r}: expected {same[0].rows} rows, found {sum(f.own for f in same)} in its reports"
            )
    return tuple(replace(same[0], share=None) for same in named.values())


def lookup_versions(reports: Iterable[RangeReport]) -> dict[str, dict[str, Any]]:
    """Return the version of each lookup that a batch used: one each, as all tasks of a batch use the same version."""
    return {name: version.to_dict() for report in reports for name, version in sorted(report.lookups.items())}


def task_seconds(batch: Batch, reports: Sequence[RangeReport]) -> dict[ByLane, float]:
    """Return the seconds that tasks spent on each lane's range. A task uses one core and stages one range at a time."""
    by_source = _by_source(reports)
    return {step.lane.key: sum(report.seconds for report in _of(step, by_source)) for step in batch.steps}


def with_tails(batch: Batch, reports: Sequence[RangeReport]) -> Batch:
    """Return the batch with the fingerprint of the last records that were read of each range, for its lane."""
    by_source = _by_source(reports)
    return replace(batch, steps=tuple(replace(step, tail=_tail(step, _of(step, by_source))) for step in batch.steps))


def _tail(step: Step, mine: Iterable[RangeReport]) -> Tail | None:
    """Join the fingerprints of a range's pieces.

    Records of many bytes are not all hashed (`kpipe.ledger.tail.BYTES`). Before them the fingerprint ends: between its offsets
    there are no records.
    """
    found: tuple[tuple[int, str], ...] = ()
    for report in sorted(mine, key=lambda report: report.range, reverse=True):
        hashed = report.tail.records if report.tail is not None else ()
        found = (*hashed, *found)
        if sum(offset >= report.range.start for offset, _ in hashed) < report.records.messages:
            break
    return Tail.of(step.end, found, step.epoch)


def _by_source(reports: Sequence[RangeReport]) -> dict[PartitionId, list[RangeReport]]:
    result: dict[PartitionId, list[RangeReport]] = {}
    for report in reports:
        result.setdefault(report.source, []).append(report)
    return result


def _of(step: Step, by_source: Mapping[PartitionId, Sequence[RangeReport]]) -> list[RangeReport]:
    """Return the reports of a step's pieces."""
    mine = by_source.get(step.source, ())
    return [report for report in mine if report.range.start >= step.range.start and report.range.end <= step.end]


def _prove(batch: Batch, report: RangeReport) -> None:
    """Check one report by itself: two wrong ones must not cancel each other out in the sum."""
    where = f"batch {batch.id}: {report.source} {report.range}"
    if report.found:
        raise StagingFailed(f"{where}: records without a table: {', '.join(sorted(report.found))}")
    off = report.counts.unaccounted(len(report.range))
    if off:
        raise StagingFailed(f"{where}: {off} offsets are not accounted for: {report.counts}")
    pairs = [
        ("dead letters", report.counts.dead_letters, (report.dead_letters,)),
        *(("rows", table.counts.rows, table.files) for table in report.tables),
        *(("deletes", table.counts.deletes, (table.deletes,)) for table in report.tables),
    ]
    for name, count, files in pairs:
        held = sum(file.own for file in files if file is not None)
        if held != count:
            raise StagingFailed(f"{where}: {name}: expected {count} as counted, found {held} in the staged files")
