"""Operator overrides, last-seen ledger position, and run events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kpipe.batch.batch import Batch, Commit, Committed, RangeReport
from kpipe.errors import KpipeError
from kpipe.ledger.ledger import LaneChange, Ledger, Step
from kpipe.topics import TopicSnapshot

__all__ = ["Decisions", "Event", "Seen", "ledger_only"]


@dataclass(frozen=True)
class Decisions:
    """Operator overrides for one run; each is recorded in the ledger when it is applied.

    Attributes:
        on_data_loss: `fail`, or `record` deleted offsets as lost and continue; None: the pipeline's setting.
        on_new_topic: `fail`, or `begin` to read a recreated topic (or another cluster's) from its start.
        on_older_ledger: `fail`, or `accept` the current ledger.
        who: the operator's name, for the note in the ledger.
        on_unfinished_batch: `finish` a batch that a destination began to send, or `skip` it: its offsets become skipped.
    """

    on_data_loss: str | None = None
    on_new_topic: str = "fail"
    on_older_ledger: str = "fail"
    who: str = ""
    on_unfinished_batch: str = "finish"


@dataclass
class Seen:
    """Last commit that this home has seen, stored outside the destination to detect an older ledger.

    Attributes:
        uid: id of the pipeline's registration; "" before the first commit.
        seq: highest number of a commit seen (`Ledger.age`).
        save: called after every change.
        forget: called when an older or another ledger was accepted; the home forgets ledgers that replaced it.
    """

    uid: str = ""
    seq: int = 0
    save: Callable[[Seen], None] = lambda _: None
    forget: Callable[[], None] = lambda: None

    def is_followed_by(self, uid: str, ledger: Ledger) -> bool:
        """Return whether this is the ledger that was seen, at the same commit or later; True if none was seen yet."""
        return not self.uid or (uid == self.uid and ledger.age >= self.seq)

    def note(self, uid: str, seq: int) -> None:
        """Store the position that was read back."""
        if (uid, seq) != (self.uid, self.seq):
            self.uid, self.seq = uid, seq
            self.save(self)

    def accept(self, uid: str, seq: int) -> None:
        """Store the position of a ledger that an operator has accepted."""
        self.forget()
        self.note(uid, seq)


@dataclass(frozen=True)
class Event:
    """An event of the loop, for logs and Dagster.

    Attributes:
        kind: `planned`, `staged`, `committed`, `restaged`, `resumed`, `retry`, `narrowed`, `idle`, `decided`.
        batch: the batch, if the event concerns one.
        committed: the commit that was read back.
        text: one sentence; it may quote a record. For `idle`, the reason.
        detail: for `idle`, what the pipeline waits for.
        snapshot: the broker offsets of the plan.
        ledger: the ledger before the batch.
        error: the error of a batch that is retried or narrowed.
        reports: reports of the tasks, when a batch is staged.
        occurred: wall clock, seconds since 1970 UTC. A prefetched batch is reported later than it was planned.
    """

    kind: str
    batch: Batch | None = None
    committed: Committed | None = None
    text: str = ""
    detail: str = ""
    snapshot: TopicSnapshot | None = None
    ledger: Ledger | None = None
    error: KpipeError | None = None
    reports: tuple[RangeReport, ...] = ()
    occurred: float = field(default_factory=time.time, compare=False)


def ledger_only(
    pipeline: str,
    kind: str,
    changes: Sequence[LaneChange],
    note: str,
    steps: Sequence[Step],
    run_id: str,
    version: str,
    batch: str = "",
    registered: str = "",
) -> Commit:
    """Make a commit without rows, under a fresh id or that of the batch that it concerns."""
    return Commit(
        id=batch or uuid.uuid4().hex,
        pipeline=pipeline,
        changes=tuple(changes),
        kind=kind,
        steps=tuple(steps),
        run_id=run_id,
        version=version,
        started_ms=int(time.time() * 1000),
        note=note,
        registered=registered,
    )
