"""Reconcile the ledger with the broker offsets, and record decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, LedgerMismatch, LogTruncated, OffsetsBeyondEnd, OffsetsLost, TopicGone
from kpipe.failpoints import failpoint
from kpipe.interfaces import Destination, Topics
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, READ, LaneChange, Ledger, Step
from kpipe.planning.planner import arrivals, check_source, disappeared, losses
from kpipe.planning.start_offsets import beginnings, check_bounds
from kpipe.run_events import Decisions, Event, Seen, ledger_only
from kpipe.topics import PartitionId, TopicSnapshot, part
from kpipe.verification.commit_order import check_change, is_ordered

#: Partitions that a note lists; a folder may have thousands of new files.
_MOST_LISTED = 100


def mismatch(name: str, seen: Seen, uid: str, ledger: Ledger, where: str) -> LedgerMismatch:
    """Return the error of a ledger that does not follow the last one of a home.

    Args:
        name: the pipeline's name.
        seen: last commit that the home has seen.
        uid: registration id that the destination has; empty: none.
        ledger: that the destination has.
        where: describes the destination.
    """
    if not uid:
        what = f"pipeline {name}: the ledger in {where} is missing; this home has seen {seen.seq} commits there"
    elif uid != seen.uid:
        what = f"pipeline {name}: the ledger in {where} is not the ledger that this home has seen"
    else:
        what = f"pipeline {name}: the ledger in {where} is too old: expected commit {seen.seq}, found {ledger.age}"
    return LedgerMismatch(
        f"{what}; the destination was replaced or restored",
        "restore the destination; or undo the change of `into` (the ledger of a lake is in its table: another table needs"
        f" another pipeline name); or continue from this ledger: kpipe run {name} --on-older-ledger accept",
    )


@dataclass
class Survey:
    """Reads both sides of a pipeline, and writes decisions, never rows.

    Attributes:
        pipeline: the definition.
        topics, destination: see kpipe/interfaces.py.
        decisions: operator overrides.
        seen: last commit that this home has seen.
        run_id, version: stored with every decision.
        `on_event`: callback for every event.
        forgetting: whether topics may be missing (kpipe/planning/planner.py).
        foresee: called before new partitions are begun, with the ledger after that decision.
    """

    pipeline: Pipeline
    topics: Topics
    destination: Destination
    decisions: Decisions = field(default_factory=Decisions)
    seen: Seen = field(default_factory=Seen)
    run_id: str = ""
    version: str = ""
    on_event: Callable[[Event], None] = lambda _: None
    forgetting: bool = False
    foresee: Callable[[Ledger, TopicSnapshot], None] = lambda *_: None

    def look(self) -> tuple[TopicSnapshot, Ledger]:
        """Read ledger and broker offsets, and reconcile them."""
        return self.reconcile(*self.observe())

    def observe(self) -> tuple[TopicSnapshot, Ledger]:
        """Read the ledger, then the topic ids and offsets from the brokers.

        The ledger comes first: otherwise its offsets could be beyond the end of the log, as of an earlier moment.

        Raises:
            LedgerMismatch: the ledger is missing, replaced or older than before.
        """
        ledger = self.read_ledger()
        failpoint("plan.ledger")
        snapshot = self.topics.snapshot()
        failpoint("plan.offsets")
        return snapshot, ledger

    def reconcile(self, snapshot: TopicSnapshot, ledger: Ledger) -> tuple[TopicSnapshot, Ledger]:
        """Check that ledger and brokers match, and record the decisions that make them match.

        Another run may commit, or retention may delete, between the two reads of `observe`. An offset outside the
        log, or a missing topic, needs an operator only if a second read of both finds it again.

        Raises:
            NeedsOperator: they do not match, and no decision allows it.
        """
        try:
            return snapshot, self.settle(ledger, snapshot)
        except (OffsetsLost, OffsetsBeyondEnd, TopicGone):
            snapshot, ledger = self.observe()
            return snapshot, self.settle(ledger, snapshot)

    def read_ledger(self) -> Ledger:
        """Read the ledger, and check that it is the ledger that this home has seen before, at the same commit or later.

        Raises:
            LedgerMismatch: the ledger is missing, replaced or older than before.
        """
        uid, ledger = self.destination.ledger()
        if self.seen.is_followed_by(uid, ledger):
            self.seen.note(uid, ledger.age)
            return ledger
        if self.decisions.on_older_ledger == "accept":
            if uid:
                note = f"accepted at {ledger.age}, {self.seen.seq} had been seen; {self.decisions.who}"
                ledger = self.decide("accept_ledger", (), note, accepted=uid)
                uid = self.seen.uid = self.destination.ledger()[0]
            self.seen.accept(uid, ledger.age)
            return ledger
        raise mismatch(self.pipeline.name, self.seen, uid, ledger, self.destination.describe())

    def settle(self, ledger: Ledger, snapshot: TopicSnapshot) -> Ledger:
        """Record the decisions that are allowed, and return the ledger with every existing partition.

        Raises:
            NeedsOperator: ledger and brokers do not match, and no decision allows it.
            InvalidPipeline: `start` or `end` contain offsets or partitions that do not exist, or differ from the first run's.
        """
        new_topic = self.decisions.on_new_topic == "begin"
        loss = self.decisions.on_data_loss or self.pipeline.source.on_data_loss
        if loss == "record":
            gone = losses(ledger, snapshot)
            changes = [c for s in gone for c in transitions.accept_loss(ledger, s, snapshot.partitions[s].log_start)]
            if changes:
                lanes = [c.become for c in changes if c.become is not None and c.become.kind == LOST]
                lost = ", ".join(f"{lane.source} [{lane.start}, {lane.end})" for lane in lanes)
                ledger = self.decide("loss", changes, f"lost: {lost}; {self.decisions.who or 'on_data_loss: record'}")
            if (removed := disappeared(ledger, snapshot)) and snapshot.appearing:
                changes = [change for source in removed for change in transitions.retire(ledger, source)]
                ledger = self.decide("retire", changes, f"removed: {_listed(map(str, removed))}; on_data_loss: record")
        if not new_topic:
            check_source(ledger, snapshot, self.forgetting)
        fresh = arrivals(ledger, snapshot)
        if fresh:
            changes = beginnings(self.pipeline.source, self.topics, ledger, snapshot, fresh)
            if isinstance(begun := ledger.apply(changes), Ledger):
                self.foresee(begun, snapshot)
            words = _listed(f"{c.become.source} at {c.become.next}" for c in changes if c.become and c.become.kind == READ)
            ledger = self.decide("begin", changes, f"begin: {words}" + (f"; {self.decisions.who}" if new_topic else ""))
        check_source(ledger, snapshot, self.forgetting)
        check_bounds(self.pipeline.source, ledger, snapshot)
        return ledger

    def give_up(self, begun: Commit) -> Ledger:
        """Record that a batch which a destination began to send will not be finished; its unread offsets become skipped.

        The decision has the id of the batch: the batch is settled with that commit, even if the run is killed afterwards.
        """
        ledger = self.read_ledger()
        steps = [replace(step, closed_by="given_up") for step in begun.steps]
        words = ", ".join(f"{step.source} {step.range}" for step in steps)
        note = f"give_up: batch {begun.id}: {words}; the receiver may have taken part of it; {self.decisions.who}"
        return self.decide("give_up", transitions.give_up(ledger, begun.steps), note, steps, begun.id)

    def note_failure(self, error: KpipeError) -> None:
        """Record that the log of partitions was cut, so that `kpipe verify` reports it, and name the statements that decide.

        Other errors leave nothing in the ledger. A failure to record it is an event: the error is already being raised.
        """
        if not isinstance(error, LogTruncated):
            return
        found = [(*item.record, item.before) for item in (error, *error.others) if item.record is not None]
        heads: dict[PartitionId, int] = {}
        try:
            ledger = self.read_ledger()
            changes = [change for item in found for change in transitions.mark_cut(ledger, *item)]
            heads = {source: offset for source, offset in ledger.positions().items() if source in {item[0] for item in found}}
            if changes:
                self.decide("cut", changes, f"cut: {'; '.join(item.what for item in (error, *error.others))}")
        except KpipeError as failed:
            self.on_event(Event("decided", text=f"that the log was cut could not be recorded: {failed}"))
        error.hint = self._cut_hint(heads)

    def _cut_hint(self, heads: Mapping[PartitionId, int]) -> str:
        several = self.pipeline.source.multi_topic
        now = json.dumps({str(part(source, several)): offset for source, offset in heads.items()})
        first = json.dumps(str(next((part(source, several) for source in heads), 0)))
        to = f"ALTER PIPELINE {self.pipeline.name} SET OFFSETS"
        return (
            f"compare table and topic; to also read the log as it is now from offset N: {to} '{{{first}: N}}' REREAD; to continue"
            f" without that: {to} '{now}'"
        )

    def decide(
        self,
        kind: str,
        changes: Sequence[LaneChange],
        note: str,
        steps: Sequence[Step] = (),
        batch: str = "",
        accepted: str = "",
    ) -> Ledger:
        """Commit a decision without rows, and read the ledger again.

        Args:
            kind: kind of the commit.
            changes: lane changes.
            note: description of the decision.
            steps: ranges to be read again, or of the abandoned batch.
            batch: id of the abandoned batch.
            accepted: registration id of the ledger that an operator accepts with this decision; empty: `seen.uid`.

        Raises:
            NotAvailable: older offsets would be read after newer ones, and the definition needs Kafka's order.
            LedgerMismatch: the ledger was replaced by another one.
        """
        note = note.rstrip("; ")
        if is_ordered(self.pipeline):
            check_change(self.pipeline, self.destination.ledger()[1], changes)
        self.commit_only(kind, changes, note, steps, batch, accepted)
        uid, ledger = self.destination.ledger()
        if (accepted or self.seen.uid or uid) != uid:
            raise mismatch(self.pipeline.name, self.seen, uid, ledger, self.destination.describe())
        self.seen.note(uid, max(ledger.age, self.seen.seq) if kind != "accept_ledger" else ledger.age)
        self.on_event(Event("decided", text=note, ledger=ledger))
        return ledger

    def commit_only(
        self,
        kind: str,
        changes: Sequence[LaneChange],
        note: str,
        steps: Sequence[Step] = (),
        batch: str = "",
        accepted: str = "",
    ) -> None:
        """Commit lane changes without any other check than the registration id: `accepted`, else `seen.uid`."""
        run, registered = (self.run_id, self.version), accepted or self.seen.uid
        self.destination.commit(ledger_only(self.pipeline.name, kind, changes, note, steps, *run, batch, registered))


def _listed(items: Iterable[str]) -> str:
    """Join texts for a note; of many, only the first and their number."""
    texts = list(items)
    more = f" and {len(texts) - _MOST_LISTED:,} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + more
