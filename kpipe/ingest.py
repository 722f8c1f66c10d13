"""The loop: plan, stage, commit, again. Every effect is injected; nothing here knows Kafka, Spark or a database.

One pass of the loop is one attempt at one batch:

    1. read the ledger              5. stage rows and dead letters (again, if new columns were found)
    2. ask the brokers              6. commit everything at once
    3. prove they fit together      7. look at the result that was read back
    4. plan, fixed from then on

A failure before 6 leaves nothing but files that no one refers to. A failure in 6 has been resolved by the destination
(landed, not landed) or ends the run (unknown). The next pass always begins from the ledger.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kpipe import mirror, moves
from kpipe.batch import Batch, Commit, Committed, RangeReport, Step
from kpipe.beginnings import beginnings
from kpipe.bounds import check_chosen, check_dead_letters
from kpipe.errors import (
    Fenced,
    KpipeError,
    LedgerMismatch,
    OffsetsBeyondEnd,
    OffsetsLost,
    SchemaConflict,
)
from kpipe.faults import reach
from kpipe.ledger import LOST, READ, LaneChange, Ledger
from kpipe.oversight import Decisions, Event, Seen
from kpipe.pipeline import Pipeline
from kpipe.plan import Idle, Limits, arrivals, check_source, lag, losses, plan
from kpipe.ports import Destination, Stager, Topics
from kpipe.reports import collect
from kpipe.schema import Columns
from kpipe.source import PartitionId, TopicSnapshot

__all__ = ["Decisions", "Event", "Ingest", "Seen"]

# A batch whose records keep holding columns that no earlier pass has reported would never end. Each pass reports all
# new columns of the whole batch, so a second pass finds no more unless the records changed, which Kafka rules out.
_MOST_STAGINGS = 3
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

    def run(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed]:
        """Commit batch after batch; ends when caught up (unless `follow`), at the limit, or when told to stop.

        Retriable errors are retried `max_retries` times with back-off; a batch that commits resets the count.

        Raises:
            KpipeError: what could not be retried, or not any more.
        """
        for result in self.passes(max_batches, follow):
            if isinstance(result, Committed):
                yield result

    def passes(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed | Idle]:
        """As `run`, and with `follow` also every look that found nothing to do, before the wait.

        The interval is waited after such a look, and after a batch that left nothing to read; from the beginning of the
        batch on, so that it is the time from one to the next.
        """
        done = failures = 0
        while not self.stopped() and (max_batches is None or done < max_batches):
            began = time.monotonic()
            try:
                result = self.step()
            except KpipeError as error:
                failures += 1
                again = error.retriable or (isinstance(error, Fenced) and self.contend)
                if not again or failures > self.pipeline.batch.max_retries:
                    raise
                seconds = self.backoff(failures)
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

    def backoff(self, failures: int) -> float:
        """Seconds before the next try; by default the interval (at least 0.1 s), doubled each time, ten times it at most."""
        limits = self.pipeline.batch
        first = (limits.retry_interval_ms or max(100, limits.interval_ms)) / 1000
        longest = limits.max_retry_interval_ms / 1000 if limits.max_retry_interval_ms is not None else 10 * first
        return float(min(first * 2 ** (failures - 1) if limits.exponential else first, longest))

    def step(self) -> Committed | Idle:
        """One pass: at most one batch.

        Raises:
            KpipeError: the pass failed; nothing of its batch is visible.
        """
        began, started_ms = time.monotonic(), int(time.time() * 1000)
        snapshot, ledger = self.look()  # 1, 2, 3
        check_chosen(self.pipeline, self.only, snapshot)
        limits = self.pipeline.batch
        bounds = Limits(
            limits.max_offsets_per_partition, limits.max_bytes_per_partition, limits.max_partitions, dict(self._mean_bytes)
        )
        turn = ledger.seq if self._turn is None else self._turn
        batch = plan(ledger, snapshot, bounds, uuid.uuid4().hex, self.only, turn)  # 4
        if isinstance(batch, Idle):
            self.tell(Event("idle", text=batch.reason, snapshot=snapshot, ledger=ledger))
            return batch
        self.tell(Event("planned", batch, snapshot=snapshot, ledger=ledger))
        reach("plan.frozen")
        columns, reports = self.stage(batch)  # 5
        counts = collect(batch, reports)
        check_dead_letters(self.pipeline, ledger, counts, reports)
        self.check_still_there(ledger, batch)
        self.tell(Event("staged", batch))
        reach("collect.all")
        seconds = time.monotonic() - began
        committed = self.destination.commit(  # 6
            Commit(
                id=batch.id,
                pipeline=batch.pipeline,
                changes=tuple(step.change for step in batch.steps),
                steps=batch.steps,
                columns=columns,
                files=tuple(r.rows for r in reports if r.rows is not None),
                dead_letters=tuple(r.dead_letters for r in reports if r.dead_letters is not None),
                counts=counts,
                ends={s: (snapshot.partitions[s].log_start, snapshot.partitions[s].high) for s in snapshot.partitions},
                metadata=mirror.metadata(batch, counts, snapshot, seconds),
                run_id=self.run_id,
                version=self.version,
                started_ms=started_ms,
                seconds=seconds,
            )
        )
        reach("mirror.before")
        self._turn = turn + 1
        self._all_read = sum(lag(ledger, snapshot).values()) <= sum(len(step.range) for step in batch.steps)
        result = replace(committed, batch=batch)  # 7
        self.seen.note(self.seen.uid or self.destination.ledger()[0], result.seq)
        for step in batch.steps:
            if len(step.range):
                self._mean_bytes[step.source] = counts[step.lane.key].bytes / len(step.range)
        self.tell(Event("committed", batch, result, snapshot=snapshot, ledger=ledger))
        return result

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
        commit = Commit(
            id=uuid.uuid4().hex,
            pipeline=self.pipeline.name,
            changes=tuple(changes),
            kind=kind,
            steps=tuple(steps),
            run_id=self.run_id,
            version=self.version,
            started_ms=int(time.time() * 1000),
            note=note.rstrip("; "),
        )
        self.destination.commit(commit)
        uid, ledger = self.destination.ledger()
        self.seen.note(uid, max(ledger.seq, self.seen.seq) if kind != "accept_ledger" else ledger.seq)
        self.tell(Event("decided", text=commit.note, ledger=ledger))
        return ledger

    def stage(self, batch: Batch) -> tuple[Columns, Sequence[RangeReport]]:
        """Rows staged with the columns that the table has or will have.

        New columns that the records hold are handled by the pipeline's schema policy: `evolve` widens and stages once
        more, `ignore` leaves them out, `fail` raises.

        Raises:
            SchemaConflict: the policy is `fail`, or the types cannot be one.
        """
        columns = self.wanted_columns(batch)
        for attempt in range(1, _MOST_STAGINGS + 1):
            reports = self.stager.stage(batch, columns)
            new = Columns()
            for report in reports:
                new = new.joined(report.new_columns)
            if not new or self.pipeline.evolution == "ignore":
                return columns, reports
            names = ", ".join(f"{name} {kind}" for name, kind in new)
            if self.pipeline.evolution == "fail":
                raise SchemaConflict(
                    f"batch {batch.id}: records hold columns that the table lacks: {names}",
                    "add them to the table or to `columns`, or set schema: evolve or ignore",
                )
            columns = _merged(columns, new)
            if attempt < _MOST_STAGINGS:
                self.tell(Event("restaged", batch, text=f"new columns: {names}"))
        raise SchemaConflict(f"batch {batch.id}: new columns turn up each time it is read: {names}")

    def wanted_columns(self, batch: Batch) -> Columns:
        """Columns of the table if it exists, else the declared ones before those of a sample (design.md 4.6)."""
        declared = Columns.of(self.pipeline.columns)
        table = self.destination.columns()
        if table is not None:
            missing = declared.without(table.names())
            return _merged(table, missing) if self.pipeline.evolution == "evolve" else table
        if self.pipeline.format.type == "raw":
            return Columns.of({"key": "BLOB", "value": "BLOB"})
        sample = self.stager.columns(batch)
        return Columns((*declared.items, *sample.without(declared.names()).items))

    def check_still_there(self, ledger: Ledger, batch: Batch) -> None:
        """The topics that were read are the ones that were planned: tasks know a topic by its name only.

        Raises:
            SourceIdentityChanged: a topic was made again while it was read. Nothing was committed.
        """
        now = self.topics.present()
        if any(step.source not in now for step in batch.steps):
            check_source(ledger, self.topics.snapshot())


def _merged(columns: Columns, new: Columns) -> Columns:
    try:
        return columns.merged(new)
    except ValueError as error:
        raise SchemaConflict(str(error), "declare its type under `columns`, or change the table") from error
