"""Reject commits of older offsets after newer ones for destinations that depend on the order of commits.

For appends, the order does not matter, and an upsert compares the offset of the existing row. A delete leaves no row to
compare with: a record that is read after the tombstone of its key would reappear. Readers of a compacted topic, and
receivers of a webhook, keep the last value. So the rule applies to the ledger, not to a statement: no lane of such
a pipeline may wait below offsets that have been read.

Rows with an offset identify their partition by number, and their topic by name at most. Two sources may share that number,
for example a topic that was recreated or replaced by another one. If both have read an offset, its row does not identify
the source. So no lane may wait below offsets of its source that such another source has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NotAvailable
from kpipe.ledger.ledger import READ, LaneChange, Ledger
from kpipe.offsets import Range, RangeSet, union
from kpipe.topics import PartitionId

if TYPE_CHECKING:
    from kpipe.verification.recount import Entry

__all__ = ["check_change", "check_may_go_back", "check_order", "is_ordered", "reappeared", "why_in_order"]


def why_in_order(pipeline: Pipeline) -> str:
    """Return the reason why older offsets must not be committed after newer ones; empty if they may be."""
    into = pipeline.into
    if into.on_null == "delete":
        return "into.on_null: delete: a deleted row would come back"
    if into.type == "webhook":
        return "into.type: webhook: older records would be sent behind newer ones of their key"
    if into.type == "kafka" and (into.key or into.format == "raw" or "key" in pipeline.coordinates):
        return "records of the topic have keys: older values would follow newer ones, and readers keep the last"
    return ""


def is_ordered(pipeline: Pipeline) -> bool:
    """Return whether a destination depends on the order or the source of offsets, so that decisions must be checked."""
    return bool(why_in_order(pipeline)) or _compares(pipeline)


def check_may_go_back(pipeline: Pipeline, where: str = "") -> None:
    """Refuse to read older offsets after newer ones if the destination keeps what is committed last.

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
        ledger: the committed ledger.
        sources: the partitions that can be read.

    Raises:
        NotAvailable: the definition needs Kafka's order. Nothing was read.
    """
    if why_in_order(pipeline):
        _check(pipeline, {source: list(ledger.waiting_below(source)) for source in sources})
    elif _compares(pipeline):
        _check_told_apart(pipeline, {source: _mixed(pipeline, ledger, source) for source in sources})


def check_change(pipeline: Pipeline, before: Ledger, changes: Sequence[LaneChange]) -> None:
    """Reject a decision that makes offsets wait below others that have been read.

    Args:
        pipeline: the definition.
        before: the ledger that the changes expect.
        changes: lane changes.

    Raises:
        NotAvailable: the definition needs Kafka's order. Nothing was changed.
        Fenced: the ledger has changed.
    """
    if not changes or not is_ordered(pipeline):
        return
    in_order = bool(why_in_order(pipeline))
    after, found = before.after(changes), {}
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
            " same one before it was recreated, has left rows with the same partition number and offsets, which cannot be"
            " distinguished from newer rows",
            f"read everything from there on again, in order: ALTER PIPELINE {pipeline.name} SET OFFSETS ... REREAD",
        )


def _sources(found: Mapping[PartitionId, Iterable[Range]]) -> str:
    return ", ".join(f"{source} {item}" for source in sorted(found) for item in found[source])


def _compares(pipeline: Pipeline) -> bool:
    """Return whether writes of some table depend on offset order; an expression uses both rows, `ignore` keeps the first."""
    repeats = pipeline.errors.duplicate_key != "fail"
    return any(
        (repeats or table.key is not None) if table.on_conflict == "error" else table.on_conflict != "ignore" and not table.update
        for table in pipeline.tables
    )


def _mixed(pipeline: Pipeline, ledger: Ledger, source: PartitionId) -> RangeSet:
    """Return ranges that wait below offsets of their source that another source with the same row coordinates has read."""
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
    """Return the problem of rows that were inserted after the tombstones of higher offsets: a history cannot exclude duplicates.

    Args:
        source: the partition.
        entries: its committed ranges, in the order of the commits.
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
    return list(union(ranges).without(gone).ranges)
