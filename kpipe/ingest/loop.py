"""The loop: plan, stage, commit, again. Nothing here knows Kafka, Spark or a database.

One pass of the loop is one attempt at one batch:

    1. read the ledger              5. stage rows and dead letters (again, if new columns were found)
    2. ask the brokers              6. commit everything at once
    3. prove they fit together      7. look at the result that was read back
    4. plan, fixed from then on

A destination that was left with a batch that it had begun (`Resuming`) is given that one first, and nothing is planned.
While one batch commits, the next may be on its way through 2 to 5 (prefetch.py).

A failure before 6 leaves nothing but files that no one refers to. A failure in 6 has been resolved by the destination
(landed, not landed) or ends the run (unknown). The next pass always begins from the ledger.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kpipe.batch import dagster_metadata
from kpipe.batch.batch import Batch, Commit, Committed, RangeReport
from kpipe.batch.coverage import collect, distinct, marks, portions
from kpipe.column_growth import Closed
from kpipe.definition.lookups import versions
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, KpipeError, SchemaConflict
from kpipe.failpoints import reach
from kpipe.ingest.at_most_once import Claims
from kpipe.ingest.bad_record_isolation import Skipping
from kpipe.ingest.prefetch import Ahead, Extract, extract_next, filled, staged, staged_for
from kpipe.interfaces import Destination, Refusing, Resuming, Stager, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import Idle, Limits, lag, plan
from kpipe.planning.preconditions import check_chosen, check_dead_letters, check_still_there
from kpipe.planning.reconcile import Survey
from kpipe.planning.start_offsets import fixed_start
from kpipe.run_events import Decisions, Event, Seen
from kpipe.schema.columns import Columns
from kpipe.tables.multi_table import is_several, paired, targets
from kpipe.tables.upsert import KeyRule, rows_first
from kpipe.topics import Part, PartitionId, TopicSnapshot
from kpipe.verification.commit_order import check_order, why_in_order

__all__ = ["Decisions", "Event", "Ingest", "Seen"]

# Batches in a row that were extracted ahead for nothing; something here does not do what it is expected to do.
_MOST_MISSES = 3
# With an interval of 0 an idle pipeline would keep a core busy with asking; 10 ms cost nobody anything.
_SHORTEST_WAIT_S = 0.01


@dataclass
class Ingest:
    """One run of one pipeline.

    Attributes:
        pipeline: the definition.
        topics, stager, destination: the edges (kpipe/interfaces.py).
        only: partitions; None: all.
        decisions: what an operator decided.
        seen: memory of earlier commits.
        run_id: who runs it.
        version: of pipeline and program, kept with every commit.
        tell: called with every event.
        wait: sleeps that many seconds, or less when something woke it.
        stopped: whether to end after the batch at hand.
        contend: whether a pass that was fenced is tried again, planned anew: for runs that hand over to each other.
    """

    pipeline: Pipeline
    topics: Topics
    stager: Stager
    destination: Destination
    only: Collection[Part] | None = None
    decisions: Decisions = field(default_factory=Decisions)
    seen: Seen = field(default_factory=Seen)
    run_id: str = ""
    version: str = ""
    tell: Callable[[Event], None] = lambda _: None
    wait: Callable[[float], None] = time.sleep
    stopped: Callable[[], bool] = lambda: False
    contend: bool = False
    _mean_bytes: dict[PartitionId, float] = field(default_factory=dict)
    _turn: int | None = None
    _all_read: bool = False
    _at: Batch | None = None
    _ahead: Ahead | None = None
    _missed: int = 0

    def __post_init__(self) -> None:
        self.survey = Survey(
            self.pipeline, self.topics, self.destination, self.decisions, self.seen, self.run_id, self.version, self.tell
        )
        self._skipping = Skipping(self.pipeline.errors.batch == "skip")
        claimed, in_order = self.pipeline.delivery == "at_most_once", bool(why_in_order(self.pipeline))
        begun = partial(fixed_start, self.pipeline.source)
        self._claims = Claims(claimed, in_order, begun, self.survey.commit_only, self.tell)

    def run(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed]:
        """Commit batch after batch; ends when caught up (unless `follow`), at the limit, or when told to stop.

        Retriable errors are retried `max_retries` times with back-off; a batch that commits resets the count.

        Raises:
            KpipeError: what could not be retried, or not any more.
        """
        for result in self.passes(max_batches, follow):
            if isinstance(result, Committed):
                yield result

    def passes(self, max_batches: int | None = None, follow: bool = False) -> Generator[Committed | Idle, None, None]:
        """As `run`, and with `follow` also every look that found nothing to do, before the wait.

        The interval is waited after such a look, and after a batch that left nothing to read; from the beginning of the
        batch on, so that it is the time from one to the next.
        """
        try:
            yield from self._passes(max_batches, follow)
        finally:
            self.leave_ahead()

    def leave_ahead(self) -> None:
        """Give up what is being extracted ahead, if anything is."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop(self.stager)

    def _passes(self, max_batches: int | None, follow: bool) -> Iterator[Committed | Idle]:
        done = failures = 0
        while not self.stopped() and (max_batches is None or done < max_batches):
            began = time.monotonic()
            try:
                result = self.step(last=done + 1 == max_batches)
            except KpipeError as error:
                self.leave_ahead()
                failures += 1
                again = error.retriable or (isinstance(error, Fenced) and self.contend)
                if not again or failures > self.pipeline.batch.max_retries:
                    if not self._skipping.failed(error, self._at):
                        raise
                    self.tell(Event("narrowed", self._at, text=f"{error.what}; looking for what can be left out"))
                    failures = 0
                    continue
                seconds = self.pipeline.batch.backoff_s(failures)
                self.tell(Event("retry", text=f"{error}; again in {seconds:g} s ({failures}/{self.pipeline.batch.max_retries})"))
                self.wait(seconds)
                continue
            failures = 0
            if isinstance(result, Committed):
                done += 1
                yield result
                if follow and self._all_read:
                    self.wait(max(0.0, began + self.pipeline.batch.interval_ms / 1000 - time.monotonic()))
            elif not follow or result.reason == "finished":
                return
            else:
                yield result
                self.wait(max(_SHORTEST_WAIT_S, self.pipeline.batch.interval_ms / 1000))

    def step(self, last: bool = True) -> Committed | Idle:
        """One pass: at most one batch.

        Args:
            last: whether no other pass follows; otherwise the next batch may be extracted while this one commits.

        Raises:
            KpipeError: the pass failed; nothing of its batch is visible.
        """
        self._at = None
        try:
            resumed = self._resumed() if self._ahead is None else None
            if resumed is not None:
                return resumed
            extract = self._ahead_taken() or self._extract()
            return extract if isinstance(extract, Idle) else self._landed(extract, last)
        except BaseException:
            self._claims.give_back()
            raise

    def _resumed(self) -> Committed | None:
        """What an earlier run had begun and can only be finished as it was, committed."""
        commit = self.destination.unfinished() if isinstance(self.destination, Resuming) else None
        if commit is None:
            return None
        if self.decisions.on_unfinished_batch == "skip":
            self.survey.give_up(commit)
            return None
        self.survey.read_ledger()
        self._at = batch = Batch(commit.id, commit.pipeline, commit.steps)
        self.tell(Event("resumed", batch, text="a batch that was on its way is finished first"))
        return self._told(self.destination.commit(commit), batch)

    def _told(self, committed: Committed, batch: Batch, extract: Extract | None = None) -> Committed:
        reach("mirror.before")
        result = replace(committed, batch=batch)  # 7
        self.seen.note(self.seen.uid or self.destination.ledger()[0], result.seq)
        looked = (extract.snapshot, extract.ledger) if extract is not None else (None, None)
        self.tell(Event("committed", batch, result, "", *looked))
        return result

    def _landed(self, extract: Extract, last: bool) -> Committed:
        """The batch committed; where the table names records that it refuses, without these, if that is the policy."""
        try:
            return self._commit(extract, last)
        except SchemaConflict as error:
            if self.pipeline.errors.constraint == "fail" or not isinstance(self.stager, Refusing):
                raise
            self.leave_ahead()
            if not self.stager.refuse(error.refused):
                raise
            count = sum(map(len, error.refused.values()))
        self.tell(Event("restaged", extract.batch, text=f"records that the table refuses are set aside: {count:,}"))
        again = partial(staged, self.pipeline, self.stager, extract.batch, extract.columns, self.tell)
        columns, closed, reports = again(closed=extract.closed)
        return self._landed(replace(extract, columns=columns, closed=closed, reports=reports), last)

    def _commit(self, extract: Extract, last: bool) -> Committed:
        batch, snapshot, ledger = extract.batch, extract.snapshot, extract.ledger
        self._at = batch
        plain, *others = [KeyRule.of(part) is None for part in targets(self.pipeline)]
        counts = collect(batch, extract.reports, plain)
        also = portions(batch, extract.reports, targets(self.pipeline)[1:], extract.columns[1:], others)
        check_dead_letters(self.pipeline, ledger, counts, extract.reports)
        check_still_there(self.topics, ledger, batch)
        self.tell(Event("staged", batch))
        reach("collect.all")
        for step in batch.steps:
            if len(step.range):
                self._mean_bytes[step.source] = counts[step.lane.key].bytes / len(step.range)
        left = sum(lag(ledger, snapshot).values()) - sum(len(step.range) for step in batch.steps)
        self._turn = (ledger.seq if self._turn is None else self._turn) + 1
        if not last and left > 0 and self._missed < _MOST_MISSES and self._looks_ahead:
            self._look_ahead(extract)
        seconds = time.monotonic() - extract.began
        loose = rows_first(self.pipeline)  # the ledger follows in a commit of its own
        committed = self.destination.commit(  # 6
            Commit(
                id=batch.id,
                pipeline=batch.pipeline,
                changes=() if loose else self._claims.landing(batch),
                kind="rows" if loose else "batch",
                steps=batch.steps,
                columns=extract.columns[0],
                files=distinct(file for r in extract.reports for file in r.files),
                dead_letters=distinct(r.dead_letters for r in extract.reports),
                deletes=distinct(r.deletes for r in extract.reports),
                counts=counts,
                ends={s: (snapshot.partitions[s].log_start, snapshot.partitions[s].high) for s in snapshot.partitions},
                metadata=dagster_metadata.metadata(
                    batch, counts, snapshot, seconds, versions(r.lookups for r in extract.reports), also
                ),
                run_id=self.run_id,
                version=self.version,
                started_ms=extract.started_ms,
                seconds=seconds,
                marks=marks(batch, extract.reports) if is_several(self.pipeline) else {},
                also=also,
                several=self.pipeline.source.several,
            )
        )
        self._claims.landed()
        if loose:
            self.survey.commit_only("advance", [step.change for step in batch.steps], f"advance: batch {batch.id}")
        self._skipping.landed(batch)
        self._all_read = left <= 0
        return self._told(committed, batch, extract)

    def _extract(self) -> Extract | Idle:
        """A batch planned and staged from the ledger as it is."""
        began, started_ms = time.monotonic(), int(time.time() * 1000)
        snapshot, ledger = self.survey.look()  # 1, 2, 3
        ledger = self._skipped(ledger)
        check_chosen(self.pipeline, self.only, snapshot, ledger)
        check_order(self.pipeline, ledger, snapshot.partitions)
        batch = self._plan(ledger, snapshot, self._limits())  # 4
        if isinstance(batch, Idle):
            self.tell(Event("idle", text=batch.reason, snapshot=snapshot, ledger=ledger))
            return batch
        self._at = batch
        self.tell(Event("planned", batch, snapshot=snapshot, ledger=ledger))
        found = self.stage(batch := self._claims.take(ledger, batch))  # 5
        return Extract(batch, snapshot, ledger, *found, began, started_ms)

    def _limits(self) -> Limits:
        b = self.pipeline.batch
        return Limits(b.max_offsets_per_partition, b.max_bytes_per_partition, b.max_partitions, dict(self._mean_bytes))

    def _plan(self, ledger: Ledger, snapshot: TopicSnapshot, bounds: Limits) -> Batch | Idle:
        turn = ledger.seq if self._turn is None else self._turn
        id = uuid.uuid4().hex
        return self._skipping.planned(ledger, id) or plan(ledger, snapshot, bounds, id, self.only, turn)

    def _skipped(self, ledger: Ledger) -> Ledger:
        """The ledger with what failed for good in it, as skipped."""
        skip = self._skipping.due()
        changes = skip.changes(ledger) if skip is not None else []
        if skip is not None and changes:
            ledger = self.survey.decide("skip", changes, f"skip: {skip.words}; {skip.error.what}")
            error, kind = str(skip.error), type(skip.error).__name__
            self.destination.record_state("running", f"skipped: {skip.words}; {error}", kind, skip.batch(ledger.pipeline))
        self._skipping.recorded()
        return ledger

    @property
    def _looks_ahead(self) -> bool:
        """Whether the next batch is known while one commits, and one commit is all that it takes."""
        return self.pipeline.delivery == "exactly_once" and not self._skipping.busy

    def _look_ahead(self, extract: Extract) -> None:
        """Extract the batch behind this one while it commits. Of the three edges, that thread uses topics and stager only."""
        ledger, bounds = extract.ledger.apply(step.change for step in extract.batch.steps), self._limits()

        def work(tell: Callable[[Event], None]) -> Extract | None:
            planned = partial(self._plan, bounds=bounds)
            return extract_next(self.pipeline, self.topics, self.stager, ledger, extract.columns, planned, tell)

        self._ahead = Ahead(work, ledger, extract.columns)

    def _ahead_taken(self) -> Extract | None:
        """What was extracted during the last commit, if everything has become as it was foreseen.

        Raises:
            KpipeError: the extraction failed, or the ledger is not one to go on from.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        try:
            ledger = self.survey.read_ledger()
            tables = [(part, place.columns()) for part, place in paired(self.pipeline, self.destination)]
            if ahead.foresaw(ledger, tuple(table and filled(part, table) for part, table in tables)):
                self._missed = 0
                extract = ahead.take(self.tell)
                return extract and replace(extract, ledger=ledger)
        except BaseException:
            ahead.drop(self.stager)
            raise
        ahead.drop(self.stager)
        self._missed += 1
        return None

    def stage(self, batch: Batch) -> tuple[tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
        """Stage rows with the columns that each table has or will have (kpipe/ingest/prefetch.py)."""
        tables = [(part, place.columns()) for part, place in paired(self.pipeline, self.destination)]
        return staged_for(self.pipeline, tables, self.stager, batch, self.tell)
