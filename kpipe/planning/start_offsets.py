"""Where reading begins: `start` and `end` of a pipeline, turned into the first lanes of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Topics
from kpipe.ledger import transitions
from kpipe.ledger.ledger import READ, LaneChange, Ledger
from kpipe.topics import PartitionId, TopicSnapshot, chosen, parts

__all__ = ["beginnings", "check_bounds", "fixed_start", "moments"]


def beginnings(
    wanted: Source, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot, fresh: Sequence[PartitionId]
) -> list[LaneChange]:
    """First lanes of partitions that the ledger does not know.

    `start` counts at the first sight of a topic's name, `end` at the first sight of its id. Partitions that appear
    later begin at their log start; in a bounded pipeline they lie beyond its end, and nothing of them is read. So do
    topics that a pattern finds once others have begun.

    Args:
        wanted: `start` and `end` as the pipeline has them.
        topics: asked for offsets at a timestamp.
        ledger: what is committed.
        snapshot: what the brokers hold.
        fresh: the partitions.

    Raises:
        InvalidPipeline: `start` or `end` name offsets or partitions that do not exist, or do not fit together.
    """
    known = {s.topic for s in ledger.sources()}
    names = {topic.name for topic in known}
    late = {s.topic.name for s in fresh if snapshot.pattern and known} - names
    first = [s for s in fresh if s.topic.name not in names | late]
    starts = moments(wanted.start, topics, snapshot, first, "source.start")
    bounded = [s for s in fresh if s.topic not in known and s.topic.name not in late]
    ends = moments(wanted.end, topics, snapshot, bounded, "source.end")
    open_ended = [] if wanted.end is None else [str(s) for s in bounded if s not in ends]
    if open_ended:
        raise InvalidPipeline(f"source.end gives no offset for {', '.join(open_ended)}", "write one for every partition")
    changes: list[LaneChange] = []
    for item in fresh:
        log_start = snapshot.partitions[item].log_start
        start = starts.get(item, log_start)
        end = None if wanted.end is None else ends.get(item, log_start)
        if end is not None and start > end:
            raise InvalidPipeline(
                f"source.start: {item} would begin at {start}, beyond its end {end}", "source.end must not lie before it"
            )
        changes += transitions.begin(item, start, log_start, end)
    return changes


def check_bounds(wanted: Source, ledger: Ledger, snapshot: TopicSnapshot) -> None:
    """Compare `start` and `end` with the bounds that the partitions were begun with; the definition may have been edited since.

    A bound counts once, so another one would change nothing: the pipeline would be finished without having read what it says,
    or never be. Offsets are compared; `latest` and a time are what they were at the first plan. The end is where the last lane
    ends, of whatever kind: skipping, losing or claiming offsets divides lanes and moves no end. At the start a lane begins,
    which was never only left out (`begun`).

    Raises:
        InvalidPipeline: they differ.
    """
    ends = wanted.end if isinstance(wanted.end, dict) else {}
    for source in sorted(snapshot.partitions):
        lanes = ledger.of(source)
        if not lanes:
            continue
        last = lanes[-1].end
        if (last is None) != (wanted.end is None):
            there, here, hint = (
                ("no end", "one", "leave it out") if last is None else (f"the end {last}", "none", "write it again")
            )
            raise InvalidPipeline(
                f"source.end: {source} has {there} in the ledger, which is fixed at the first plan; the definition has {here}",
                f"{hint}, or make a pipeline of another name",
            )
        end = next((at for name, at in ends.items() if chosen(source, [name])), last)
        if end != last and end is not None:
            head = max((lane.next for lane in lanes if lane.kind == READ), default=0)
            read = f"has been read up to {head}, beyond" if head > end else f"ends at {last} in the ledger, not at"
            raise InvalidPipeline(
                f"source.end: {source} {read} {end}; an end is fixed at the first plan",
                f"write {last}, or make a pipeline of another name",
            )
        start, begun = fixed_start(wanted, source), ledger.begun(source)
        if start is not None and start not in begun and not _recreated(ledger, source):
            at = min(begun, default=lanes[0].start)
            raise InvalidPipeline(
                f"source.start: {source} was begun at {at}, not at {start}; a start counts at the first run",
                f"write {at}, or make a pipeline of another name",
            )


def fixed_start(wanted: Source, source: PartitionId) -> int | None:
    """Return the offset at which a bounded pipeline begins a partition; None where it gives none by number."""
    starts = wanted.start if isinstance(wanted.start, dict) and wanted.end is not None else {}
    return next((at for name, at in starts.items() if chosen(source, [name])), None)


def _recreated(ledger: Ledger, source: PartitionId) -> bool:
    """Whether a topic of that name was read before under another id: `start` counted there."""
    return any(known.topic != source.topic and known.topic.name == source.topic.name for known in ledger.sources())


def moments(
    wanted: object, topics: Topics, snapshot: TopicSnapshot, sources: Sequence[PartitionId], name: str
) -> Mapping[PartitionId, int]:
    """Offsets of partitions at `latest`, at a time, or as given by number; none for `earliest`.

    Args:
        wanted: a `source.start` or `source.end`.
        topics: asked for offsets at a timestamp.
        snapshot: what the brokers hold.
        sources: the partitions.
        name: of the field or clause, for messages.

    Raises:
        InvalidPipeline: offsets or partitions that do not exist.
    """
    states = snapshot.partitions
    if not sources or wanted is None or wanted == "earliest":
        return {}
    if wanted == "latest":
        return {s: states[s].end for s in sources}
    if isinstance(wanted, Timestamp):
        found = topics.offsets_at(wanted, snapshot)
        return {s: max(found[s], states[s].log_start) for s in sources}
    assert isinstance(wanted, dict)
    names = sorted({s.topic.name for s in snapshot.partitions})
    named: dict[PartitionId, int] = {}
    for part, offset in wanted.items():
        if len(names) > 1 and isinstance(part, int):
            raise InvalidPipeline(
                f"{name} gives an offset of partition {part}, but there are several topics: {', '.join(names)}",
                f"write TOPIC:{part}",
            )
        source = next((s for s in snapshot.partitions if chosen(s, [part])), None)
        if source is None:
            there = parts(snapshot.partitions, isinstance(part, str))
            lacks = "is not there" if isinstance(part, str) else f"{names[0]} does not have"
            raise InvalidPipeline(
                f"{name} names partition {part}, which {lacks}",
                f"partitions are {there[0]} to {there[-1]}",
            )
        state = states[source]
        if not state.log_start <= offset <= state.high:
            raise InvalidPipeline(
                f"{name}: {source} has no offset {offset}",
                f"it holds [{state.log_start}, {state.high}); write a number from {state.log_start} to {state.high}",
            )
        named[source] = offset
    return {source: offset for source, offset in named.items() if source in sources}
