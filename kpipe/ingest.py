"""The loop: plan, stage, commit, again. Nothing here knows Kafka, Spark or a database.

One pass of the loop is one attempt at one batch:

    1. read the ledger              5. stage rows and dead letters (again, if new columns were found)
    2. ask the brokers              6. commit everything at once
    3. prove they fit together      7. look at the result that was read back
    4. plan, fixed from then on

While one batch commits, the next may be on its way through 2 to 5 (kpipe/extract.py).

A failure before 6 leaves nothing but files that no one refers to. A failure in 6 has been resolved by the destination
(landed, not landed) or ends the run (unknown). The next pass always begins from the ledger.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kpipe import mirror, moves
from kpipe.batch import Batch, Commit, Committed, RangeReport, Step
from kpipe.beginnings import beginnings
from kpipe.bounds import check_chosen, check_dead_letters, check_still_there
from kpipe.claims import Claims
from kpipe.errors import Fenced, KpipeError, LedgerMismatch, OffsetsBeyondEnd, OffsetsLost
from kpipe.extract import Ahead, Extract, extract_next, filled, staged, wanted
from kpipe.faults import reach
from kpipe.keys import KeyRule
from kpipe.ledger import LOST, READ, LaneChange, Ledger
from kpipe.oversight import Decisions, Event, Seen, ledger_only
from kpipe.pipeline import Pipeline
from kpipe.plan import Idle, Limits, arrivals, check_source, lag, losses, plan
from kpipe.ports import Destination, Stager, Topics
from kpipe.reports import collect
from kpipe.schema import Columns
from kpipe.source import PartitionId, TopicSnapshot

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
        topics, stager, destination: the edges (kpipe/ports.py).
        only: partition numbers; None: all.
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
    only: Collection[int] | None = None
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
    _ahead: Ahead | None = None
    _missed: int = 0

    def __post_init__(self) -> None:
        self._claims = Claims(self.pipeline.delivery == "at_most_once", self._commit_only, self.tell)

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
                    raise
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
        try:
            extract = self._ahead_taken() or self._extract()
            return extract if isinstance(extract, Idle) else self._commit(extract, last)
        except BaseException:
            self._claims.give_back()
            raise

    def _commit(self, extract: Extract, last: bool) -> Committed:
        batch, snapshot, ledger = extract.batch, extract.snapshot, extract.ledger
        counts = collect(batch, extract.reports, KeyRule.of(self.pipeline) is None)
        check_dead_letters(self.pipeline, ledger, counts, extract.reports)
        check_still_there(self.topics, ledger, batch)
        self.tell(Event("staged", batch))
        reach("collect.all")
        for step in batch.steps:
            if len(step.range):
                self._mean_bytes[step.source] = counts[step.lane.key].bytes / len(step.range)
        left = sum(lag(ledger, snapshot).values()) - sum(len(step.range) for step in batch.steps)
        self._turn = (ledger.seq if self._turn is None else self._turn) + 1
        if not last and left > 0 and self._missed < _MOST_MISSES and not self._claims.used:
            self._look_ahead(extract)
        seconds = time.monotonic() - extract.began
        committed = self.destination.commit(  # 6
            Commit(
                id=batch.id,
                pipeline=batch.pipeline,
                changes=self._claims.landing(batch),
                steps=batch.steps,
                columns=extract.columns,
                files=tuple(r.rows for r in extract.reports if r.rows is not None),
                dead_letters=tuple(r.dead_letters for r in extract.reports if r.dead_letters is not None),
                deletes=tuple(r.deletes for r in extract.reports if r.deletes is not None),
                counts=counts,
                ends={s: (snapshot.partitions[s].log_start, snapshot.partitions[s].high) for s in snapshot.partitions},
                metadata=mirror.metadata(batch, counts, snapshot, seconds),
                run_id=self.run_id,
                version=self.version,
                started_ms=extract.started_ms,
                seconds=seconds,
            )
        )
        self._claims.landed()
        reach("mirror.before")
        self._all_read = left <= 0
        result = replace(committed, batch=batch)  # 7
        self.seen.note(self.seen.uid or self.destination.ledger()[0], result.seq)
        self.tell(Event("committed", batch, result, snapshot=snapshot, ledger=ledger))
        return result

    def _extract(self) -> Extract | Idle:
        """A batch planned and staged from the ledger as it is."""
        began, started_ms = time.monotonic(), int(time.time() * 1000)
        snapshot, ledger = self.look()  # 1, 2, 3
        check_chosen(self.pipeline, self.only, snapshot)
        batch = self._plan(ledger, snapshot, self._limits())  # 4
        if isinstance(batch, Idle):
            self.tell(Event("idle", text=batch.reason, snapshot=snapshot, ledger=ledger))
            return batch
        self.tell(Event("planned", batch, snapshot=snapshot, ledger=ledger))
        columns, reports = self.stage(batch := self._claims.take(ledger, batch))  # 5
        return Extract(batch, snapshot, ledger, columns, reports, began, started_ms)

    def _limits(self) -> Limits:
        b = self.pipeline.batch
        return Limits(b.max_offsets_per_partition, b.max_bytes_per_partition, b.max_partitions, dict(self._mean_bytes))

    def _plan(self, ledger: Ledger, snapshot: TopicSnapshot, bounds: Limits) -> Batch | Idle:
        turn = ledger.seq if self._turn is None else self._turn
        return plan(ledger, snapshot, bounds, uuid.uuid4().hex, self.only, turn)

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
            ledger = self.read_ledger()
            table = self.destination.columns()
            if ahead.foresaw(ledger, None if table is None else filled(self.pipeline, table)):
                self._missed = 0
                extract = ahead.take(self.tell)
                return extract and replace(extract, ledger=ledger)
        except BaseException:
            ahead.drop(self.stager)
            raise
        ahead.drop(self.stager)
        self._missed += 1
        return None

    def look(self) -> tuple[TopicSnapshot, Ledger]:
        """What the brokers hold and what is committed, proven to fit together.

        The two are read one after the other, and another run may commit, or retention delete, between them. The ledger
        comes first, so that its offsets are not beyond the end of the log only because the brokers were asked too
        early; an offset that seems to be outside of the log is looked at twice before an operator is called.
        """
        try:
            return self.look_once()
        except (OffsetsLost, OffsetsBeyondEnd):
            return self.look_once()

    def look_once(self) -> tuple[TopicSnapshot, Ledger]:
        """One look, in that order."""
        ledger = self.read_ledger()
        reach("plan.ledger")
        snapshot = self.topics.snapshot()
        reach("plan.offsets")
        return snapshot, self.settle(ledger, snapshot)

    def read_ledger(self) -> Ledger:
        """The ledger, proven to be the one that this home has seen before, or a later state of it.

        Raises:
            LedgerMismatch: it is missing, another one, or an older state.
        """
        uid, ledger = self.destination.ledger()
        if not self.seen.uid or (uid == self.seen.uid and ledger.seq >= self.seen.seq):
            self.seen.note(uid, ledger.seq)
            return ledger
        name = self.pipeline.name
        if self.decisions.on_older_ledger == "accept":
            if uid:
                note = f"accepted at {ledger.seq}, {self.seen.seq} had been seen; {self.decisions.who}"
                ledger = self.decide("accept_ledger", (), note)
                uid = self.seen.uid = self.destination.ledger()[0]
            self.seen.note(uid, ledger.seq)
            return ledger
        where = self.destination.describe()
        if not uid:
            what = f"pipeline {name}: the ledger in {where} is gone; this home has seen {self.seen.seq} commits there"
        elif uid != self.seen.uid:
            what = f"pipeline {name}: the ledger in {where} is not the one that this home has seen"
        else:
            what = f"pipeline {name}: the ledger in {where} stands at commit {ledger.seq}, this home has seen {self.seen.seq}"
        raise LedgerMismatch(
            f"{what}; the destination was replaced or restored",
            f"restore it, or go on from what it holds: kpipe run {name} --on-older-ledger accept",
        )

    def settle(self, ledger: Ledger, snapshot: TopicSnapshot) -> Ledger:
        """The ledger with every present partition in it, after decisions that are allowed were recorded.

        Raises:
            NeedsOperator: something does not fit and nobody decided.
            InvalidPipeline: `start` or `end` name offsets or partitions that do not exist.
        """
        new_topic = self.decisions.on_new_topic == "begin"
        loss = self.decisions.on_data_loss or self.pipeline.source.on_data_loss
        if loss == "record":
            gone = losses(ledger, snapshot)
            changes = [c for s in gone for c in moves.accept_loss(ledger, s, snapshot.partitions[s].log_start)]
            if changes:
                lanes = [c.become for c in changes if c.become is not None and c.become.kind == LOST]
                lost = ", ".join(f"{lane.source} [{lane.start}, {lane.end})" for lane in lanes)
                ledger = self.decide("loss", changes, f"lost: {lost}; {self.decisions.who or 'on_data_loss: record'}")
        if not new_topic:
            check_source(ledger, snapshot)
        fresh = arrivals(ledger, snapshot)
        if fresh:
            changes = beginnings(self.pipeline.source, self.topics, ledger, snapshot, fresh)
            words = ", ".join(f"{c.become.source} at {c.become.next}" for c in changes if c.become and c.become.kind == READ)
            ledger = self.decide("begin", changes, f"begin: {words}" + (f"; {self.decisions.who}" if new_topic else ""))
        check_source(ledger, snapshot)
        return ledger

    def decide(self, kind: str, changes: Sequence[LaneChange], note: str, steps: Sequence[Step] = ()) -> Ledger:
        """Commit a decision that reads nothing, and read the ledger again. Steps are those that are to be read again."""
        note = note.rstrip("; ")
        self._commit_only(kind, changes, note, steps)
        uid, ledger = self.destination.ledger()
        self.seen.note(uid, max(ledger.seq, self.seen.seq) if kind != "accept_ledger" else ledger.seq)
        self.tell(Event("decided", text=note, ledger=ledger))
        return ledger

    def _commit_only(self, kind: str, changes: Sequence[LaneChange], note: str, steps: Sequence[Step] = ()) -> None:
        self.destination.commit(ledger_only(self.pipeline.name, kind, changes, note, steps, self.run_id, self.version))

    def stage(self, batch: Batch) -> tuple[Columns, Sequence[RangeReport]]:
        """Rows staged, with the columns that the table has or will have (kpipe/extract.py)."""
        columns = wanted(self.pipeline, self.destination.columns(), lambda: self.stager.columns(batch))
        return staged(self.pipeline, self.stager, batch, columns, self.tell)
