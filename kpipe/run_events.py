"""What surrounds a run: what an operator decided, what this home remembers, what is told while it goes on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.ledger.ledger import LaneChange, Ledger, Step
from kpipe.topics import TopicSnapshot

__all__ = ["Decisions", "Event", "Seen", "ledger_only"]


@dataclass(frozen=True)
class Decisions:
    """What an operator decided for this run; each is recorded in the ledger when it is applied.

    Attributes:
        on_data_loss: `fail`, or `record` offsets that are gone as lost and go on; None: as the pipeline says.
        on_new_topic: `fail`, or `begin` to read a recreated topic (or another cluster's) from its start.
        on_older_ledger: `fail`, or `accept` the ledger as it is found.
        who: who decided, for the note in the ledger.
        on_unfinished_batch: `finish` a batch that a destination began to send, or `skip` it: its offsets become skipped.
    """

    on_data_loss: str | None = None
    on_new_topic: str = "fail"
    on_older_ledger: str = "fail"
    who: str = ""
    on_unfinished_batch: str = "finish"


@dataclass
class Seen:
    """What this home has already seen committed: a memory outside the destination, only to notice that it went back.

    Attributes:
        uid: id of the pipeline's registration; "" before the first commit.
        seq: highest sequence number seen.
        save: called after every change.
    """

    uid: str = ""
    seq: int = 0
    save: Callable[[Seen], None] = lambda _: None

    def note(self, uid: str, seq: int) -> None:
        """Remember what was just read back."""
        if (uid, seq) != (self.uid, self.seq):
            self.uid, self.seq = uid, seq
            self.save(self)


@dataclass(frozen=True)
class Event:
    """Something worth telling while the loop runs.

    Attributes:
        kind: `planned`, `staged`, `committed`, `restaged`, `resumed`, `retry`, `narrowed`, `idle`, `decided`.
        batch: the batch, where there is one.
        committed: what was committed.
        text: one sentence.
        snapshot: what the brokers held.
        ledger: what was committed before.
    """

    kind: str
    batch: Batch | None = None
    committed: Committed | None = None
    text: str = ""
    snapshot: TopicSnapshot | None = None
    ledger: Ledger | None = None


def ledger_only(
    pipeline: str,
    kind: str,
    changes: Sequence[LaneChange],
    note: str,
    steps: Sequence[Step],
    run_id: str,
    version: str,
    batch: str = "",
) -> Commit:
    """A commit that reads nothing, made now; under the id of the batch that it is about, where there is one."""
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
    )
