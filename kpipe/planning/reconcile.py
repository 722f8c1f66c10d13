"""What is committed and what the brokers hold, proven to fit together; and the decisions that make them fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import LedgerMismatch, OffsetsBeyondEnd, OffsetsLost, TopicGone
from kpipe.failpoints import reach
from kpipe.interfaces import Destination, Topics
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, READ, LaneChange, Ledger, Step
from kpipe.planning.planner import arrivals, check_source, losses
from kpipe.planning.start_offsets import beginnings, check_bounds
from kpipe.run_events import Decisions, Event, Seen, ledger_only
from kpipe.topics import TopicSnapshot
from kpipe.verification.commit_order import check_change, is_ordered


@dataclass
class Survey:
    """Looks at both sides of a pipeline; what it writes are decisions, never rows.

    Attributes:
        pipeline: the definition.
        topics, destination: the edges (kpipe/interfaces.py).
        decisions: what an operator decided.
        seen: memory of earlier commits.
        run_id, version: kept with every decision.
        tell: called with every event.
        forgetting: whether topics that are gone may be (kpipe/planning/planner.py).
    """

    pipeline: Pipeline
    topics: Topics
    destination: Destination
    decisions: Decisions = field(default_factory=Decisions)
    seen: Seen = field(default_factory=Seen)
    run_id: str = ""
    version: str = ""
    tell: Callable[[Event], None] = lambda _: None
    forgetting: bool = False

    def look(self) -> tuple[TopicSnapshot, Ledger]:
        """What the brokers hold and what is committed, proven to fit together.

        The two are read one after the other, and another run may commit, or retention delete, between them. The ledger
        comes first, so that its offsets are not beyond the end of the log only because the brokers were asked too
        early; an offset that seems to be outside of the log, or a topic that seems to be gone, is looked at twice before an
        operator is called.
        """
        try:
            return self.look_once()
        except (OffsetsLost, OffsetsBeyondEnd, TopicGone):
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
            "restore it; or undo an edit of `into` (the ledger of a lake is in its table: another table needs another pipeline"
            f" name); or go on from what it holds: kpipe run {name} --on-older-ledger accept",
        )

    def settle(self, ledger: Ledger, snapshot: TopicSnapshot) -> Ledger:
        """The ledger with every present partition in it, after decisions that are allowed were recorded.

        Raises:
            NeedsOperator: something does not fit and nobody decided.
            InvalidPipeline: `start` or `end` name offsets or partitions that do not exist, or others than were begun with.
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
        if not new_topic:
            check_source(ledger, snapshot, self.forgetting)
        fresh = arrivals(ledger, snapshot)
        if fresh:
            changes = beginnings(self.pipeline.source, self.topics, ledger, snapshot, fresh)
            words = ", ".join(f"{c.become.source} at {c.become.next}" for c in changes if c.become and c.become.kind == READ)
            ledger = self.decide("begin", changes, f"begin: {words}" + (f"; {self.decisions.who}" if new_topic else ""))
        check_source(ledger, snapshot, self.forgetting)
        check_bounds(self.pipeline.source, ledger, snapshot)
        return ledger

    def give_up(self, begun: Commit) -> Ledger:
        """Record that a batch which a destination began to send will not be finished; its unread offsets become skipped.

        The decision has the id of the batch. So the batch counts as settled from that commit on, whatever is killed then.
        """
        ledger = self.read_ledger()
        steps = [replace(step, closed_by="given_up") for step in begun.steps]
        words = ", ".join(f"{step.source} {step.range}" for step in steps)
        note = f"give_up: batch {begun.id}: {words}; the receiver may have taken part of it; {self.decisions.who}"
        return self.decide("give_up", transitions.give_up(ledger, begun.steps), note, steps, begun.id)

    def decide(self, kind: str, changes: Sequence[LaneChange], note: str, steps: Sequence[Step] = (), batch: str = "") -> Ledger:
        """Commit a decision that reads nothing, and read the ledger again.

        Args:
            kind: of the commit.
            changes: of lanes.
            note: what it does, in words.
            steps: ranges to be read again, or of the batch that is given up.
            batch: id of that batch.

        Raises:
            NotAvailable: it would have older offsets read behind newer ones, and the definition needs Kafka's order.
        """
        note = note.rstrip("; ")
        if is_ordered(self.pipeline):
            check_change(self.pipeline, self.destination.ledger()[1], changes)
        self.commit_only(kind, changes, note, steps, batch)
        uid, ledger = self.destination.ledger()
        self.seen.note(uid, max(ledger.seq, self.seen.seq) if kind != "accept_ledger" else ledger.seq)
        self.tell(Event("decided", text=note, ledger=ledger))
        return ledger

    def commit_only(
        self, kind: str, changes: Sequence[LaneChange], note: str, steps: Sequence[Step] = (), batch: str = ""
    ) -> None:
        """Commit that and nothing else."""
        self.destination.commit(ledger_only(self.pipeline.name, kind, changes, note, steps, self.run_id, self.version, batch))
