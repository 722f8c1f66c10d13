"""Where records come from: the identity of a topic, and what its brokers say about it at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PartitionId", "PartitionState", "TopicId", "TopicSnapshot"]


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
    """All partitions of the chosen topics, asked once per batch."""

    partitions: Mapping[PartitionId, PartitionState] = field(default_factory=dict)

    def topics(self) -> tuple[TopicId, ...]:
        """The topics in it, sorted."""
        return tuple(sorted({key.topic for key in self.partitions}))
