"""Kafka topics in memory, and where kpipe's reader and planner find them. A stand-in: no broker is asked.

Everything above the Kafka client is kpipe's own: the planner asks `MemoryTopics` for offsets, and `RangeReader` takes records
from `MemoryClient` as it takes them from librdkafka. A consumer of committed records sees neither control records nor
records of aborted transactions nor those that compaction removed; their offsets are gaps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from resources.kafka import range_reader
from resources.kafka import topic_metadata as topics
from resources.kafka.consumer import Event, Taken
from resources.kafka.rare_requests import RareRequests
from resources.kafka.record_block import RecordBlock

__all__ = ["BROKERS", "Cluster", "Log", "Record", "stand_in"]

BROKERS = "memory.invalid:9092"


@dataclass(frozen=True)
class Record:
    """A record, or an offset without one.

    Attributes:
        key, value: bytes; a value of None is a tombstone.
        timestamp: ms since 1970, as the producer wrote it.
        meaning: how the oracle judges it; None for a gap, which no consumer sees.
        headers: name and value of each.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    meaning: Any
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Log:
    """One partition.

    Attributes:
        records: by offset, from 0 on.
        start: first offset that exists.
        stable: last stable offset; None: the end of the log.
    """

    records: list[Record] = field(default_factory=list)
    start: int = 0
    stable: int | None = None

    @property
    def end(self) -> int:
        """First offset that no consumer of committed records sees yet."""
        return len(self.records) if self.stable is None else min(self.stable, len(self.records))


@dataclass
class Cluster:
    """All topics of an example: the partitions' logs by the topic's name."""

    topics: dict[str, list[Log]] = field(default_factory=dict)

    def log(self, topic: str, partition: int) -> Log:
        """One partition's log."""
        return self.topics[topic][partition]

    def id(self, topic: str) -> TopicId:
        """Identity of a topic."""
        return TopicId("memory", f"id-{topic}", topic)

    def places(self) -> Iterator[tuple[str, int, Log]]:
        """Every partition with its topic's name and its number."""
        for topic, logs in self.topics.items():
            for number, log in enumerate(logs):
                yield topic, number, log


class MemoryTopics:
    """`Topics` (kpipe/interfaces.py) over a cluster in memory."""

    def __init__(self, cluster: Cluster, source: Source) -> None:
        self._cluster, self._names = cluster, source.names

    def snapshot(self) -> TopicSnapshot:
        """Identity and offsets of all partitions."""
        found = {}
        for name in self._names:
            for number, log in enumerate(self._cluster.topics[name]):
                state = PartitionState(log.start, max(log.start, log.end), len(log.records))
                found[PartitionId(self._cluster.id(name), number)] = state
        return TopicSnapshot(found)

    def present(self) -> Collection[PartitionId]:
        """Partitions that exist."""
        return self.snapshot().partitions

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """First offset whose record is not older than the moment, else the end."""
        found = {}
        for source, state in snapshot.partitions.items():
            records = self._cluster.log(source.topic.name, source.partition).records
            later = (at for at in range(state.log_start, state.end) if records[at].timestamp >= moment.ms)
            found[source] = next(later, state.end)
        return found


class MemoryClient:
    """`Client` (resources/kafka/consumer.py) that reads one partition of a cluster in memory."""

    fresh = True

    def __init__(self, log: Log, start: int) -> None:
        self._log, self._next = log, start

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """Visible records from the position on; at the end of the log, the event that says so."""
        if self._next < self._log.start or self._next > len(self._log.records):
            return Taken(RecordBlock(), 0, (Event(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE), self._next, True),))
        found: list[tuple[int, Record]] = []
        while len(found) < most and self._next < self._log.end:
            record = self._log.records[self._next]
            if record.meaning is not None:
                found.append((self._next, record))
            self._next += 1
        size = sum(len(data) for _, record in found for data in (record.key, record.value) if data is not None)
        held = RecordBlock.of(
            [at for at, _ in found],
            [record.timestamp for _, record in found],
            [record.value for _, record in found],
            [record.key for _, record in found],
            [list(record.headers) or None for _, record in found],
        )
        ended = self._next >= self._log.end
        return Taken(held, size, (Event(KafkaError(KafkaError._PARTITION_EOF), self._next, True),) if ended else ())

    def close(self, keep: bool = False) -> None:
        """Nothing is open."""


class _Asker:
    """Answers the reader's question for a partition's offsets."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Log start and high watermark."""
        return self._log.start, len(self._log.records)

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def stand_in(cluster: Cluster) -> Iterator[None]:
    """Inside, pipelines whose brokers are `BROKERS` read this cluster; others read theirs as ever."""
    opened, connected, compacted = range_reader.RangeReader._open, RareRequests._connected, RareRequests.may_be_compacted

    def memory(self: Any) -> Log | None:
        ours = self._config.get("bootstrap.servers") == BROKERS
        return cluster.log(self._topic, self._partition) if ours else None

    def open_client(self: Any, fresh: bool = False) -> Any:
        log = memory(self)
        return opened(self, fresh) if log is None else MemoryClient(log, self._last + 1)

    def asker(self: Any) -> Any:
        log = memory(self)
        return connected(self) if log is None else _Asker(log)

    def may_be_compacted(self: Any) -> bool:
        return compacted(self) if memory(self) is None else True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "KafkaTopics", lambda source, *_, **__: MemoryTopics(cluster, source))
        patch.setattr(range_reader.RangeReader, "_open", open_client)
        patch.setattr(RareRequests, "_connected", asker)
        patch.setattr(RareRequests, "may_be_compacted", may_be_compacted)
        yield


def gaps(count: int) -> Sequence[Record]:
    """Offsets that no consumer sees: control records, aborted records, or records that compaction removed."""
    return [Record(None, None, 0, None)] * count
