"""`delivery: at_most_once`: the ledger moves first, in a commit of its own, and the rows follow in another.

The first commit, a claim, makes the offsets of a batch a `lost` lane, behind which reading goes on. The second one turns that
lane into one that has been read, together with the rows. So each of the two is as true as any commit: as long as the rows are not
there, and for ever if the run is killed, the ledger says that they are lost; no later run reads them again.

A batch that fails without being killed gives its claim back: the same compare-and-swap decides whether it landed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kpipe.batch.batch import Batch
from kpipe.errors import KpipeError
from kpipe.ledger.ledger import LOST, READ, Lane, LaneChange, Ledger, Step
from kpipe.run_events import Event
from kpipe.topics import PartitionId

__all__ = ["Claim", "Claims", "claim"]


class Claims:
    """The claims of one run, of one batch at a time.

    Args:
        used: whether batches are claimed; otherwise nothing here does anything.
        in_order: whether rows may not land behind those of later offsets (kpipe/verification/commit_order.py).
        begun: the offset at which a partition was begun, where a lane must go on to start (kpipe/planning/start_offsets.py).
        commit: makes a ledger-only commit, given its kind, its changes and a note.
        tell: called with every event.
    """

    def __init__(
        self,
        used: bool,
        in_order: bool,
        begun: Callable[[PartitionId], int | None],
        commit: Callable[[str, Sequence[LaneChange], str], None],
        tell: Callable[[Event], None],
    ) -> None:
        self.used, self._in_order, self._begun, self._commit, self._tell = used, in_order, begun, commit, tell
        self._open: Claim | None = None

    def take(self, ledger: Ledger, batch: Batch) -> Batch:
        """The batch to go on with. From here on nobody else reads its offsets, whatever becomes of it.

        Raises:
            KpipeError: the claim could not be committed.
        """
        if not self.used:
            return batch
        self._open = claim(ledger, batch, self._in_order, self._begun)
        self._commit("claim", self._open.changes, f"claim: {self._open.words}")
        return self._open.batch

    def landing(self, batch: Batch) -> tuple[LaneChange, ...]:
        """Lane changes of the commit that has the rows."""
        return tuple(step.change for step in batch.steps) if self._open is None else self._open.landing

    def landed(self) -> None:
        """The rows are there."""
        self._open = None

    def give_back(self) -> None:
        """The batch failed: unless it landed after all, its offsets are to be read.

        Where that cannot be had (the destination is away, or another run has gone on), they stay lost. That is told and
        not raised: the error that made the batch fail is on its way.
        """
        open, self._open = self._open, None
        if open is None:
            return
        try:
            self._commit("release", open.release, f"release: {open.words}")
        except KpipeError as error:
            self._tell(Event("decided", text=f"{open.words}: the claim is not given back, the ledger says what is lost: {error}"))


@dataclass(frozen=True)
class Claim:
    """A batch whose offsets are claimed before they are read.

    Attributes:
        batch: the batch, its steps standing in lanes of their own.
        changes: of the first commit.
        landing: of the second one, which has the rows.
        release: what undoes the first one, where the second has not landed.
    """

    batch: Batch
    changes: tuple[LaneChange, ...]
    landing: tuple[LaneChange, ...]
    release: tuple[LaneChange, ...]

    @property
    def words(self) -> str:
        """The ranges, for people."""
        return ", ".join(f"{step.source} {step.range}" for step in self.batch.steps)


def claim(
    ledger: Ledger, batch: Batch, in_order: bool = False, begun: Callable[[PartitionId], int | None] = lambda _: None
) -> Claim:
    """What claims the offsets of a batch that was planned from this ledger.

    Lanes that earlier batches have left, finished and side by side, become one on the way: their number does not grow.

    Args:
        ledger: what is committed.
        batch: the batch.
        in_order: the rows land only while no other run has claimed the offsets behind them; otherwise they stay lost.
        begun: the offset of a partition at which a lane must go on to start.
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
    """Lanes that have been read without a hole up to where this one stands, ascending; itself if it has read anything.

    None of them lies before `begun` and goes on behind it.
    """
    found = [lane] if lane.start < lane.next else []
    at = lane.start
    for other in reversed(ledger.of(lane.source)):
        if at == begun:
            break
        if other.start < at and other.kind == READ and other.next == other.end == at:
            found.insert(0, other)
            at = other.start
    return found


def _folded(lanes: Sequence[Lane], end: int) -> list[LaneChange]:
    """These lanes as one that ends there."""
    if not lanes:
        return []
    first = Lane(lanes[0].source, lanes[0].start, end, end)
    return [LaneChange(lanes[0], first)] * (lanes[0] != first) + [LaneChange(lane, None) for lane in lanes[1:]]
