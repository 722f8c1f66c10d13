"""`delivery: at_most_once`: commit the ledger first, then the rows in another commit.

The first commit, a claim, turns the offsets of a batch into a `lost` lane; reading continues after it. The second commit
turns that lane into a `read` one, together with the rows. So the ledger is correct after each of them: until the rows are
committed, it records their offsets as lost. If the run is killed, this is final, and no later run reads them again.

A batch that fails without being killed releases its claim: the compare-and-swap shows whether it was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kpipe.batch.batch import Batch
from kpipe.errors import KpipeError, OutcomeUnknown
from kpipe.ingest.delivery import Delivery
from kpipe.ledger.ledger import LOST, READ, Lane, LaneChange, Ledger, Step
from kpipe.ledger.tail import Tail
from kpipe.planning.reconcile import Survey
from kpipe.run_events import Event
from kpipe.topics import PartitionId

__all__ = ["AtMostOnce", "Claim", "claim"]


class AtMostOnce(Delivery):
    """Claim the offsets of a batch before they are read, one batch at a time.

    Args:
        survey: commits the claims.
        in_order: whether rows must not be committed after those of later offsets (kpipe/verification/commit_order.py).
        begun: returns the start offset of a partition that must stay the start of a lane (kpipe/planning/start_offsets.py).
    """

    def __init__(self, survey: Survey, in_order: bool, begun: Callable[[PartitionId], int | None]) -> None:
        self._survey, self._in_order, self._begun = survey, in_order, begun
        self._open: Claim | None = None

    def take(self, ledger: Ledger, batch: Batch) -> Batch:
        """Commit the claim, and return the batch in its own lanes. No other run reads its offsets afterwards.

        Raises:
            KpipeError: the claim could not be committed.
        """
        taken = self._open = claim(ledger, batch, self._in_order, self._begun)
        try:
            self._survey.commit_only("claim", taken.changes, f"claim: {taken.words}")
        except KpipeError as error:
            if not isinstance(error, OutcomeUnknown):
                self._open = None  # not committed: an equal claim in the ledger is another run's
            raise
        return taken.batch

    def changes(self, batch: Batch) -> tuple[LaneChange, ...]:
        """Return the lane changes of the commit with the rows: the claimed lanes become `read`."""
        if self._open is None:
            return super().changes(batch)
        tails = {(step.source, step.end): step.tail for step in batch.steps}
        return tuple(_with_tail(change, tails) for change in self._open.landing)

    def landed(self, batch: Batch) -> None:
        """Close the claim of a batch whose rows are committed."""
        del batch
        self._open = None

    def give_back(self) -> None:
        """Release the claim of a batch that failed: unless it was committed after all, its offsets can be read again.

        If the release fails (the destination is down, or another run has committed), the offsets stay lost. That is an event,
        not an error: the error of the batch is already being raised.
        """
        open, self._open = self._open, None
        if open is None:
            return
        try:
            self._survey.commit_only("release", open.release, f"release: {open.words}")
        except KpipeError as error:
            text = f"{open.words}: the claim could not be released, its offsets are recorded as lost: {error}"
            self._survey.on_event(Event("decided", text=text))


@dataclass(frozen=True)
class Claim:
    """A batch whose offsets are claimed before they are read.

    Attributes:
        batch: the batch, with a lane of its own for each step.
        changes: lane changes of the first commit.
        landing: lane changes of the second commit, which has the rows.
        release: lane changes that undo the first commit if the second one failed.
    """

    batch: Batch
    changes: tuple[LaneChange, ...]
    landing: tuple[LaneChange, ...]
    release: tuple[LaneChange, ...]

    @property
    def words(self) -> str:
        """Ranges of the batch, as text."""
        return ", ".join(f"{step.source} {step.range}" for step in self.batch.steps)


def claim(
    ledger: Ledger, batch: Batch, in_order: bool = False, begun: Callable[[PartitionId], int | None] = lambda _: None
) -> Claim:
    """Claim the offsets of a batch that was planned from this ledger.

    Finished, adjacent lanes of earlier batches are merged into one, so that the number of lanes does not grow.

    Args:
        ledger: the committed ledger.
        batch: the batch.
        in_order: whether the rows are committed only while no other run has claimed later offsets; otherwise they stay lost.
        begun: returns the start offset of a partition that must stay the start of a lane.
    """
    changes: list[LaneChange] = []
    steps: list[Step] = []
    landing: list[LaneChange] = []
    release: list[LaneChange] = []
    for step in batch.steps:
        lane, start, end = step.lane, step.range.start, step.range.end
        taken = Lane(lane.source, start, start, end, LOST)
        rest = Lane(lane.source, end, end, lane.end) if lane.end is None or end < lane.end else None
        before = _before(ledger, lane, begun(lane.source))
        changes += _folded(before, start)
        changes.append(LaneChange(lane if lane.start == start else None, taken))
        again = Lane(lane.source, start, start, lane.end)
        release.append(LaneChange(taken, again))
        if rest is not None:
            changes.append(LaneChange(None, rest))
            release.append(LaneChange(rest, None))
        if rest is not None and in_order:
            landing += [LaneChange(taken, Lane(lane.source, start, end, lane.end)), LaneChange(rest, None)]
        else:
            landing.append(LaneChange(taken, Lane(lane.source, start, end, end)))
        steps.append(replace(step, lane=again))
    return Claim(replace(batch, steps=tuple(steps)), tuple(changes), tuple(landing), tuple(release))


def _before(ledger: Ledger, lane: Lane, begun: int | None) -> list[Lane]:
    """Return the finished lanes without gaps before this one, in ascending order, with this one if any of it was read.

    None of them contains `begun` after its start.
    """
    found = [lane] if lane.start < lane.next else []
    at = lane.start
    for other in reversed(ledger.of(lane.source)):
        if at == begun:
            break
        if other.tail is not None and other.tail.state:
            break  # `kpipe verify` reports a log that was cut
        if other.start < at and other.kind == READ and other.next == other.end == at:
            found.insert(0, other)
            at = other.start
    return found


def _folded(lanes: Sequence[Lane], end: int) -> list[LaneChange]:
    """Merge these lanes into one with that end."""
    if not lanes:
        return []
    first = Lane(lanes[0].source, lanes[0].start, end, end, tail=lanes[-1].tail)
    return [LaneChange(lanes[0], first)] * (lanes[0] != first) + [LaneChange(lane, None) for lane in lanes[1:]]


def _with_tail(change: LaneChange, tails: Mapping[tuple[PartitionId, int], Tail | None]) -> LaneChange:
    """Return the change with the fingerprint of the records before the lane's next offset, which are read now."""
    become = change.become
    if become is None or (become.source, become.next) not in tails:
        return change
    return replace(change, become=replace(become, tail=tails[become.source, become.next]))
