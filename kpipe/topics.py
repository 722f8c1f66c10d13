"""Where records come from: the identity of a topic, and what its brokers say about it at one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

__all__ = [
    "Part", "PartitionId", "PartitionState", "TopicId", "TopicSnapshot", "chosen", "folded", "in_order", "names", "part",
    "parts", "unnamed",
]  # fmt: skip

#: A partition as definitions, statements and outputs name it: its number, or TOPIC:NUMBER where several topics share a
#: pipeline. A topic's name holds no ":".
Part = int | str


@dataclass(frozen=True, order=True)
class TopicId:
    """A topic for good: its name alone is not one, since it can be deleted and made again, or live elsewhere.

    Attributes:
        cluster: the cluster's id.
        topic_id: the topic's id (KIP-516); empty where the broker has none (the mock cluster).
        name: the topic's name.
    """

    cluster: str
    topic_id: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, order=True)
class PartitionId:
    """One partition of one topic: the key of everything in the ledger."""

    topic: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic.name}/{self.partition}"


@dataclass(frozen=True)
class PartitionState:
    """Offsets of one partition as the broker tells them; ends are exclusive.

    Attributes:
        log_start: first offset that still exists.
        end: last stable offset (LSO), the end for a read_committed consumer. A batch never ends beyond it.
        high: high watermark; `high > end` while a transaction is open.
    """

    log_start: int
    end: int
    high: int


@dataclass(frozen=True)
class TopicSnapshot:
    """All partitions of the chosen topics, asked once per batch.

    Attributes:
        partitions: of all topics.
        pattern: that the topics were found by; empty where they were named, and each of them is there.
    """

    partitions: Mapping[PartitionId, PartitionState] = field(default_factory=dict)
    pattern: str = ""

    def topics(self) -> tuple[TopicId, ...]:
        """The topics in it, sorted."""
        return tuple(sorted({key.topic for key in self.partitions}))

    def means(self, topic: str) -> bool:
        """Whether a topic of that name belongs to it: it is there, or the pattern would find it."""
        return any(known.name == topic for known in self.topics()) or bool(self.pattern and re.search(self.pattern, topic))


def part(source: PartitionId, several: bool) -> Part:
    """What names the partition: `0`, or `web:0` where the pipeline has several topics."""
    return f"{source.topic.name}:{source.partition}" if several else source.partition


def parts(sources: Iterable[PartitionId], several: bool) -> list[Part]:
    """Their names, by topic, then by number."""
    return sorted({part(source, several) for source in sources}, key=in_order)


def names(sources: Iterable[PartitionId]) -> set[Part]:
    """Everything by which one of them can be chosen."""
    return {name for source in sources for name in (source.partition, part(source, True))}


def in_order(name: Part) -> tuple[str, int]:
    """Topic (empty where it is not named) and number: what to sort by, also for names that were written as text."""
    topic, _, number = str(name).rpartition(":")
    return topic, int(number)


def chosen(source: PartitionId, only: Collection[Part] | None) -> bool:
    """Whether the partition is among these; None: all are."""
    return only is None or source.partition in only or part(source, True) in only


def unnamed(names: Iterable[Part], several: bool) -> str:
    """What is wrong with names that lack their topic, or have one where there is only one; empty when nothing is."""
    for name in names:
        if several and isinstance(name, int):
            return f"{name} is a partition of each of several topics: write TOPIC:{name}"
        if not several and isinstance(name, str):
            return f"{name}: the pipeline reads one topic: write {in_order(name)[1]}"
    return ""


def folded(values: Mapping[Part, int], several: bool) -> Mapping[Part, int]:
    """Numbers by partition as they are; where there is one topic, by its partitions' numbers, whether they name it or not."""
    if several:
        return values
    sums: dict[Part, int] = {}
    for name, value in values.items():
        number = in_order(name)[1]
        sums[number] = sums.get(number, 0) + value
    return sums
