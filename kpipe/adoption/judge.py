"""Judge positions of another loader against the brokers, and against a second source of positions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kpipe.adoption.positions import Positions
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LaneChange
from kpipe.offsets import Range
from kpipe.terminal import plain
from kpipe.topics import PartitionId, PartitionState, TopicSnapshot

__all__ = ["Adoption", "Difference", "Start", "compare", "differences", "judge", "origin_of", "positions_of"]

_LISTED = 20
_ARROW = " -> "  # between the origin and the positions, in the note of a commit
_POSITION = re.compile(r"(?:^|, )([A-Za-z0-9._-]+)/([0-9]+) at ([0-9]+)(?=[,;]|$)")


@dataclass(frozen=True)
class Start:
    """First offset of a partition, compared with the brokers.

    Attributes:
        source: the partition.
        offset: first offset to read. With `expired` it is below the log start.
        state: offsets of the brokers.
        named: whether the source names the partition; otherwise it begins at the log start.
        expired: offsets that were deleted from Kafka before anyone read them.
    """

    source: PartitionId
    offset: int
    state: PartitionState
    named: bool = True

    @property
    def expired(self) -> Range:
        """Offsets from the position up to the log start; empty if the log contains the position."""
        return Range(self.offset, max(self.offset, self.state.log_start))

    @property
    def lag(self) -> int:
        """Offsets to read, up to the high watermark."""
        return max(0, self.state.high - max(self.offset, self.state.log_start))

    @property
    def changes(self) -> tuple[LaneChange, ...]:
        """First lanes of the partition."""
        if not self.named:
            return transitions.begin(self.source, self.offset, self.state.log_start)
        return transitions.adopt(self.source, self.offset, self.state.log_start)


@dataclass(frozen=True)
class Adoption:
    """Positions to begin at, and whether they may be used.

    Attributes:
        origin: see `Positions`.
        starts: by partition, in order.
        notes: facts for the operator.
        problems: reasons not to begin there; empty: the positions can be used.
    """

    origin: str
    starts: Sequence[Start] = ()
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()

    @property
    def changes(self) -> tuple[LaneChange, ...]:
        """All lanes, for one commit."""
        return tuple(change for start in self.starts for change in start.changes)

    @property
    def note(self) -> str:
        """Text of the commit; `origin_of` and `positions_of` are the inverse."""
        return f"adopt: {self.origin}{_ARROW}{', '.join(f'{start.source} at {start.offset}' for start in self.starts)}"


def origin_of(note: str) -> str:
    """Return the origin in a commit's note; empty if it is of another kind."""
    words, arrow, _ = note.partition(_ARROW)
    return words.removeprefix("adopt: ") if arrow and words.startswith("adopt: ") else ""


def positions_of(note: str) -> list[tuple[str, int, int]]:
    """Return topic, partition and position of each partition in a commit's note; empty if it is of another kind."""
    if not origin_of(note):
        return []
    return [(topic, int(number), int(at)) for topic, number, at in _POSITION.findall(note.rpartition(_ARROW)[2])]


def judge(positions: Positions, snapshot: TopicSnapshot, accept_loss: bool = False) -> Adoption:
    """Check positions against the brokers.

    Args:
        positions: of the other loader.
        snapshot: of the brokers, read after the positions.
        accept_loss: whether offsets that Kafka has deleted unread may be recorded as lost.
    """
    notes, problems, starts = list(positions.notes), list(positions.problems), []
    topics = {topic.name for topic in snapshot.topics()}
    others = sorted({topic for topic, _ in positions.offsets if topic not in topics})
    mine = {key: at for key, at in positions.offsets.items() if key[0] in topics}
    if others:
        notes.append(f"positions of other topics are left out: {plain(', '.join(others[:_LISTED]))}")
    if not mine:
        problems.append(f"{positions.origin}: no position of {', '.join(sorted(topics)) or 'any topic'}")
    present = {(source.topic.name, source.partition) for source in snapshot.partitions}
    for topic, number in sorted(mine.keys() - present):
        problems.append(
            f"{topic}/{number}: the topic has no such partition, but a position {mine[topic, number]}:"
            " the topic was recreated, or these are the brokers of another cluster"
        )
    for source, state in sorted(snapshot.partitions.items(), key=lambda item: (item[0].topic.name, item[0].partition)):
        at = mine.get((source.topic.name, source.partition))
        start = Start(source, state.log_start if at is None else at, state, at is not None)
        starts.append(start)
        if at is None:
            notes.append(f"{source}: not in {positions.origin}: it begins at the log start, {state.log_start}")
            continue
        trouble = _outside(start, accept_loss)
        (problems if trouble else notes).extend([trouble] if trouble else _remarks(start))
    return Adoption(positions.origin, tuple(starts), tuple(notes), tuple(problems))


def _outside(start: Start, accept_loss: bool) -> str:
    """Return why the log does not contain the position; empty if it does, or if the loss is accepted."""
    state = start.state
    if start.offset > state.high:
        return (
            f"{start.source}: position {start.offset} is beyond the end of the log, {state.high}: the topic was recreated or"
            " truncated, or these are the brokers of another cluster"
        )
    if len(start.expired) and not accept_loss:
        return (
            f"{start.source}: offsets {start.expired} were deleted from Kafka before the position was taken over;"
            " to record them as lost: --on-data-loss record"
        )
    return ""


def _remarks(start: Start) -> list[str]:
    if len(start.expired):
        return [f"{start.source}: offsets {start.expired} were deleted from Kafka unread: they will be recorded as lost"]
    if start.offset > start.state.end:
        return [
            f"{start.source}: position {start.offset} is beyond the last stable offset, {start.state.end}: the loader reads"
            " uncommitted records; if the open transaction is aborted, its rows remain in the table"
        ]
    return []


@dataclass(frozen=True)
class Difference:
    """A partition for which two sources give different positions.

    Attributes:
        source: the partition.
        range: offsets between the two.
        ahead: whether the adopted position is the higher one: its records would be in no table.
        readable: whether the log contains the range, with all of its transactions decided.
    """

    source: PartitionId
    range: Range
    ahead: bool
    readable: bool


def compare(adoption: Adoption, other: Positions) -> tuple[Difference, ...]:
    """Return where the positions to adopt and those of another source differ.

    A partition that the other source does not name counts as unread from the log start on.
    """
    found = []
    for start in adoption.starts:
        at = other.offsets.get((start.source.topic.name, start.source.partition), min(start.state.log_start, start.offset))
        low, high = sorted((start.offset, at))
        if low < high:
            readable = start.state.log_start <= low and high <= start.state.end
            found.append(Difference(start.source, Range(low, high), at < start.offset, readable))
    return tuple(found)


def differences(
    other: Positions, found: Sequence[Difference], records: Mapping[Difference, tuple[int, bool]]
) -> tuple[list[str], list[str]]:
    """Return notes and problems about differences.

    Args:
        other: the second source.
        found: the differences.
        records: committed records in each readable range, and whether all of them were counted.
    """
    notes, problems = [], []
    for item in found:
        count, complete = records.get(item, (0, True))
        where = f"{item.source} {item.range}"
        if item.readable and not count:
            notes.append(f"{where}: without committed records, so both positions are the same for a reader")
            continue
        if not item.readable:
            what = "the log does not contain the offsets, or a transaction is open: nothing proves that they are the same"
        else:
            what = f"{'' if complete else 'at least '}{count:,} committed record{'s' if count > 1 else ''}"
        risk = f"not in {other.origin}, would be lost" if item.ahead else f"in {other.origin}, would be duplicated"
        problems.append(f"{where}: {risk}: {what}")
    return notes, problems
