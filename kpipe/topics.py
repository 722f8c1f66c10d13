"""Topics and partitions: their identity, and their offsets at one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

__all__ = [
    "PART", "Part", "PartitionId", "PartitionState", "TopicId", "TopicSnapshot", "chosen", "folded", "in_order", "names", "part",
    "parts", "unnamed",
]  # fmt: skip

#: A partition as definitions, statements and outputs name it: its number, or TOPIC:NUMBER if the pipeline reads several
#: topics. A topic name contains no ":".
Part = int | str
#: Pattern of TOPIC:NUMBER. The name of a split of another source contains a slash, and may contain any character.
PART = r"(?:[A-Za-z0-9._-]{1,249}|.*/.*):[0-9]{1,9}"


@dataclass(frozen=True, order=True)
class TopicId:
    """Identity of a topic. The name alone is ambiguous: a topic can be recreated, or exist in another cluster.

    Attributes:
        cluster: the cluster's id.
        topic_id: the topic's id (KIP-516); empty if the broker does not support ids.
        name: the topic's name.
    """

    cluster: str
    topic_id: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, order=True)
class PartitionId:
    """One partition of one topic: part of every key in the ledger."""

    topic: TopicId
    partition: int

    def __hash__(self) -> int:
        """Hash fewer values than are compared: a batch of 1,000 partitions looks up tens of thousands of them."""
        return hash((self.topic.name, self.partition))

    def __str__(self) -> str:
        return f"{self.topic.name}/{self.partition}"


@dataclass(frozen=True)
class PartitionState:
    """Offsets of one partition as reported by the broker; ends are exclusive.

    Attributes:
        log_start: first offset that is still in the log.
        end: last stable offset (LSO), the end for a read_committed consumer. A batch never ends beyond it.
        high: high watermark; `high > end` while a transaction is open.
        epoch: leader epoch of the partition (KIP-101); -1: unknown. For messages only.
        complete: whether no record will follow, as in a file that cannot grow; a topic's partition never is.
        settled: whether `end` has been found. A table has none before the transactions have ended that were open at first; its
            `end` is 0.
    """

    log_start: int
    end: int
    high: int
    epoch: int = field(default=-1, compare=False)
    complete: bool = False
    settled: bool = True


@dataclass(frozen=True)
class TopicSnapshot:
    """All partitions of the selected topics, queried once per batch.

    Attributes:
        partitions: partitions of all topics, with their offsets.
        pattern: regular expression that matched the topics; empty if the definition names them. Named topics all exist.
        noun: what a topic is to users: `topic`, or `file` for a source of files.
        on_removal: why a topic may be missing, and what to do; empty: it was deleted.
    """

    partitions: Mapping[PartitionId, PartitionState] = field(default_factory=dict)
    pattern: str = ""
    noun: str = "topic"
    on_removal: str = ""

    @property
    def appearing(self) -> bool:
        """True if further topics may appear and are read whole, so that a pipeline never finishes: files do."""
        return self.noun != "topic"

    def topics(self) -> tuple[TopicId, ...]:
        """Return its topics, sorted."""
        return tuple(sorted({key.topic for key in self.partitions}))

    def means(self, topic: str) -> bool:
        """Return whether a topic belongs to the snapshot: it exists, or the pattern matches its name."""
        return topic in self.names or bool(self.pattern and re.search(self.pattern, topic))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of its topics, computed once: there may be thousands."""
        return frozenset(key.topic.name for key in self.partitions)


def part(source: PartitionId, multi_topic: bool) -> Part:
    """Return the partition's name: `0`, or `web:0` if the pipeline reads several topics."""
    return f"{source.topic.name}:{source.partition}" if multi_topic else source.partition


def parts(sources: Iterable[PartitionId], multi_topic: bool) -> list[Part]:
    """Return the partitions' names, by topic, then by number."""
    return sorted({part(source, multi_topic) for source in sources}, key=in_order)


def names(sources: Iterable[PartitionId]) -> set[Part]:
    """Return every name that selects one of the partitions."""
    return {name for source in sources for name in (source.partition, part(source, True))}


def in_order(name: Part) -> tuple[str, int]:
    """Return topic (empty if not named) and number as a sort key; names may be text."""
    topic, _, number = str(name).rpartition(":")
    return topic, int(number)


def chosen(source: PartitionId, only: Collection[Part] | None) -> bool:
    """Return whether the partition is selected; None selects all."""
    return only is None or source.partition in only or part(source, True) in only


def unnamed(names: Iterable[Part], multi_topic: bool) -> str:
    """Return the error of names without a required topic, or with a superfluous one; empty if all are valid."""
    for name in names:
        if multi_topic and isinstance(name, int):
            return f"{name} is a partition of each of several topics: write TOPIC:{name}"
        if not multi_topic and isinstance(name, str):
            return f"{name}: the pipeline reads one topic: write {in_order(name)[1]}"
    return ""


def folded(values: Mapping[Part, int], multi_topic: bool) -> Mapping[Part, int]:
    """Return numbers by partition; for one topic, add them up by partition number, with or without the topic's name."""
    if multi_topic:
        return values
    sums: dict[Part, int] = {}
    for name, value in values.items():
        number = in_order(name)[1]
        sums[number] = sums.get(number, 0) + value
    return sums
