"""Dead letters tried again with the definition as it is now, page after page, each exactly once."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from kpipe.batch import Commit, Portion, RangeReport, total
from kpipe.errors import Fenced, LedgerMismatch, NotAvailable
from kpipe.extract import staged, wanted
from kpipe.keys import KeyRule
from kpipe.lookups import versions
from kpipe.pipeline import Pipeline
from kpipe.ports import Destination
from kpipe.replay import DeadLetter, Replay, Replayed, Replaying
from kpipe.reports import distinct
from kpipe.targets import is_several, paired, targets
from kpipe_assets.assembly import check_available
from kpipe_assets.commands.options import count
from resources.destinations import open_destination, required_columns
from resources.home import Home
from resources.lookups.tables import asking
from resources.spark.files import discard
from resources.spark.replay import LettersStager, batch_of
from resources.spark.stager import version

__all__ = ["in_words", "retry"]

_PAGE = 10_000  # dead letters of one transaction


class _Place(Destination, Replaying, Protocol):
    """A destination that moves dead letters to rows."""


_TRIES = 5  # pages that somebody else's retry gets ahead of


def retry(pipeline: Pipeline, home: Home, who: str = "", page: int = _PAGE) -> Iterator[Replayed]:
    """Try every dead letter of the pipeline once, in order; each page is one transaction, given when it has landed.

    Records that fail again stay dead letters with the new reason, whatever the definition's policies say: a retry never
    throws one away. What `where` or the program leaves out now is filtered.

    Raises:
        NotAvailable: the destination, rows with a key, or a program's mode.
        LedgerMismatch: the destination is not the one that this home has seen.
        KpipeError: staging or the commit failed; pages that were given stay.
    """
    check_available(pipeline)
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
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters of rows with a key (into.key ...) cannot be retried in this version",
            "a newer row of their key may be there; write the mended records to the topic again",
        )
    if pipeline.transform is not None and pipeline.transform.mode != "map":
        raise NotAvailable(
            f"pipeline {pipeline.name}: dead letters cannot be retried with transform.mode: {pipeline.transform.mode}",
            "its rows do not tell which record they come from",
        )
    home.make()
    seen = home.seen(pipeline.name)
    uid, ledger = destination.ledger()
    if seen.uid and (uid != seen.uid or ledger.seq < seen.seq):
        raise LedgerMismatch(
            f"pipeline {pipeline.name}: this home has seen commit {seen.seq}; the ledger in {destination.describe()}"
            f" stands at {ledger.seq}",
            f"kpipe run {pipeline.name} says what can be done",
        )
    after = overtaken = 0
    while letters := destination.letters(after, page):
        try:
            done = _page(pipeline, home, destination, uid, letters, who)
        except Fenced:
            overtaken += 1
            if overtaken > _TRIES:
                raise
            continue  # the other retry has taken some of them: what is left is read again
        seen.note(uid, max(done.seq, seen.seq))
        discard(home.staging, done.id)
        yield done
        after = letters[-1].id


def _asked(reports: Sequence[RangeReport]) -> str:
    """Versions of the lookups that were used, in words."""
    found = versions(report.lookups for report in reports).items()
    return "".join(f"; lookup {name}: sha256 {item['sha256']}, {item['rows']} rows, read {item['read']}" for name, item in found)


def in_words(name: str, pages: Iterable[Replayed]) -> str:
    """What became of all of them, for people."""
    sums = dict.fromkeys(("tried", "answered", "rows", "filtered", "failed"), 0)
    for page in pages:
        for key in sums:
            sums[key] += getattr(page, key)
    if not sums["tried"]:
        return f"{name}: no dead letter can be tried again"
    return (
        f"{name}: {count(sums['tried'], 'dead letter')} tried again: {sums['answered']:,} gave {count(sums['rows'], 'row')},"
        f" {sums['filtered']:,} filtered, {sums['failed']:,} failed again"
    )


def _page(pipeline: Pipeline, home: Home, destination: _Place, uid: str, letters: Sequence[DeadLetter], who: str) -> Replayed:
    began, started_ms = time.monotonic(), int(time.time() * 1000)
    aside = {"parse": "dead_letter", "transform": "dead_letter", "constraint": "dead_letter"}
    lenient = pipeline.model_copy(update={"errors": pipeline.errors.model_copy(update=aside)})
    asked = asking(pipeline, home)
    stager = LettersStager(lenient, home, letters, required=lambda part: required_columns(part, home), ask=asked)
    batch = batch_of(uuid.uuid4().hex, pipeline.name, letters)
    parts = paired(lenient, destination)
    known = [wanted(part, place.columns(), partial(stager.columns, batch, at)) for at, (part, place) in enumerate(parts)]
    columns, reports = staged(lenient, stager, batch, known, lambda _: None)
    counts = total(report.counts for report in reports)
    answered = len(letters) - counts.dead_letters - counts.filtered
    done = Replayed(batch.id, 0, len(letters), answered, counts.rows, counts.filtered, counts.dead_letters)
    commit = Commit(
        id=batch.id,
        pipeline=pipeline.name,
        changes=(),
        kind="replay",
        columns=columns[0],
        files=distinct(file for report in reports for file in report.files),
        dead_letters=tuple(report.dead_letters for report in reports if report.dead_letters is not None),
        run_id=f"pid-{os.getpid()}",
        version=version(pipeline),
        started_ms=started_ms,
        seconds=time.monotonic() - began,
        note=f"retry of {done.tried} dead letters: {done.answered} gave {done.rows} rows, {done.filtered} were filtered,"
        f" {done.failed} failed again{f'; {who}' if who else ''}{_asked(reports)}",
        also=tuple(
            Portion(part.into.table, mine, distinct(share.rows for share in shares))
            for (part, _), mine, shares in zip(parts[1:], columns[1:], zip(*(r.also for r in reports), strict=True), strict=True)
        ),
    )
    several = pipeline.format.several or is_several(pipeline)
    committed = destination.replay(Replay(commit, uid, tuple(letters), several))
    return Replayed(batch.id, committed.seq, done.tried, answered, done.rows, done.filtered, done.failed)
