"""Lane changes without rows: begin, adopt, jump, accept a loss or a cut log, backfill, skip, reread, retire, resume.

Each function returns the lane changes of one decision. They are committed in a ledger-only commit, with the same
compare-and-swap as a batch: a decision is recorded completely or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kpipe.ledger.ledger import ADOPTED, LOST, READ, SKIPPED, Lane, LaneChange, Ledger, Step
from kpipe.ledger.tail import ACCEPTED, CUT, Tail
from kpipe.offsets import Range, RangeSet
from kpipe.topics import PartitionId

__all__ = [
    "accept_log", "accept_loss", "adopt", "backfill", "begin", "clear", "give_up", "jump", "mark_cut", "reread", "resume",
    "retire", "skip",
]  # fmt: skip


def begin(source: PartitionId, at: int, log_start: int, end: int | None = None) -> tuple[LaneChange, ...]:
    """Make the first lanes of a partition that is read from offset `at`.

    Offsets from the log start up to `at` become skipped, so that a backfill can read them later.

    Args:
        source: the partition.
        at: first offset to read.
        log_start: first offset that exists.
        end: exclusive end of a bounded pipeline; None: no end.
    """
    lanes = [Lane(source, at, at, None if end is None else max(at, end))]
    if log_start < at:
        lanes.insert(0, Lane(source, log_start, log_start, at, SKIPPED))
    return tuple(LaneChange(None, lane) for lane in lanes)


def adopt(source: PartitionId, at: int, log_start: int) -> tuple[LaneChange, ...]:
    """Make the first lanes of a partition that another loader has read up to offset `at`.

    All offsets below `at` become adopted, whether the log still contains them or not. Offsets from `at` up to the log start, if
    it is higher, were deleted unread: they become lost.

    Args:
        source: the partition.
        at: next offset of the other loader.
        log_start: first offset that exists.
    """
    start = max(at, log_start)
    lanes = [Lane(source, start, start)]
    if at < start:
        lanes.insert(0, Lane(source, at, at, start, LOST))
    if at > 0:
        lanes.insert(0, Lane(source, 0, 0, at, ADOPTED))
    return tuple(LaneChange(None, lane) for lane in lanes)


def jump(ledger: Ledger, source: PartitionId, to: int) -> tuple[LaneChange, ...]:
    """Continue the live lane at `to`, and mark the offsets up to there as skipped.

    Raises:
        ValueError: the live lane is missing, or `to` is before its next offset.
    """
    return _leave_behind(ledger, source, to, SKIPPED)


def accept_loss(ledger: Ledger, source: PartitionId, log_start: int) -> tuple[LaneChange, ...]:
    """Mark unread offsets of every lane below the log start as lost, and continue behind them."""
    changes: list[LaneChange] = []
    for lane in ledger.of(source):
        if lane.finished or lane.next >= log_start:
            continue
        if lane.open:
            changes += _leave_behind(ledger, source, log_start, LOST)
        else:
            assert lane.end is not None
            lost_end = min(lane.end, log_start)
            changes += _split(lane, lost_end, LOST)
            if lost_end < lane.end:
                changes.append(LaneChange(None, Lane(source, lost_end, lost_end, lane.end)))
    return tuple(changes)


def skip(lane: Lane, to: int) -> tuple[LaneChange, ...]:
    """Mark the unread offsets of a lane up to `to` as skipped and tried, and continue behind them."""
    rest = () if lane.end == to else (LaneChange(None, Lane(lane.source, to, to, lane.end)),)
    return (*_split(lane, to, SKIPPED, tried=True), *rest)


def give_up(ledger: Ledger, steps: Sequence[Step]) -> tuple[LaneChange, ...]:
    """Mark the ranges of a batch as skipped, except in lanes that have changed since the batch was planned."""
    waiting = (step for step in steps if ledger.lanes.get(step.lane.key) == step.lane)
    return tuple(change for step in waiting for change in skip(step.lane, step.end))


def clear(ledger: Ledger, source: PartitionId, gone: RangeSet) -> tuple[LaneChange, ...]:
    """Mark offsets as skipped that have been read and whose rows were deleted; other offsets stay as they are.

    They count as tried, so that the lanes still show where a bounded pipeline began. This does not decide about a log that
    was cut: the other offsets of the lane keep the mark, and those before its next offset the fingerprint.
    """
    changes: list[LaneChange] = []
    for lane in ledger.of(source):
        done = Range(lane.start, lane.next)
        taken = [Range(max(item.start, done.start), min(item.end, done.end)) for item in gone if item.overlaps(done)]
        if lane.kind != READ or not taken:
            continue
        pieces = [_skipped(source, item.start, item.end, tried=True) for item in taken]
        pieces += [_part(lane, left) for left in RangeSet.of(taken).missing(done)]
        if lane.next != lane.end:
            pieces.append(Lane(source, lane.next, lane.next, lane.end))
        made = {piece.start: piece for piece in pieces}
        changes.append(LaneChange(lane, made.pop(lane.start)))
        changes += [LaneChange(None, piece) for piece in made.values()]
    return tuple(changes)


def backfill(ledger: Ledger, source: PartitionId, wanted: Range) -> tuple[LaneChange, ...]:
    """Turn skipped ranges inside `wanted` into lanes to read; offsets that have been read or are being read stay as they are."""
    changes: list[LaneChange] = []
    for lane in ledger.of(source):
        if lane.kind != SKIPPED or lane.end is None:
            continue
        start, end = max(lane.start, wanted.start), min(lane.end, wanted.end)
        if start >= end:
            continue
        pieces = [Lane(source, start, start, end, READ)]
        if lane.start < start:
            pieces.insert(0, _skipped(source, lane.start, start, lane.tried))
        if end < lane.end:
            pieces.append(_skipped(source, end, lane.end, lane.tried))
        changes.append(LaneChange(lane, pieces[0]))
        changes += [LaneChange(None, piece) for piece in pieces[1:]]
    return tuple(changes)


def reread(ledger: Ledger, source: PartitionId, to: int) -> tuple[tuple[LaneChange, ...], tuple[Range, ...]]:
    """Reread everything from `to` on, also offsets that have been read: their rows will be duplicated.

    No other change lets an offset be read twice. The commit adds the ranges to the history, so that `kpipe verify`
    counts them. The lanes of a bounded partition are kept apart and reread from the lowest on: one of them shows
    where reading began.

    Returns:
        The changes, and the ranges from `to` on that had been read.
    """
    lanes = ledger.of(source)
    bounded = bool(lanes) and not any(lane.open for lane in lanes)
    changes: list[LaneChange] = []
    fresh: list[Lane] = []
    for lane in lanes:
        if lane.start < to and (lane.end is None or lane.end > to):
            changes.append(LaneChange(lane, _until(lane, to)))
            fresh.append(Lane(source, to, to, lane.end))
        elif lane.start >= to:
            fresh.append(Lane(source, lane.start, lane.start, lane.end))
    if not bounded:
        fresh = [Lane(source, to, to)]
    made = {lane.start: lane for lane in fresh}
    changes += [LaneChange(lane, made.pop(lane.start, None)) for lane in lanes if lane.start >= to]
    changes += [LaneChange(None, lane) for lane in made.values()]
    done = ledger.committed(source)
    again = tuple(Range(max(to, item.start), item.end) for item in done if item.end > to)
    return tuple(change for change in changes if change.expect != change.become), again


def retire(ledger: Ledger, source: PartitionId) -> tuple[LaneChange, ...]:
    """Stop reading the partition; its read offsets stay in the ledger, and where it continues if it comes back (`resume`).

    A bounded lane keeps its end, by the next lane or an empty one; the live lane leaves an empty skipped lane. A partition of
    which nothing was decided or read is new if it comes back.
    """
    lanes = ledger.of(source)
    if len(lanes) == 1 and lanes[0].open and lanes[0].next == lanes[0].start:
        return (LaneChange(lanes[0], None),)
    starts, changes = {lane.start for lane in lanes}, list[LaneChange]()
    for lane in lanes:
        if lane.finished:
            continue
        if not lane.open or lane.next > lane.start:
            changes.append(LaneChange(lane, lane.closed()))
        if lane.open:
            stop = Lane(source, lane.next, lane.next, lane.next, SKIPPED)
            changes.append(LaneChange(None if lane.next > lane.start else lane, stop))
        elif lane.end is not None and lane.end not in starts:
            changes.append(LaneChange(None, Lane(source, lane.end, lane.end, lane.end)))
    return tuple(changes)


def resume(ledger: Ledger, source: PartitionId) -> tuple[LaneChange, ...]:
    """Continue to read a retired partition that is back, where each of its lanes ended."""
    return tuple(LaneChange(ledger.lanes.get(lane.key), lane) for lane in ledger.retired(source))


def mark_cut(ledger: Ledger, source: PartitionId, offset: int, before: str) -> tuple[LaneChange, ...]:
    """Record that the log has another record at an offset than the one with that hash; marked lanes stay as they are."""
    known = (lane for lane in ledger.of(source) if lane.tail is not None and lane.tail.state not in (CUT, ACCEPTED))
    found = (lane for lane in known if lane.tail is not None and lane.tail.has(offset, before))
    return tuple(LaneChange(lane, replace(lane, tail=lane.tail and lane.tail.marked(CUT))) for lane in found)


def accept_log(ledger: Ledger, source: PartitionId, others: Collection[tuple[PartitionId, int]] = ()) -> tuple[LaneChange, ...]:
    """Continue a partition whose log was cut where its lanes are; finished lanes keep the mark, for `kpipe verify`.

    Args:
        ledger: the committed ledger.
        source: the partition.
        others: keys of lanes that another decision changes.
    """
    changes: list[LaneChange] = []
    for lane in ledger.of(source):
        if lane.tail is not None and lane.tail.state == CUT and lane.key not in others:
            changes.append(LaneChange(lane, lane.closed()))
            if not lane.finished:
                changes.append(LaneChange(None, Lane(source, lane.next, lane.next, lane.end)))
    return tuple(changes)


def _part(lane: Lane, left: Range) -> Lane:
    """Return the lane of a part of the offsets that a lane has read."""
    tail = lane.tail
    if left.end != lane.next:
        tail = Tail.made(left.end, state=tail.state) if tail is not None and tail.state in (CUT, ACCEPTED) else None
    return Lane(lane.source, left.start, left.end, left.end, tail=tail)


def _until(lane: Lane, to: int) -> Lane:
    """Return the lane up to an offset from which on everything is read again; it keeps the mark of a log that was cut."""
    if lane.next <= to:
        return replace(lane, end=to)
    marked = lane.tail is not None and lane.tail.state in (CUT, ACCEPTED)
    return replace(lane, next=to, end=to, tail=Tail.made(to, state=ACCEPTED) if marked else None)


def _leave_behind(ledger: Ledger, source: PartitionId, to: int, kind: str) -> tuple[LaneChange, ...]:
    lane = ledger.live(source)
    if lane is None or not lane.open or to < lane.next:
        msg = f"{source}: cannot go on at {to}: the live lane is {lane}"
        raise ValueError(msg)
    if to == lane.next:
        return ()
    return (*_split(lane, to, kind), LaneChange(None, Lane(source, to, to)))


def _skipped(source: PartitionId, start: int, end: int, tried: bool) -> Lane:
    return Lane(source, start, end if tried else start, end, SKIPPED)


def _split(lane: Lane, to: int, kind: str, tried: bool = False) -> tuple[LaneChange, ...]:
    """End the lane at its next offset, and make `[next, to)` a lane of that kind."""
    behind = Lane(lane.source, lane.next, to if tried else lane.next, to, kind)
    if lane.start == lane.next:
        return (LaneChange(lane, behind),)
    return (LaneChange(lane, lane.closed()), LaneChange(None, behind))
