"""Choose the offsets that copies of a pipeline load: fixed ranges of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.errors import KpipeError
from kpipe.interfaces import Topics
from kpipe.offsets import Range
from kpipe.planning.start_offsets import moments
from kpipe.topics import Part, PartitionId, PartitionState, TopicSnapshot, chosen, part

__all__ = ["Window", "choose", "shares"]


@dataclass(frozen=True)
class Window:
    """Offsets to load.

    Attributes:
        ranges: by partition; every partition of the topics has one, which may be empty.
        multi_topic: whether partitions are named with their topic.
    """

    ranges: Mapping[PartitionId, Range]
    multi_topic: bool = False

    def __len__(self) -> int:
        return sum(map(len, self.ranges.values()))

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics, sorted."""
        return tuple(sorted({source.topic.name for source in self.ranges}))

    @property
    def longest(self) -> int:
        """Offsets of the longest range."""
        return max(map(len, self.ranges.values()), default=0)

    def named(self) -> dict[Part, Range]:
        """Return the ranges by the partitions' names, as definitions write them."""
        return {part(source, self.multi_topic): span for source, span in sorted(self.ranges.items())}

    def of_topic(self, topic: str) -> dict[int, Range]:
        """Return the ranges of a topic that are not empty, by number of the partition."""
        return {
            source.partition: span for source, span in sorted(self.ranges.items()) if source.topic.name == topic and len(span)
        }

    def changed(self, snapshot: TopicSnapshot) -> str:
        """Return why the topics no longer contain all of these offsets; empty if they do."""
        for source, span in sorted(self.ranges.items()):
            state = snapshot.partitions.get(source)
            if state is None:
                return f"{source}: the topic was deleted or recreated"
            if len(span) and state.log_start > span.start:
                return f"{source}: the log starts at {state.log_start}: offsets from {span.start} were deleted"
        return ""


def choose(source: Source, topics: Topics, snapshot: TopicSnapshot, most: int, newest: bool = True) -> Window:
    """Return at most so many offsets, divided among the partitions: the newest ones, or the oldest ones.

    Ranges end at the last stable offset, so that no open transaction delays a copy. They keep to `source.start` and
    `source.end` where these are offsets or a timestamp.

    Args:
        source: source of the pipeline.
        topics: used to look up offsets by timestamp.
        snapshot: offsets of the brokers.
        most: maximum of all partitions together.
        newest: end at the last stable offset; otherwise begin at the log start.

    Raises:
        KpipeError: the topics contain no offset of the pipeline.
    """
    keys = sorted(snapshot.partitions)
    starts = _offsets(source.start, topics, snapshot, keys, "source.start")
    ends = _offsets(source.end, topics, snapshot, keys, "source.end")
    whole = {key: _readable(snapshot.partitions[key], starts.get(key), ends.get(key)) for key in keys}
    found = shares([len(span) for span in whole.values()], most)
    ranges = {
        key: Range(span.end - share, span.end) if newest else Range(span.start, span.start + share)
        for (key, span), share in zip(whole.items(), found, strict=True)
    }
    if not any(map(len, ranges.values())):
        raise KpipeError(f"{source}: the topic contains no offset that the pipeline would read", "write records to it first")
    return Window(ranges, source.multi_topic)


def _readable(state: PartitionState, start: int | None, end: int | None) -> Range:
    first = max(state.log_start, min(state.log_start if start is None else start, state.end))
    return Range(first, max(first, state.end if end is None else min(end, state.end)))


def _offsets(
    wanted: object, topics: Topics, snapshot: TopicSnapshot, keys: Sequence[PartitionId], name: str
) -> Mapping[PartitionId, int]:
    """Return the offsets of `source.start` or `source.end`; none for `earliest` and `latest`."""
    if isinstance(wanted, dict):  # not by `moments`: the log may have moved on since the pipeline began
        return {key: int(at) for key in keys for part_name, at in wanted.items() if chosen(key, [part_name])}
    return moments(wanted, topics, snapshot, keys, name) if isinstance(wanted, Timestamp) else {}


def shares(sizes: Sequence[int], most: int) -> list[int]:
    """Divide a number among sizes as evenly as possible; none gets more than its size."""
    found, left = [0] * len(sizes), most
    for open_, at in _smallest_first(sizes):
        found[at] = min(sizes[at], left // open_)
        left -= found[at]
    return found


def _smallest_first(sizes: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Yield how many sizes are left, and the index of the next."""
    order = sorted(range(len(sizes)), key=lambda at: sizes[at])
    return ((len(order) - number, at) for number, at in enumerate(order))
