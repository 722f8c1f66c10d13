"""Translate `source.start` and `source.end` into the first lanes of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.errors import InvalidPipeline, ReadFailed, ReadStalled
from kpipe.interfaces import Topics
from kpipe.ledger import transitions
from kpipe.ledger.ledger import READ, LaneChange, Ledger
from kpipe.topics import PartitionId, TopicSnapshot, chosen, parts

__all__ = ["beginnings", "check_bounds", "fixed_start", "moments"]


def beginnings(
    wanted: Source, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot, fresh: Sequence[PartitionId]
) -> list[LaneChange]:
    """Make the first lanes of partitions that are not in the ledger, and continue retired ones that are back.

    `start` applies when a topic's name is new to the ledger, `end` when its id is new. Later partitions begin at their
    log start; in a bounded pipeline they are beyond its end, and nothing of them is read. The same applies to topics that
    a pattern matches after other topics have begun.

    Args:
        wanted: the pipeline's `start` and `end`.
        topics: used to look up offsets by timestamp.
        ledger: the committed ledger.
        snapshot: the broker offsets.
        fresh: the partitions that are not read (`arrivals`).

    Raises:
        InvalidPipeline: `start` or `end` contain offsets or partitions that do not exist, or contradict each other.
        ReadFailed: the ledger would name more files than `max_files`.
    """
    _check_number(wanted, ledger, fresh)
    known = {s.topic for s in ledger.sources()}
    names = {topic.name for topic in known}
    late = {s.topic.name for s in fresh if snapshot.pattern and known} - names
    first = [s for s in fresh if s.topic.name not in names | late]
    starts = moments(wanted.start, topics, snapshot, first, "source.start", names)
    bounded = [s for s in fresh if s.topic not in known and s.topic.name not in late]
    ends = moments(wanted.end, topics, snapshot, bounded, "source.end", names)
    open_ended = [] if wanted.end is None else [str(s) for s in bounded if s not in ends]
    if open_ended:
        raise InvalidPipeline(f"source.end gives no offset for {', '.join(open_ended)}", "add one for every partition")
    changes: list[LaneChange] = []
    for item in fresh:
        if ledger.of(item):
            changes += transitions.resume(ledger, item)
            continue
        log_start = snapshot.partitions[item].log_start
        start = starts.get(item, log_start)
        end = None if wanted.end is None else ends.get(item, log_start)
        if snapshot.partitions[item].complete:
            end = snapshot.partitions[item].end
        if end is not None and start > end:
            raise InvalidPipeline(
                f"source.start: {item} would begin at {start}, beyond its end {end}", "set source.end to this start or later"
            )
        changes += transitions.begin(item, start, log_start, end)
    return changes


def _check_number(wanted: Source, ledger: Ledger, fresh: Sequence[PartitionId]) -> None:
    """Check the number of files that the ledger would name, also of those that were removed since: it names each forever."""
    most = wanted.files or wanted.lake
    number = len({*ledger.sources(), *fresh})
    if most is not None and number > most.max_files:
        field = f"source.{'lake' if wanted.lake is not None else 'files'}.max_files"
        raise ReadFailed(
            f"{wanted}: expected at most {most.max_files} files that this pipeline has ever read ({field}), found {number}",
            f"move new files elsewhere, and read them with a pipeline of another name; or raise {field} (15,000 at most), and"
            " max.message.bytes of the ledger's topic (into.ledger), whose records grow with it",
        )


def check_bounds(wanted: Source, ledger: Ledger, snapshot: TopicSnapshot) -> None:
    """Compare `start` and `end` with the bounds of the first run; the definition may have been edited since.

    Bounds apply at the first run only. With a changed bound, the pipeline would finish without reading the new range, or
    never finish. Only offsets are compared, not `latest` or a timestamp, which are resolved at the first plan. The end is
    that of the last lane, of whatever kind: skipping, losing or claiming offsets splits lanes but moves no end. A valid
    start is the start of a lane that was read, lost or tried (`begun`).

    Raises:
        InvalidPipeline: they differ.
    """
    ends = wanted.end if isinstance(wanted.end, dict) else {}
    for source in sorted(snapshot.partitions):
        lanes = ledger.of(source)
        if not lanes or snapshot.appearing:  # files have no bounds
            continue
        last = lanes[-1].end
        if (last is None) != (wanted.end is None):
            there, here, hint = ("none", "one", "remove it") if last is None else (str(last), "none", "restore it")
            raise InvalidPipeline(
                f"source.end: {source}: the end is fixed at the first plan: expected {there}, found {here}",
                f"{hint}, or create a pipeline of another name",
            )
        end = next((at for name, at in ends.items() if chosen(source, [name])), last)
        if end != last and end is not None:
            head = max((lane.next for lane in lanes if lane.kind == READ), default=0)
            read = f"has been read up to {head}, beyond" if head > end else f"ends at {last} in the ledger, not at"
            raise InvalidPipeline(
                f"source.end: {source} {read} {end}; the end is fixed at the first plan",
                f"set it to {last}, or create a pipeline of another name",
            )
        start, begun = fixed_start(wanted, source), ledger.begun(source)
        if start is not None and start not in begun and not _recreated(ledger, source):
            at = min(begun, default=lanes[0].start)
            raise InvalidPipeline(
                f"source.start: {source} was begun at {at}, not at {start}; the start is fixed at the first run",
                f"set it to {at}, or create a pipeline of another name",
            )


def fixed_start(wanted: Source, source: PartitionId) -> int | None:
    """Return the start offset of a partition in a bounded pipeline; None if `source.start` has no number for it."""
    starts = wanted.start if isinstance(wanted.start, dict) and wanted.end is not None else {}
    return next((at for name, at in starts.items() if chosen(source, [name])), None)


def _recreated(ledger: Ledger, source: PartitionId) -> bool:
    """Return whether a topic of that name was read before under another id: `start` applied to that one."""
    return any(known.topic != source.topic and known.topic.name == source.topic.name for known in ledger.sources())


def moments(
    wanted: object,
    topics: Topics,
    snapshot: TopicSnapshot,
    sources: Sequence[PartitionId],
    name: str,
    begun: Collection[str] = (),
) -> Mapping[PartitionId, int]:
    """Return the partitions' offsets for `latest`, a timestamp, or numbers; an empty mapping for `earliest`.

    Args:
        wanted: a `source.start` or `source.end`.
        topics: used to look up offsets by timestamp.
        snapshot: the broker offsets.
        sources: the partitions. Numbers of others are ignored: they applied when those partitions began.
        name: name of the field or clause, for messages.
        begun: names of topics that have begun, which the definition may no longer read.

    Raises:
        InvalidPipeline: offsets or partitions do not exist.
        ReadStalled: open transactions hide the end of a partition.
    """
    states = snapshot.partitions
    if not sources or wanted is None or wanted == "earliest":
        return {}
    if wanted == "latest":
        for moving in (source for source in sources if not states[source].settled):
            raise ReadStalled(
                f"{name}: {moving}: open transactions may still add records below {states[moving].high}",
                "run it again when they have ended; or write an offset instead of LATEST",
            )
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
                f"{name}: partition {part} is ambiguous, as there are several topics: {', '.join(names)}",
                f"write TOPIC:{part}",
            )
        source = next((s for s in snapshot.partitions if chosen(s, [part])), None)
        if source is None:
            if isinstance(part, str) and part.rpartition(":")[0] in begun:
                continue
            present = parts(snapshot.partitions, isinstance(part, str))
            raise InvalidPipeline(
                f"{name}: partition {part} does not exist",
                f"use partitions {present[0]} to {present[-1]}",
            )
        if source not in sources:
            continue
        state = states[source]
        if not state.log_start <= offset <= state.high:
            raise InvalidPipeline(
                f"{name}: {source} has no offset {offset}: expected {state.log_start} to {state.high}",
                f"use an offset from {state.log_start} to {state.high}",
            )
        named[source] = offset
    return named
