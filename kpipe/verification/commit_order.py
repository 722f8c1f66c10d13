"""Where the order of commits decides what a destination holds: refuse to commit older offsets behind newer ones.

An append is the same in any order, and an upsert compares the offset of the row that is there. A delete leaves no row to compare
with: a record that is read after the tombstone of its key comes back. Readers of a topic with keys, and receivers of a webhook,
take what comes last. So the rule is about the ledger and not about the
statement that was typed: no lane of such a pipeline waits to be read below offsets that have been read.

Where rows have an offset to compare with, they name their partition by its number, and their topic by its name at most. Of two
sources of that number (a topic that was recreated, or replaced by another one) both may have read an offset, and the row does not
name its source. So no lane waits below offsets that its source reads and such another one has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kpipe.batch.batch import Commit
from kpipe.batch.conflicts import applied
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NotAvailable
from kpipe.ledger.ledger import READ, LaneChange, Ledger
from kpipe.offsets import Range, RangeSet, union
from kpipe.topics import PartitionId

if TYPE_CHECKING:
    from kpipe.verification.recount import Entry

__all__ = ["check_change", "check_may_go_back", "check_order", "is_ordered", "reappeared", "why_in_order"]


def why_in_order(pipeline: Pipeline) -> str:
    """Return why older offsets must not be committed behind newer ones; empty where they may be."""
    into = pipeline.into
    if into.on_null == "delete":
        return "into.on_null: delete: a deleted row would come back"
    if into.type == "webhook":
        return "into.type: webhook: older records would be sent behind newer ones of their key"
    if into.type == "kafka" and (into.key or into.format == "raw" or "key" in pipeline.coordinates):
        return "records of the topic have keys: older values would stand behind newer ones, and readers keep the last"
    return ""


def is_ordered(pipeline: Pipeline) -> bool:
    """Return whether it counts which of two offsets is committed first, or whose they are: decisions are checked then."""
    return bool(why_in_order(pipeline)) or _compares(pipeline)


def check_may_go_back(pipeline: Pipeline, where: str = "") -> None:
    """Refuse to read older offsets behind newer ones where the destination keeps what is committed last.

    Args:
        pipeline: the definition.
        where: the offsets, for the message.

    Raises:
        NotAvailable: the definition needs Kafka's order.
    """
    why = why_in_order(pipeline)
    if why:
        raise NotAvailable(
            f"pipeline {pipeline.name}: {where or 'offsets'} cannot be read behind later offsets of the same partition: {why}",
            f"read everything from there on again, in order: ALTER PIPELINE {pipeline.name} SET OFFSETS ... REREAD",
        )


def check_order(pipeline: Pipeline, ledger: Ledger, sources: Iterable[PartitionId]) -> None:
    """Refuse to plan while a lane waits below offsets that have been read; the definition may be newer than the lane.

    Args:
        pipeline: the definition.
        ledger: what is committed.
        sources: the partitions that can be read.

    Raises:
        NotAvailable: the definition needs Kafka's order. Nothing was read.
    """
    if why_in_order(pipeline):
        _check(pipeline, {source: list(ledger.waiting_below(source)) for source in sources})
    elif _compares(pipeline):
        _check_told_apart(pipeline, {source: _mixed(pipeline, ledger, source) for source in sources})


def check_change(pipeline: Pipeline, before: Ledger, changes: Sequence[LaneChange]) -> None:
    """Refuse a decision after which offsets wait to be read below others that have been read.

    Args:
        pipeline: the definition.
        before: the ledger that the changes expect.
        changes: of lanes.

    Raises:
        NotAvailable: the definition needs Kafka's order. Nothing was changed.
        Fenced: the ledger has moved.
    """
    if not changes or not is_ordered(pipeline):
        return
    in_order = bool(why_in_order(pipeline))
    after, found = applied(before, Commit("", pipeline.name, tuple(changes))), {}
    for source in sorted({change.key[0] for change in changes}):
        known, waits = (
            ledger.waiting_below(source) if in_order else _mixed(pipeline, ledger, source) for ledger in (before, after)
        )
        found[source] = [gap for item in waits for gap in known.missing(item)]
    (_check if in_order else _check_told_apart)(pipeline, found)


def _check(pipeline: Pipeline, found: Mapping[PartitionId, Iterable[Range]]) -> None:
    if words := _sources(found):
        check_may_go_back(pipeline, words)


def _check_told_apart(pipeline: Pipeline, found: Mapping[PartitionId, Iterable[Range]]) -> None:
    if words := _sources(found):
        raise NotAvailable(
            f"pipeline {pipeline.name}: {words} cannot be read behind later offsets of the same partition: another topic, or the"
            " same one before it was recreated, has left rows with the same partition number and offsets: rows that are newer"
            " cannot be told from those",
            f"read everything from there on again, in order: ALTER PIPELINE {pipeline.name} SET OFFSETS ... REREAD",
        )


def _sources(found: Mapping[PartitionId, Iterable[Range]]) -> str:
    return ", ".join(f"{source} {item}" for source in sorted(found) for item in found[source])


def _compares(pipeline: Pipeline) -> bool:
    """Whether a write in some table gives way to a row of a later offset; an expression takes both, `ignore` what was first."""
    repeats, into = pipeline.errors.duplicate_key != "fail", pipeline.into
    tables = [(into.key, into.on_conflict, into.update), *((item.key, item.on_conflict, item.update) for item in pipeline.also)]
    return any(
        (repeats or key is not None) if on_conflict == "error" else on_conflict != "ignore" and not update
        for key, on_conflict, update in tables
    )


def _mixed(pipeline: Pipeline, ledger: Ledger, source: PartitionId) -> RangeSet:
    """Ranges that wait to be read below offsets that the source reads, and that another one has read which rows name alike."""
    read = [lane for lane in ledger.of(source) if lane.kind == READ]
    waiting = [lane for lane in read if not lane.finished and lane.end is not None]
    if not waiting:
        return RangeSet()
    named = "topic" in pipeline.coordinates
    alike = [
        other
        for other in ledger.sources()
        if other != source and other.partition == source.partition and (not named or other.topic.name == source.topic.name)
    ]
    taken = union(item for other in alike for item in ledger.committed(other))
    shared = [lane.start for lane in read if any(x.end > lane.start and (lane.end is None or x.start < lane.end) for x in taken)]
    return RangeSet.of(Range(x.next, x.end) for x in waiting if x.end is not None and shared and x.start < shared[-1])


def reappeared(source: PartitionId, entries: Sequence[Entry]) -> list[str]:
    """Return what a history cannot prove: rows that were inserted behind the tombstones of higher offsets.

    Args:
        source: the partition.
        entries: its committed ranges, in the order of their commits.
    """
    deleting: list[Range] = []
    highest = 0  # of `deleting`; a history is mostly ascending, and may have millions of ranges
    found: list[tuple[Entry, list[Range]]] = []
    for entry in entries:
        if entry.reread:
            deleting = _less(deleting, entry.range)
            found = [(late, left) for late, above in found if (left := _less(above, entry.range))]
            continue
        counts = entry.counts
        if highest > entry.range.end and counts.rows > counts.updated + counts.ignored:
            above = [item for item in deleting if item.end > entry.range.end]
            found += [(entry, above)] * bool(above)
        if counts.deletes:
            deleting.append(entry.range)
            highest = max(highest, entry.range.end)
    return [
        f"{source} {late.range}: batch {late.batch} has inserted rows behind the tombstones of {_words(above)}:"
        f" deleted rows may be there again; SET OFFSETS ... REREAD from {late.range.start} reads them in order"
        for late, above in found
    ]


def _words(ranges: Sequence[Range]) -> str:
    return " ".join(map(str, union(ranges)))


def _less(ranges: Sequence[Range], gone: Range) -> list[Range]:
    return list(union(ranges).without(gone))
