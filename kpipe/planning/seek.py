"""Where reading goes on when somebody says so: what a wish means for the ledger, partition by partition. Pure.

Forward, what is left out is kept as skipped, so that a backfill can read it later. Back to where nothing behind has been read,
or where its rows were cleared, reading begins anew there, in order. Back over what was skipped, it is read
beside what is new, exactly once. Back over what was read, only on an explicit demand: the rows come twice, and the ledger
says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kpipe.errors import InvalidStatement
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, SKIPPED, Lane, LaneChange, Ledger, Step
from kpipe.offsets import Range
from kpipe.topics import Part, PartitionId, TopicSnapshot, chosen, parts

__all__ = ["Decision", "backfills", "forget", "no_partition", "set_offsets"]


#: Changes of one partition, in words, and what is to be read again.
_Item = tuple[tuple[LaneChange, ...], str, tuple[Step, ...]]


@dataclass(frozen=True)
class Decision:
    """One ledger-only commit.

    Attributes:
        kind: `jump`, `rewind`, `backfill`, `reread` or `retire`, as in `kpipe_commits`.
        changes: of lanes.
        note: what it does, in words.
        steps: of `reread`: what had been read, for the history.
    """

    kind: str
    changes: tuple[LaneChange, ...]
    note: str
    steps: tuple[Step, ...] = ()


def set_offsets(
    ledger: Ledger, snapshot: TopicSnapshot, targets: Mapping[PartitionId, int], reread: bool = False
) -> tuple[Decision, ...]:
    """Reading goes on at these offsets; other partitions stay where they are.

    Args:
        ledger: what is committed; it knows the partitions.
        snapshot: what the brokers hold.
        targets: next offset to read.
        reread: whether offsets that have been read may be read again.

    Returns:
        Commits to make, at most one of each kind; none where everything stands there already.

    Raises:
        InvalidStatement: an offset does not exist, or lies before offsets that have been read.
    """
    found: dict[str, list[_Item]] = {}
    for source, to in sorted(targets.items()):
        state, live = snapshot.partitions[source], ledger.live(source)
        if not state.log_start <= to <= state.high:
            raise InvalidStatement(
                f"{source} has no offset {to}: it holds [{state.log_start}, {state.high})",
                f"write a number from {state.log_start} to {state.high}",
            )
        at = _head(ledger, source)
        if at is None or to == at:
            continue
        if to > at:
            found.setdefault("jump", []).append(_ahead(ledger, source, live, to))
        elif not any(item.end > to for item in (*ledger.committed(source), *ledger.unread(source, LOST))):
            found.setdefault("rewind", []).append(_again(ledger, source, to))
        elif reread:
            found.setdefault("reread", []).append(_again(ledger, source, to))
        else:
            found.setdefault("backfill", []).append(_back(ledger, source, Range(to, at)))
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
    """Where reading goes on; the end, where a bounded partition has no lane to read, as its rows were cleared."""
    live, lanes = ledger.live(source), ledger.of(source)
    return live.next if live is not None else lanes[-1].end if lanes else None


def _ahead(ledger: Ledger, source: PartitionId, live: Lane | None, to: int) -> _Item:
    if live is None or not live.open:
        ends = ledger.of(source)[-1].end
        raise InvalidStatement(
            f"{source}: a bounded pipeline (source.end) ends at {ends}", "make a pipeline of another name that reads on"
        )
    return transitions.jump(ledger, source, to), f"{source} from {live.next} to {to}", ()


def _back(ledger: Ledger, source: PartitionId, wanted: Range) -> _Item:
    done = [Range(max(x.start, wanted.start), x.end) for x in ledger.committed(source) if x.end > wanted.start]
    if done:
        raise InvalidStatement(
            f"{source}: offsets {' '.join(map(str, done))} have been read",
            "to read them again, so that their rows come twice, add REREAD; BACKFILL PIPELINE reads only what was skipped",
        )
    return transitions.backfill(ledger, source, wanted), f"{source} {wanted}", ()


def _again(ledger: Ledger, source: PartitionId, to: int) -> _Item:
    changes, done = transitions.reread(ledger, source, to)
    steps = tuple(Step(Lane(source, x.start, x.start, x.end), x.end, "reread") for x in done)
    return changes, f"{source} from {to}" + (f", {' '.join(map(str, done))} again" if done else ""), steps


def forget(
    ledger: Ledger, snapshot: TopicSnapshot, partitions: Collection[Part] | None, reread: bool = False
) -> tuple[Decision, ...]:
    """Partitions that are there no more are not waited for any longer; with `reread`, present ones begin anew.

    Args:
        ledger: what is committed.
        snapshot: what the brokers hold.
        partitions: their names; None: all that are gone.
        reread: whether a partition that is there is to be read again from its log start.

    Raises:
        InvalidStatement: a partition is there, or unknown.
    """
    known = [source for source in ledger.sources() if snapshot.means(source.topic.name)]
    gone = [source for source in known if source not in snapshot.partitions]
    wanted = gone if partitions is None else [source for source in known if chosen(source, partitions)]
    unknown = [name for name in partitions or () if not any(chosen(source, [name]) for source in wanted)]
    if unknown:
        raise InvalidStatement(f"pipeline {ledger.pipeline} knows no partition {unknown[0]}", "SELECT * FROM kpipe_cursors")
    present = {source: snapshot.partitions[source].log_start for source in wanted if source in snapshot.partitions}
    if present and not reread:
        raise InvalidStatement(
            f"{next(iter(present))} is there: to forget it is to read it again from its start",
            "to do that, so that its rows come twice, add REREAD; SET OFFSETS LATEST leaves out what waits",
        )
    decisions = list(set_offsets(ledger, snapshot, present, reread=True)) if present else []
    changes = [(source, transitions.retire(ledger, source)) for source in wanted if source not in present]
    words = ", ".join(str(source) for source, found in changes if found)
    if words:
        decisions.append(Decision("retire", tuple(c for _, found in changes for c in found), f"retire: {words}"))
    return tuple(decisions)


def no_partition(name: Part, snapshot: TopicSnapshot) -> InvalidStatement:
    """The error of a partition that is not there."""
    there = parts(snapshot.partitions, isinstance(name, str))
    return InvalidStatement(f"there is no partition {name}", f"there are {there[0]} to {there[-1]}" if there else "")


def backfills(
    ledger: Ledger, snapshot: TopicSnapshot, partition: Part | None = None, wanted: Range | None = None
) -> tuple[tuple[Decision, ...], int]:
    """What was skipped, inside of a range or anywhere, is to be read; only what the log still holds.

    Returns:
        The commit, if there is anything to read, and how many skipped offsets in that range the log holds no more.

    Raises:
        InvalidStatement: there is no such partition.
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
