"""Translate a requested position into lane changes, partition by partition.

Forward: the offsets in between become skipped, so that a backfill can read them later. Back to where no later offset has
been read, or where the rows were cleared: reading restarts there, in order. Back over skipped offsets: they are read
together with new ones, exactly once. Back over offsets that have been read, or adopted from another loader: only on
explicit demand, as rows are duplicated; the ledger records it. Each of them, also to where a partition is, accepts a log that
was cut (kpipe/ledger/tail.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kpipe.errors import InvalidStatement
from kpipe.ledger import transitions
from kpipe.ledger.ledger import ADOPTED, LOST, SKIPPED, Lane, LaneChange, Ledger, Step
from kpipe.offsets import Range, RangeSet
from kpipe.topics import Part, PartitionId, TopicSnapshot, chosen, parts

__all__ = ["Decision", "backfills", "forget", "no_partition", "set_offsets"]


#: Changes of one partition, their description, and the ranges to be read again.
_Item = tuple[tuple[LaneChange, ...], str, tuple[Step, ...]]


@dataclass(frozen=True)
class Decision:
    """One ledger-only commit.

    Attributes:
        kind: `jump`, `rewind`, `backfill`, `reread`, `retire` or `accept_log`, as in `kpipe_commits`.
        changes: lane changes.
        note: description of the decision.
        steps: for `reread`: the ranges that had been read, for the history.
    """

    kind: str
    changes: tuple[LaneChange, ...]
    note: str
    steps: tuple[Step, ...] = ()


def set_offsets(
    ledger: Ledger, snapshot: TopicSnapshot, targets: Mapping[PartitionId, int], reread: bool = False
) -> tuple[Decision, ...]:
    """Move partitions to these offsets; other partitions stay where they are.

    Args:
        ledger: the committed ledger.
        snapshot: the broker offsets.
        targets: next offset of each partition.
        reread: whether offsets that have been read may be read again.

    Returns:
        Commits to make, at most one of each kind; none if every partition is at its offset already.

    Raises:
        InvalidStatement: an offset does not exist, or is before offsets that have been read.
    """
    found: dict[str, list[_Item]] = {}
    for source, to in sorted(targets.items()):
        state, live = snapshot.partitions[source], ledger.live(source)
        if not state.log_start <= to <= state.high:
            raise InvalidStatement(
                f"{source} has no offset {to}: expected {state.log_start} to {state.high}",
                f"use an offset from {state.log_start} to {state.high}",
            )
        at = _head(ledger, source)
        if at is None:
            continue
        item: _Item = ((), "", ())
        if to == at:
            pass
        elif to > at:
            item = _ahead(ledger, source, live, to)
            found.setdefault("jump", []).append(item)
        elif not any(item.end > to for item in (*_read(ledger, source).ranges, *ledger.unread(source, LOST).ranges)):
            item = _again(ledger, source, to)
            found.setdefault("rewind", []).append(item)
        elif reread:
            item = _again(ledger, source, to)
            found.setdefault("reread", []).append(item)
        else:
            item = _back(ledger, source, Range(to, at))
            found.setdefault("backfill", []).append(item)
        if accepted := transitions.accept_log(ledger, source, {change.key for change in item[0]}):
            found.setdefault("accept_log", []).append((accepted, f"{source} at {at}", ()))
    return tuple(
        Decision(
            kind,
            tuple(change for changes, _, _ in items for change in changes),
            f"{kind}: {', '.join(words for _, words, _ in items)}",
            tuple(step for _, _, steps in items for step in steps),
        )
        for kind, items in found.items()
        if any(changes for changes, _, _ in items)
    )


def _head(ledger: Ledger, source: PartitionId) -> int | None:
    """Return the next offset of a partition, or the end of a bounded one of which nothing is left to read."""
    live, lanes = ledger.live(source), ledger.of(source)
    if not lanes:
        return None
    return lanes[-1].end if live is None or (live.finished and live != lanes[-1]) else live.next


def _read(ledger: Ledger, source: PartitionId) -> RangeSet:
    """Return the offsets that have been read, by the pipeline or by the loader that it was adopted from."""
    return RangeSet.of([*ledger.committed(source).ranges, *ledger.unread(source, ADOPTED).ranges])


def _ahead(ledger: Ledger, source: PartitionId, live: Lane | None, to: int) -> _Item:
    if live is None or not live.open:
        ends = ledger.of(source)[-1].end
        raise InvalidStatement(
            f"{source}: a bounded pipeline (source.end) ends at {ends}", "create a pipeline of another name to read further"
        )
    return transitions.jump(ledger, source, to), f"{source} from {live.next} to {to}", ()


def _back(ledger: Ledger, source: PartitionId, wanted: Range) -> _Item:
    done = [Range(max(x.start, wanted.start), x.end) for x in _read(ledger, source) if x.end > wanted.start]
    if done:
        raise InvalidStatement(
            f"{source}: offsets {' '.join(map(str, done))} have been read",
            "add REREAD to read them again, which duplicates their rows; BACKFILL PIPELINE reads skipped offsets only",
        )
    return transitions.backfill(ledger, source, wanted), f"{source} {wanted}", ()


def _again(ledger: Ledger, source: PartitionId, to: int) -> _Item:
    changes, done = transitions.reread(ledger, source, to)
    steps = tuple(Step(Lane(source, x.start, x.start, x.end), x.end, "reread") for x in done)
    words = f"{source} from {to}" + (f", {' '.join(map(str, done))} again" if done else "")
    if taken := [Range(max(x.start, to), x.end) for x in ledger.unread(source, ADOPTED) if x.end > to]:
        words += f" (rows of the loader before, at {' '.join(map(str, taken))}, stay unless the table was truncated)"
    return changes, words, steps


def forget(
    ledger: Ledger, snapshot: TopicSnapshot, partitions: Collection[Part] | None, reread: bool = False
) -> tuple[Decision, ...]:
    """Stop waiting for partitions that no longer exist; with `reread`, restart existing ones at their log start.

    Args:
        ledger: the committed ledger.
        snapshot: the broker offsets.
        partitions: their names; None: all that no longer exist.
        reread: whether an existing partition is to be read again from its log start.

    Raises:
        InvalidStatement: a partition exists, or is not in the ledger.
    """
    known = [source for source in ledger.sources() if snapshot.means(source.topic.name)]
    gone = [source for source in known if source not in snapshot.partitions]
    wanted = gone if partitions is None else [source for source in known if chosen(source, partitions)]
    unknown = [name for name in partitions or () if not any(chosen(source, [name]) for source in wanted)]
    if unknown:
        raise InvalidStatement(
            f"pipeline {ledger.pipeline}: no partition {unknown[0]} in the ledger", "SELECT * FROM kpipe_cursors"
        )
    present = {source: snapshot.partitions[source].log_start for source in wanted if source in snapshot.partitions}
    if present and not reread:
        raise InvalidStatement(
            f"{next(iter(present))} exists: DROP PARTITION would read it again from its start",
            "add REREAD to do so, which duplicates its rows; SET OFFSETS LATEST skips its unread offsets",
        )
    decisions = list(set_offsets(ledger, snapshot, present, reread=True)) if present else []
    changes = [(source, transitions.retire(ledger, source)) for source in wanted if source not in present]
    words = ", ".join(str(source) for source, found in changes if found)
    if words:
        decisions.append(Decision("retire", tuple(c for _, found in changes for c in found), f"retire: {words}"))
    return tuple(decisions)


def no_partition(name: Part, snapshot: TopicSnapshot) -> InvalidStatement:
    """Return the error of a partition that does not exist."""
    present = parts(snapshot.partitions, isinstance(name, str))
    return InvalidStatement(
        f"partition {name} does not exist", f"use partitions {present[0]} to {present[-1]}" if present else ""
    )


def backfills(
    ledger: Ledger, snapshot: TopicSnapshot, partition: Part | None = None, wanted: Range | None = None
) -> tuple[tuple[Decision, ...], int]:
    """Plan to read skipped offsets, in a range or all of them, as far as the log still contains them.

    Returns:
        The commit, if there is anything to read, and the number of skipped offsets in the range that the log no
        longer contains.

    Raises:
        InvalidStatement: the partition does not exist.
    """
    found = [source for source in snapshot.partitions if partition is None or chosen(source, [partition])]
    if partition is not None and not found:
        raise no_partition(partition, snapshot)
    changes: list[LaneChange] = []
    words: list[str] = []
    gone = 0
    for source in sorted(found):
        state = snapshot.partitions[source]
        inside = wanted or Range(0, max(state.high, 1))
        for skipped in ledger.unread(source, SKIPPED):
            start, end = max(skipped.start, inside.start), min(skipped.end, inside.end)
            if start >= end:
                continue
            gone += max(0, min(end, state.log_start) - start)
            if end > state.log_start:
                words.append(f"{source} {Range(max(start, state.log_start), end)}")
        there = Range(min(max(inside.start, state.log_start), inside.end), inside.end)
        changes += transitions.backfill(ledger, source, there)
    return (Decision("backfill", tuple(changes), f"backfill: {', '.join(words)}"),) if changes else (), gone
