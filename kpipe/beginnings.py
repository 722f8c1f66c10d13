"""Where reading begins: `start` and `end` of a pipeline, turned into the first lanes of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe import moves
from kpipe.errors import InvalidPipeline
from kpipe.ledger import LaneChange, Ledger
from kpipe.pipeline import Source, Timestamp
from kpipe.ports import Topics
from kpipe.source import PartitionId, TopicSnapshot

__all__ = ["beginnings", "moments"]


def beginnings(
    wanted: Source, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot, fresh: Sequence[PartitionId]
) -> list[LaneChange]:
    """First lanes of partitions that the ledger does not know.

    `start` counts at the first sight of a topic's name, `end` at the first sight of its id. Partitions that appear
    later begin at their log start; in a bounded pipeline they lie beyond its end, and nothing of them is read.

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
    starts = moments(wanted.start, topics, snapshot, [s for s in fresh if s.topic.name not in names], "source.start")
    bounded = [s for s in fresh if s.topic not in known]
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
        changes += moves.begin(item, start, log_start, end)
    return changes


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
    several = sorted({s.topic.name for s in sources})
    if len(several) > 1:
        raise InvalidPipeline(
            f"{name} gives offsets by partition, but there are several topics: {', '.join(several)}",
            "write earliest, latest or a timestamp, or make a pipeline for each topic",
        )
    numbers = {s.partition: s for s in sources}
    for number, offset in wanted.items():
        if number not in numbers:
            raise InvalidPipeline(
                f"{name} names partition {number}, which {sources[0].topic} does not have",
                f"its partitions are 0 to {max(numbers)}",
            )
        state = states[numbers[number]]
        if not state.log_start <= offset <= state.high:
            raise InvalidPipeline(
                f"{name}: {numbers[number]} has no offset {offset}",
                f"it holds [{state.log_start}, {state.high}); write a number from {state.log_start} to {state.high}",
            )
    return {numbers[number]: offset for number, offset in wanted.items()}
