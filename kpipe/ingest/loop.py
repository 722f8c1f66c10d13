"""The ingest loop: commit batch after batch, without imports of Kafka, Spark or a database.

One pass, `Ingest.step`, makes one attempt at one batch in seven steps (docs/design.md, section 2). The next pass
always begins with the ledger. A failure before the commit leaves only staged files that no table references. After a
failure in the commit, the destination either determines whether it was committed, or ends the run (unknown outcome).

Related modules: prefetch.py stages the next batch during a commit, delivery.py, at_most_once.py and at_least_once.py
implement `delivery`, and batch_bisection.py handles records that fail a batch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from kpipe.batch import dagster_metadata
from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.batch.coverage import collect, distinct, lookup_versions, table_writes, task_seconds, with_tails
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import BrokerUnreachable, CredentialsRefused, Fenced, KpipeError, SchemaConflict
from kpipe.failpoints import failpoint
from kpipe.ingest.at_least_once import AtLeastOnce
from kpipe.ingest.at_most_once import AtMostOnce
from kpipe.ingest.batch_bisection import BadRecordIsolation, set_aside
from kpipe.ingest.batch_size import BatchSize
from kpipe.ingest.delivery import Delivery
from kpipe.ingest.prefetch import Prefetch
from kpipe.ingest.staging import Observed, StagedBatch, staged_for
from kpipe.interfaces import Destination, Resuming, Stager, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import Idle, Limits, lag, plan
from kpipe.planning.preconditions import check_chosen, check_dead_letters, check_still_there
from kpipe.planning.reconcile import Survey
from kpipe.planning.start_offsets import fixed_start
from kpipe.planning.transaction_planner import planner_of
from kpipe.run_events import Decisions, Event, Seen
from kpipe.tables.multi_table import fans_out
from kpipe.tables.topic_tables import TableNames, batch_tables
from kpipe.tables.upsert import KeyRule, rows_first
from kpipe.topics import Part, TopicSnapshot
from kpipe.verification.commit_order import check_order, why_in_order

__all__ = ["Ingest"]

# With an interval of 0, an idle pipeline would keep a core busy with queries; 10 ms cost little.
_SHORTEST_WAIT_S = 0.01


@dataclass
class Ingest:
    """One run of one pipeline.

    Attributes:
        pipeline: the definition.
        topics, stager, destination: see kpipe/interfaces.py.
        only: selected partitions; None: all.
        decisions: operator overrides.
        seen: last commit that this home has seen.
        run_id, version: id of the run, and version of pipeline and program, both stored with every commit.
        `on_event`: callback for every event.
        wait: sleeps for that many seconds, or less after a wake-up.
        stopped: whether to end after the current batch.
        contend: whether a fenced pass is planned and tried again, for runs that hand over to each other.
        `on_work`: called as soon as there are records to stage, so that the engine starts beside the next steps.
        admission: entered for each pass; may wait first, and yields False if the run is over.
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
    on_event: Callable[[Event], None] = lambda _: None
    wait: Callable[[float], None] = time.sleep
    stopped: Callable[[], bool] = lambda: False
    contend: bool = False
    on_work: Callable[[], None] = lambda: None
    admission: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True)
    _turn: int | None = field(default=None, init=False)
    _all_read: bool = field(default=False, init=False)
    _batch: Batch | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.survey = Survey(
            self.pipeline, self.topics, self.destination, self.decisions, self.seen, self.run_id, self.version, self.on_event,
            foresee=self._foresee,
        )  # fmt: skip
        self.isolation = BadRecordIsolation(self.pipeline.errors.batch == "skip")
        self.sizes = BatchSize(self.destination, self.pipeline.batch, self.pipeline.source.most_offsets)
        self.names = TableNames(self.pipeline, self.destination)
        self.delivery = self._delivery()
        read = self.survey.read_ledger
        self.prefetch = Prefetch(self.pipeline, self.topics, self.stager, self.destination, read, self.on_event)
        self._plan = planner_of(self.pipeline, self.topics)

    def _delivery(self) -> Delivery:
        if rows_first(self.pipeline):
            return AtLeastOnce(self.survey)
        if self.pipeline.delivery == "at_most_once":
            in_order, begun = bool(why_in_order(self.pipeline)), partial(fixed_start, self.pipeline.source)
            return AtMostOnce(self.survey, in_order, begun)
        return Delivery()

    def run(self, max_batches: int | None = None, follow: bool = False) -> Iterator[Committed]:
        """Commit batch after batch; end when caught up (unless `follow`), at the limit, or on a stop request.

        Retriable errors are retried `max_retries` times with back-off; a batch that commits resets the count. Brokers that have
        never answered are not retried.

        Raises:
            KpipeError: an error that is not retriable, or after the last retry.
        """
        for result in self.passes(max_batches, follow):
            if isinstance(result, Committed):
                yield result

    def passes(self, max_batches: int | None = None, follow: bool = False) -> Generator[Committed | Idle, None, None]:
        """Commit as `run` does, and with `follow` also yield every pass without a batch, before the wait.

        The wait follows such a pass, and a batch that left nothing to read. The interval counts from the start of the
        batch, so that it is the time from one batch to the next.
        """
        try:
            yield from self._passes(max_batches, follow)
        finally:
            self.prefetch.end()

    def _passes(self, max_batches: int | None, follow: bool) -> Iterator[Committed | Idle]:
        done = failures = 0
        while not self.stopped() and (max_batches is None or done < max_batches):
            try:
                with self.admission() as admitted:
                    began = time.monotonic()
                    if not admitted:
                        return
                    result = self.step(last=done + 1 == max_batches)
            except KpipeError as error:
                self.prefetch.drop()
                self.survey.note_failure(error)
                failures += 1
                again = error.retriable or (isinstance(error, Fenced) and self.contend)
                again |= isinstance(error, CredentialsRefused) and self.pipeline.source.rotates  # perhaps just replaced
                again &= not isinstance(error, BrokerUnreachable) or error.reached
                if not again or failures > self.pipeline.batch.max_retries:
                    if not self.isolation.failed(error, self._batch):
                        raise
                    text = f"{error.what}; searching for the records to skip"
                    self.on_event(Event("narrowed", self._batch, text=text, error=error))
                    failures = 0
                    continue
                seconds = self.pipeline.batch.backoff_s(failures)
                text = f"{error}; again in {seconds:g} s ({failures}/{self.pipeline.batch.max_retries})"
                self.on_event(Event("retry", self._batch, text=text, error=error))
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
        """Make one pass: at most one batch.

        Args:
            last: whether no other pass follows; otherwise the next batch may be prefetched while this one commits.

        Raises:
            KpipeError: the pass failed; nothing of its batch is visible.
        """
        self._batch = None
        with self.delivery.attempt():
            if (resumed := self._resumed()) is not None:
                return resumed
            if (staged := self.prefetch.take()) is not None:
                observed = Observed(staged.snapshot, staged.ledger, staged.began, staged.started_ms)
            else:
                observed = self.observe()  # 1
                observed = self.reconcile(observed)  # 2
                batch = self.plan(observed)  # 3
                if isinstance(batch, Idle):
                    return batch
                staged = self.stage(observed, batch)  # 4
            staged = self._sized(observed, staged)
            commit = self.check(staged)  # 5
            committed = self.commit(commit, staged, last)  # 6
            return self.publish(committed)  # 7

    def _resumed(self) -> Committed | None:
        """Commit the batch that an earlier run began to send, if it exists: it can only be finished unchanged."""
        commit = self.destination.unfinished() if isinstance(self.destination, Resuming) and not self.prefetch.running else None
        if commit is None:
            return None
        if self.decisions.on_unfinished_batch == "skip":
            self.survey.give_up(commit)
            return None
        self.survey.read_ledger()
        self._batch = batch = Batch(commit.id, commit.pipeline, commit.steps)
        self.on_event(Event("resumed", batch, text="finishing the batch that an earlier run began to send"))
        return self.publish(replace(self.destination.commit(commit), batch=batch))

    def observe(self) -> Observed:
        """Read the ledger, then the topic ids and offsets from the brokers."""
        began, started_ms = time.monotonic(), int(time.time() * 1000)
        return Observed(*self.survey.observe(), began, started_ms)

    def reconcile(self, observed: Observed) -> Observed:
        """Check that ledger, brokers and definition match; begin new partitions, record skipped offsets.

        Raises:
            KpipeError: they do not match, or a decision could not be committed.
        """
        self.names.check(observed.snapshot.names)
        snapshot, ledger = self.survey.reconcile(observed.snapshot, observed.ledger)
        self.names.check(snapshot.names)  # it may have been read again
        ledger = self.isolation.record(ledger, self.survey)
        check_chosen(self.pipeline, self.only, snapshot, ledger)
        check_order(self.pipeline, ledger, snapshot.partitions)
        return replace(observed, snapshot=snapshot, ledger=ledger)

    def plan(self, observed: Observed) -> Batch | Idle:
        """Plan the next batch, or return the reason for none. Only `_sized` changes it afterwards."""
        snapshot, ledger = observed.snapshot, observed.ledger
        batch = self._next_batch(self.sizes.limits(), ledger, snapshot)
        if isinstance(batch, Idle):
            self.on_event(Event("idle", text=batch.reason, detail=batch.detail, snapshot=snapshot, ledger=ledger))
        else:
            self._batch = batch
            self.on_work()
            self.on_event(Event("planned", batch, snapshot=snapshot, ledger=ledger))
        return batch

    def _foresee(self, ledger: Ledger, snapshot: TopicSnapshot) -> None:
        """Call `on_work` if the next plan finds records. The ledger is the one after a decision that is about to be committed."""
        if isinstance(plan(ledger, snapshot, Limits(), "", self.only), Batch):
            self.on_work()

    def _next_batch(self, limits: Limits, ledger: Ledger, snapshot: TopicSnapshot) -> Batch | Idle:
        turn = ledger.seq if self._turn is None else self._turn
        id = secrets.token_hex(16)
        return self.isolation.planned(ledger, snapshot, id) or self._plan(ledger, snapshot, limits, id, self.only, turn)

    def stage(self, observed: Observed, batch: Batch) -> StagedBatch:
        """Stage rows and dead letters, with the existing or new columns of each table (staging.py)."""
        batch = self.delivery.take(observed.ledger, batch)
        batch, columns, closed, reports = staged_for(self.pipeline, self.destination, self.stager, batch, self.on_event)
        where, when = (observed.snapshot, observed.ledger), (observed.began, observed.started_ms)
        return StagedBatch(with_tails(batch, reports), *where, columns, closed, reports, *when)

    def _sized(self, observed: Observed, staged: StagedBatch) -> StagedBatch:
        """Plan and stage a batch again, with fewer offsets, if it needs too much memory of the destination.

        The batch keeps its id, so that its commit removes the files of both. Modes with two commits, and searches for bad
        records, have fixed the ranges.
        """
        if not self.sizes.note(staged.reports) or self.pipeline.delivery != "exactly_once" or self.isolation.busy:
            return staged
        smaller = self._next_batch(self.sizes.limits(), observed.ledger, observed.snapshot)
        if isinstance(smaller, Idle) or smaller.steps == staged.batch.steps:
            return staged
        self._batch = batch = replace(smaller, id=staged.batch.id)
        self.on_event(Event("planned", batch, snapshot=observed.snapshot, ledger=observed.ledger))
        return self.stage(observed, batch)

    def check(self, staged: StagedBatch) -> Commit:
        """Check that the reports cover the batch and that its topics are the planned ones, and return the commit.

        Raises:
            StagingFailed: offsets are missing, or not accounted for.
            DeadLettersExceeded: the pipeline would exceed its limit of dead letters.
            SourceIdentityChanged: a topic was recreated while it was read.
        """
        batch, snapshot, reports = staged.batch, staged.snapshot, staged.reports
        self._batch = batch
        parts = batch_tables(self.pipeline, batch)
        plain = [KeyRule.of(part) is None for part in parts.parts]
        records = collect(batch, reports)
        tables = table_writes(batch, reports, parts, staged.columns, plain, fans_out(self.pipeline))
        check_dead_letters(self.pipeline, staged.ledger, records, reports)
        check_still_there(self.topics, staged.ledger, batch)
        self.on_event(Event("staged", batch, reports=tuple(reports)))
        failpoint("collect.all")
        seconds, tasks, lookups = time.monotonic() - staged.began, task_seconds(batch, reports), lookup_versions(reports)
        return Commit(
            id=batch.id,
            pipeline=batch.pipeline,
            changes=self.delivery.changes(batch),
            kind=self.delivery.kind,
            steps=batch.steps,
            tables=tables,
            records=records,
            dead_letters=distinct(r.dead_letters for r in reports),
            ends={s: (snapshot.partitions[s].log_start, snapshot.partitions[s].high) for s in snapshot.partitions},
            metadata=dagster_metadata.metadata(batch, records, tables, snapshot, seconds, lookups, tasks),
            run_id=self.run_id,
            version=self.version,
            started_ms=staged.started_ms,
            seconds=seconds,
            task_seconds=tasks,
            multi_topic=self.pipeline.source.multi_topic,
            by_field=batch.routes is not None,
            registered=self.seen.uid,
        )

    def commit(self, commit: Commit, staged: StagedBatch, last: bool = True) -> Committed:
        """Commit everything at once, while the next batch is prefetched; rejected records become dead letters, if configured.

        Raises:
            KpipeError: as `Destination.commit`.
        """
        batch = staged.batch
        left = sum(lag(staged.ledger, staged.snapshot).values()) - sum(len(step.range) for step in batch.steps)
        self._turn = (staged.ledger.seq if self._turn is None else self._turn) + 1
        if not last and left > 0 and not self.isolation.busy:
            self.prefetch.start(staged, partial(self._next_batch, self.sizes.limits()))
        try:
            committed = self.destination.commit(commit)
        except SchemaConflict as error:
            self.prefetch.drop()
            if (again := set_aside(self.pipeline, self.stager, staged, error, self.on_event)) is None:
                raise
        else:
            self.delivery.landed(batch)
            self.isolation.landed(batch)
            self._all_read = left <= 0
            return replace(committed, batch=batch)
        return self.commit(self.check(again), again, last)

    def publish(self, committed: Committed) -> Committed:
        """Report the commit that was read back, and store its position in this home."""
        failpoint("publish.before")
        age = committed.seq if committed.age is None else committed.age
        self.seen.note(self.seen.uid or self.destination.ledger()[0], max(age, self.seen.seq))
        self.on_event(Event("committed", committed.batch, committed))
        return committed
