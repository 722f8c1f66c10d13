"""Retry dead letters with the current definition, in pages, each exactly once."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, RangeReport, StagedFile, TableReport, TableWrite, total
from kpipe.batch.coverage import distinct, lookup_versions
from kpipe.batch.dead_letter_replay import DeadLetter, Replay, Replayed, Replaying, keyed
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, NotAvailable, SchemaConflict
from kpipe.ingest.staging import staged_for
from kpipe.interfaces import Destination
from kpipe.run_events import Seen
from kpipe.tables.field_tables import refused_by_field
from kpipe.tables.multi_table import fans_out, table_pipelines
from kpipe.tables.topic_tables import batch_tables
from kpipe.tables.upsert import KeyRule
from kpipe.terminal import plain
from kpipe_assets.runs.proof import known_ledger
from kpipe_assets.runs.rebuilt import finish, is_outdated
from kpipe_assets.validation import validate
from kpipe_assets.wording import count
from resources.destinations import open_destination, required_columns
from resources.home import Home
from resources.lookups.table_source import asking
from resources.spark.driver.dead_letter_stager import LettersStager
from resources.spark.driver.definition_version import ResolvedPipeline
from resources.spark.staging.staged_files import discard

__all__ = ["in_words", "retry"]

_PAGE = 10_000  # dead letters in one transaction


class _Place(Destination, Replaying, Protocol):
    """A destination that moves dead letters to rows."""


_TRIES = 5  # times that the commit of an unchanged page may be fenced
_REASONS = 10  # most frequent reasons in the report


def retry(pipeline: Pipeline, home: Home, who: str = "", page: int = _PAGE) -> Iterator[Replayed]:
    """Retry every dead letter of the pipeline once, page by page, and yield the result of each committed transaction.

    A record that fails again, or whose rows the table rejects, stays a dead letter with the new reason. This does not
    depend on the definition's error policies: a retry never drops a record. Records that `where` or the program excludes
    become filtered. An exchange of a rebuilt table that was interrupted is completed first; its definition then applies.

    Raises:
        Fenced: the table was rebuilt and exchanged since the definition was read; or other retries were faster.
        NotAvailable: the destination, a table with a key, or the program's mode does not support it.
        LedgerMismatch: the ledger is older than this home's last commit, or another one.
        KpipeError: staging or the commit failed; pages that were yielded stay committed.
    """
    pipeline = finish(home, pipeline.name) or pipeline
    destination = open_destination(pipeline, home)
    if pipeline.into.type == "webhook":
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be sent again to a webhook: they would arrive after newer records"
            " of the same key, which must stay in order",
            "produce the fixed records to the topic again",
        )
    if not isinstance(destination, Replaying):
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be retried in into.type {pipeline.into.type}",
            "read their ranges again on demand: ALTER PIPELINE ... SET OFFSETS ... REREAD",
        )
    refused_by_field(
        pipeline, "a retry of dead letters", "read their offsets again: ALTER PIPELINE ... SET OFFSETS ..., or RESET PIPELINE"
    )
    if any(KeyRule.of(part) is not None for part in table_pipelines(pipeline)):
        raise keyed(pipeline.name)
    if pipeline.transform is not None and not pipeline.transform.traced:
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be retried with transform.mode: {pipeline.transform.mode}",
            "this mode does not report which record a row comes from; use transform.mode: map, or transform.stdin: arrow",
        )
    with home.placing(pipeline):
        validate(pipeline, home, destination=destination)
    home.make()
    seen, uid, _ = known_ledger(pipeline, home, destination)
    if is_outdated(home, pipeline, uid):
        raise Fenced(
            f"pipeline {pipeline.name}: its table was rebuilt and exchanged since this retry read the definition;"
            " nothing was written",
            "run it again",
        )
    yield from _pages(pipeline, home, destination, (uid, seen), who, page)


def _pages(
    pipeline: Pipeline, home: Home, destination: _Place, last: tuple[str, Seen], who: str, page: int
) -> Iterator[Replayed]:
    uid, seen = last
    after = overtaken = 0
    left: list[int] = []
    tried: set[int] = set()  # in the current page
    while letters := destination.letters(after, page):
        fresh = [letter for letter in letters if letter.id not in tried]
        try:
            for done, part in _parts(pipeline, home, destination, uid, fresh, who):
                seen.note(uid, max(done.seq, seen.seq))
                discard(home.staging, done.id)
                tried.update(letter.id for letter in part)
                yield done
        except Fenced:  # another retry has committed some of them: read the page again
            overtaken = overtaken + 1 if [letter.id for letter in fresh] == left else 0
            left = [letter.id for letter in fresh]
            if overtaken >= _TRIES:
                raise
            continue
        after, tried = letters[-1].id, set()


def _lookup_note(reports: Sequence[RangeReport]) -> str:
    """Format the versions of the lookups that were used."""
    used = lookup_versions(reports).items()
    return "".join(f"; lookup {name}: sha256 {item['sha256']}, {item['rows']} rows, read {item['read']}" for name, item in used)


def in_words(name: str, pages: Iterable[Replayed]) -> str:
    """Summarize a retry in a line, followed by the most frequent reasons of records that failed again."""
    sums = dict.fromkeys(("tried", "answered", "rows", "filtered", "failed"), 0)
    reasons: Counter[str] = Counter()
    for page in pages:
        reasons.update(page.reasons)
        for key in sums:
            sums[key] += getattr(page, key)
    if not sums["tried"]:
        return f"{name}: no dead letters to retry"
    first = (
        f"{name}: {count(sums['tried'], 'dead letter')} retried: {sums['answered']:,} gave {count(sums['rows'], 'row')},"
        f" {sums['filtered']:,} filtered, {sums['failed']:,} failed again"
    )
    return "\n".join([first, *(f"  {number:,} × {plain(reason)}" for reason, number in reasons.most_common(_REASONS))])


def _parts(
    pipeline: Pipeline, home: Home, destination: _Place, uid: str, letters: Sequence[DeadLetter], who: str
) -> Iterator[tuple[Replayed, Sequence[DeadLetter]]]:
    """Commit dead letters in as few transactions as possible. Yield each committed part with its result.

    A record that the table rejects stays a dead letter. If the destination names the rejected records, these are staged as
    dead letters again. Otherwise the part is halved until the record is found. All other records are committed in offset
    order.
    """
    policies = {"parse": "dead_letter", "transform": "dead_letter", "constraint": "dead_letter"}
    resolved, lookups = ResolvedPipeline.of(pipeline), asking(pipeline, home)
    lenient = resolved.pipeline.model_copy(update={"errors": pipeline.errors.model_copy(update=policies)})
    resolved = replace(resolved, pipeline=lenient)
    stager = LettersStager(resolved, home, letters, required=lambda part: required_columns(part, home), ask=lookups)
    parts = [sorted(letters, key=lambda letter: (letter.source, letter.offset))]
    while parts:
        part = parts.pop(0)
        try:
            yield _landed(lenient, destination, stager, uid, part, who), part
        except SchemaConflict as error:
            single = {part[0].source: {part[0].offset: error.reason}} if len(part) == 1 else {}
            if stager.refuse(error.refused):
                parts.insert(0, part)
            elif not error.by_rows:
                raise
            elif len(part) > 1:
                parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
            elif stager.refuse(single):
                parts.insert(0, part)
            else:
                raise


def _landed(
    pipeline: Pipeline,
    destination: _Place,
    stager: LettersStager,
    uid: str,
    letters: Sequence[DeadLetter],
    who: str,
) -> Replayed:
    """Stage and commit these dead letters in one transaction.

    Raises:
        SchemaConflict: the table rejects a record or its columns; nothing was written.
        KpipeError: as `retry`.
    """
    began, started_ms = time.monotonic(), int(time.time() * 1000)
    batch = stager.part(letters)
    tables = batch_tables(pipeline, batch)
    batch, columns, _, reports = staged_for(pipeline, destination, stager, batch, lambda _: None)
    staged: list[list[TableReport]] = [[] for _ in tables.parts]
    for report in reports:
        for at, table in zip(tables.of(report.source), report.tables, strict=True):
            staged[at].append(table)
    counts = total(report.counts for report in reports)
    answered = len(letters) - counts.dead_letters - counts.filtered
    dead = tuple(report.dead_letters for report in reports if report.dead_letters is not None)
    done = Replayed(batch.id, 0, len(letters), answered, counts.rows, counts.filtered, counts.dead_letters, _reasons(dead))
    commit = Commit(
        id=batch.id,
        pipeline=pipeline.name,
        changes=(),
        kind="replay",
        tables=tuple(
            TableWrite(part.into.table, mine, distinct(file for table in found for file in table.files))
            for part, mine, found in zip(tables.parts, columns, staged, strict=True)
        ),
        dead_letters=dead,
        run_id=f"pid-{os.getpid()}",
        version=stager.version,
        started_ms=started_ms,
        seconds=time.monotonic() - began,
        note=f"retry of {done.tried} dead letters: {done.answered} gave {done.rows} rows, {done.filtered} were filtered,"
        f" {done.failed} failed again{f'; {who}' if who else ''}{_lookup_note(reports)}",
    )
    fan_out = pipeline.format.fan_out or fans_out(pipeline)
    committed = destination.replay(Replay(commit, uid, tuple(letters), fan_out))
    return replace(done, seq=committed.seq)


def _reasons(files: Sequence[StagedFile]) -> dict[str, int]:
    """Count the most frequent reasons of staged dead letters."""
    reasons: Counter[str] = Counter()
    for file in files:
        table = pq.read_table(file.path, columns=["stage", "reason"])
        reasons.update(f"{stage}: {why}" for stage, why in zip(*(column.to_pylist() for column in table.columns), strict=True))
    return dict(reasons.most_common(_REASONS))
