"""Dead letters tried again with the definition as it is now, page after page, each exactly once."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, Portion, RangeReport, StagedFile, total
from kpipe.batch.coverage import distinct
from kpipe.batch.dead_letters import DeadLetter, Replay, Replayed, Replaying, keyed
from kpipe.definition.lookups import versions
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, LedgerMismatch, NotAvailable, SchemaConflict
from kpipe.ingest.prefetch import staged_for
from kpipe.interfaces import Destination
from kpipe.run_events import Seen
from kpipe.tables.multi_table import is_several, paired, targets
from kpipe.tables.upsert import KeyRule
from kpipe.terminal import plain
from kpipe_assets.validation import validate
from kpipe_assets.wording import count
from resources.destinations import open_destination, required_columns
from resources.home import Home
from resources.lookups.table_source import asking
from resources.spark.driver.dead_letter_stager import LettersStager
from resources.spark.driver.stager import version
from resources.spark.staging.staged_files import discard

__all__ = ["in_words", "retry"]

_PAGE = 10_000  # dead letters of one transaction


class _Place(Destination, Replaying, Protocol):
    """A destination that moves dead letters to rows."""


_TRIES = 5  # times that a page is refused although no other retry has taken any of it
_REASONS = 10  # of those that stay, the most frequent ones are reported


def retry(pipeline: Pipeline, home: Home, who: str = "", page: int = _PAGE) -> Iterator[Replayed]:
    """Try every dead letter of the pipeline once, page after page, and yield the result of each transaction that landed.

    Records that fail again, or whose rows the table refuses, stay dead letters with the new reason, whatever the
    definition's policies are: a retry never drops a record. What `where` or the program leaves out now is filtered.

    Raises:
        NotAvailable: the destination, rows that have or had a key, or a program's mode.
        LedgerMismatch: the destination is not the one that this home has seen.
        KpipeError: staging or the commit failed; pages that were given stay.
    """
    destination = open_destination(pipeline, home)
    if pipeline.into.type == "webhook":
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be sent again to a webhook: they would come behind records of"
            " their key that were sent since, and it keeps the order of a key",
            "write the mended records to the topic again",
        )
    if not isinstance(destination, Replaying):
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be retried in into.type {pipeline.into.type}",
            "read their ranges again on demand: ALTER PIPELINE ... SET OFFSETS ... REREAD",
        )
    if any(KeyRule.of(part) is not None for part in targets(pipeline)):
        raise keyed(pipeline.name)
    if pipeline.transform is not None and pipeline.transform.mode != "map":
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be retried with transform.mode: {pipeline.transform.mode}",
            "its rows do not tell which record they come from",
        )
    with home.placing(pipeline):
        validate(pipeline, home, destination=destination)
    home.make()
    seen = home.seen(pipeline.name)
    uid, ledger = destination.ledger()
    if seen.uid and (uid != seen.uid or ledger.seq < seen.seq):
        raise LedgerMismatch(
            f"pipeline {pipeline.name}: this home has seen commit {seen.seq}; the ledger in {destination.describe()}"
            f" stands at {ledger.seq}",
            f"kpipe run {pipeline.name} says what can be done",
        )
    yield from _pages(pipeline, home, destination, (uid, seen), who, page)


def _pages(
    pipeline: Pipeline, home: Home, destination: _Place, known: tuple[str, Seen], who: str, page: int
) -> Iterator[Replayed]:
    uid, seen = known
    after = overtaken = 0
    left: list[int] = []
    tried: set[int] = set()  # of the page at hand
    while letters := destination.letters(after, page):
        fresh = [letter for letter in letters if letter.id not in tried]
        try:
            for done, part in _parts(pipeline, home, destination, uid, fresh, who):
                seen.note(uid, max(done.seq, seen.seq))
                discard(home.staging, done.id)
                tried.update(letter.id for letter in part)
                yield done
        except Fenced:  # another retry has taken some of them: what is left is read again
            overtaken = overtaken + 1 if [letter.id for letter in fresh] == left else 0
            left = [letter.id for letter in fresh]
            if overtaken >= _TRIES:
                raise
            continue
        after, tried = letters[-1].id, set()


def _asked(reports: Sequence[RangeReport]) -> str:
    """Versions of the lookups that were used, in words."""
    found = versions(report.lookups for report in reports).items()
    return "".join(f"; lookup {name}: sha256 {item['sha256']}, {item['rows']} rows, read {item['read']}" for name, item in found)


def in_words(name: str, pages: Iterable[Replayed]) -> str:
    """Report what became of all of them: a line, and one for each of the most frequent reasons of those that stay."""
    sums = dict.fromkeys(("tried", "answered", "rows", "filtered", "failed"), 0)
    reasons: Counter[str] = Counter()
    for page in pages:
        reasons.update(page.reasons)
        for key in sums:
            sums[key] += getattr(page, key)
    if not sums["tried"]:
        return f"{name}: no dead letter can be tried again"
    first = (
        f"{name}: {count(sums['tried'], 'dead letter')} tried again: {sums['answered']:,} gave {count(sums['rows'], 'row')},"
        f" {sums['filtered']:,} filtered, {sums['failed']:,} failed again"
    )
    return "\n".join([first, *(f"  {number:,} × {plain(reason)}" for reason, number in reasons.most_common(_REASONS))])


def _parts(
    pipeline: Pipeline, home: Home, destination: _Place, uid: str, letters: Sequence[DeadLetter], who: str
) -> Iterator[tuple[Replayed, Sequence[DeadLetter]]]:
    """Commit dead letters, all at once where the table takes them; each part that was committed, with its result.

    A record that the table refuses stays a dead letter. Where the destination names such records, they are staged as dead
    letters; where it does not, halves are tried, down to the record. So each other record is loaded as if it came alone,
    in order of offsets.
    """
    aside = {"parse": "dead_letter", "transform": "dead_letter", "constraint": "dead_letter"}
    lenient = pipeline.model_copy(update={"errors": pipeline.errors.model_copy(update=aside)})
    asked = asking(pipeline, home)
    stager = LettersStager(lenient, home, letters, required=lambda part: required_columns(part, home), ask=asked)
    revision = version(pipeline)
    parts = [sorted(letters, key=lambda letter: (letter.source, letter.offset))]
    while parts:
        part = parts.pop(0)
        try:
            yield _landed(lenient, destination, stager, uid, part, revision, who), part
        except SchemaConflict as error:
            alone = {part[0].source: {part[0].offset: error.reason}} if len(part) == 1 else {}
            if stager.refuse(error.refused):
                parts.insert(0, part)
            elif not error.by_rows:
                raise
            elif len(part) > 1:
                parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
            elif stager.refuse(alone):
                parts.insert(0, part)
            else:
                raise


def _landed(
    pipeline: Pipeline,
    destination: _Place,
    stager: LettersStager,
    uid: str,
    letters: Sequence[DeadLetter],
    revision: str,
    who: str,
) -> Replayed:
    """Stage and commit these dead letters in one transaction.

    Raises:
        SchemaConflict: the table refuses one of them, or what they hold; nothing was written.
        KpipeError: as `retry`.
    """
    began, started_ms = time.monotonic(), int(time.time() * 1000)
    batch = stager.part(letters)
    tables = [(part, place.columns()) for part, place in paired(pipeline, destination)]
    columns, _, reports = staged_for(pipeline, tables, stager, batch, lambda _: None)
    counts = total(report.counts for report in reports)
    answered = len(letters) - counts.dead_letters - counts.filtered
    dead = tuple(report.dead_letters for report in reports if report.dead_letters is not None)
    done = Replayed(batch.id, 0, len(letters), answered, counts.rows, counts.filtered, counts.dead_letters, _reasons(dead))
    commit = Commit(
        id=batch.id,
        pipeline=pipeline.name,
        changes=(),
        kind="replay",
        columns=columns[0],
        files=distinct(file for report in reports for file in report.files),
        dead_letters=dead,
        run_id=f"pid-{os.getpid()}",
        version=revision,
        started_ms=started_ms,
        seconds=time.monotonic() - began,
        note=f"retry of {done.tried} dead letters: {done.answered} gave {done.rows} rows, {done.filtered} were filtered,"
        f" {done.failed} failed again{f'; {who}' if who else ''}{_asked(reports)}",
        also=tuple(
            Portion(part.into.table, mine, distinct(share.rows for share in shares))
            for (part, _), mine, shares in zip(tables[1:], columns[1:], zip(*(r.also for r in reports), strict=True), strict=True)
        ),
    )
    several = pipeline.format.several or is_several(pipeline)
    committed = destination.replay(Replay(commit, uid, tuple(letters), several))
    return replace(done, seq=committed.seq)


def _reasons(files: Sequence[StagedFile]) -> dict[str, int]:
    """Count the reasons of staged dead letters; the most frequent ones."""
    found: Counter[str] = Counter()
    for file in files:
        table = pq.read_table(file.path, columns=["stage", "reason"])
        found.update(f"{stage}: {why}" for stage, why in zip(*(column.to_pylist() for column in table.columns), strict=True))
    return dict(found.most_common(_REASONS))
