"""Topics in memory: logs from a script, with every event that occurs in production.

Offsets are assigned one by one. A slot of a log is a record, a control marker (the end of a transaction, an aborted
record) or a hole (compacted away). Expired slots stay in memory, so that a test can still compare with them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from kpipe.definition.pipeline import Timestamp
from kpipe.errors import ReadFailed, TopicUnknown
from kpipe.ledger.tail import Tail, record_hash
from kpipe.offsets import Range
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot

__all__ = ["HOLE", "MARKER", "RECORD", "FakeTopics", "Slot"]

RECORD = "record"
MARKER = "marker"
HOLE = "hole"


@dataclass(frozen=True)
class Slot:
    """One offset of a log.

    Attributes:
        kind: `record`, `marker` or `hole`; a consumer only gets records.
        value: payload of a record; None is a tombstone.
        timestamp_ms: time of the write, UTC.
        bad: whether it cannot become a row.
    """

    kind: str = RECORD
    value: Mapping[str, Any] | None = None
    timestamp_ms: int = 0
    bad: bool = False


@dataclass
class _Log:
    slots: list[Slot] = field(default_factory=list)
    log_start: int = 0
    stable: int | None = None  # first offset of the oldest open transaction
    epoch: int = 0
    compacted: bool = False

    def state(self) -> PartitionState:
        high = len(self.slots)
        return PartitionState(self.log_start, high if self.stable is None else min(self.stable, high), high, self.epoch)


@dataclass
class _Topic:
    id: TopicId
    logs: list[_Log]


class FakeTopics:
    """The `Topics` protocol over logs in memory, and methods that change the logs for tests.

    Every such method takes `topic=`; None means the first topic. A deleted or recreated topic is missing for its readers,
    as in Kafka.

    Args:
        partitions: number of partitions by topic, or of the one topic `tweets`.
        cluster: the cluster's id.
        pattern: pattern of topics: topics that it does not match are not listed, and a missing topic is allowed.
    """

    def __init__(self, partitions: Mapping[str, int] | int = 1, cluster: str = "cluster-1", pattern: str = "") -> None:
        wanted = {"tweets": partitions} if isinstance(partitions, int) else dict(partitions)
        self._numbers = count(1)
        self._cluster = cluster
        self._topics = {name: self._made(name, number) for name, number in wanted.items()}
        self._first = next(iter(wanted))
        self.pattern, self._named = pattern, tuple(wanted)
        #: Whether rows contain their topic.
        self.multi_topic = bool(pattern) or len(wanted) > 1
        self._errors: list[Exception] = []
        #: Calls of `snapshot` so far, including failed ones.
        self.asked = 0

    # The protocol

    def snapshot(self) -> TopicSnapshot:
        """Return identity and offsets of all partitions, or raise the next scripted error."""
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        seen = [name for name in self._topics if re.search(self.pattern, name)] if self.pattern else self._named
        missing = [name for name in seen if name not in self._topics] if seen else [self._first]
        if missing:
            raise TopicUnknown(f"the cluster has no topic {missing[0]}", "create it, or fix source.topic")
        logs = ((self._topics[name].id, at, log) for name in seen for at, log in enumerate(self._topics[name].logs))
        return TopicSnapshot({PartitionId(topic, at): log.state() for topic, at, log in logs}, self.pattern)

    def present(self) -> Collection[PartitionId]:
        """Return the partitions of `snapshot`."""
        return self.snapshot().partitions

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """Return the first offset at or after the timestamp for each partition; without one, the last stable offset."""
        found: dict[PartitionId, int] = {}
        for source, state in snapshot.partitions.items():
            slots = self._log(source).slots
            later = (at for at in range(state.log_start, state.end) if slots[at].timestamp_ms >= moment.ms)
            found[source] = next(later, state.end)
        return found

    # Methods for producers and brokers

    def produce(
        self, partition: int, *values: Mapping[str, Any] | None, bad: bool = False, at_ms: int = 0, topic: str | None = None
    ) -> Range:
        """Append records (None: a tombstone), and return their offsets. `bad` ones cannot become rows."""
        return self._append(partition, [Slot(RECORD, value, at_ms, bad) for value in values], topic)

    def numbered(self, partition: int, number: int, topic: str | None = None) -> Range:
        """Append that many records whose payload is their own offset: `{"id": offset}`."""
        at = len(self._at(partition, topic).slots)
        return self.produce(partition, *({"id": at + i} for i in range(number)), topic=topic)

    def mark(self, partition: int, number: int = 1, topic: str | None = None) -> Range:
        """Append control markers, or records of an aborted transaction: offsets that no consumer gets."""
        return self._append(partition, [Slot(MARKER)] * number, topic)

    def compact(self, partition: int, *offsets: int, topic: str | None = None) -> None:
        """Compact these offsets away; the offsets of all others stay."""
        log = self._at(partition, topic)
        slots, log.compacted = log.slots, True
        for offset in offsets:
            slots[offset] = replace(slots[offset], kind=HOLE)

    def expire(self, partition: int, to: int, topic: str | None = None) -> None:
        """Delete everything before `to`, as retention does; the log start never decreases."""
        log = self._at(partition, topic)
        log.log_start = max(log.log_start, min(to, len(log.slots)))

    def truncate(self, partition: int, to: int, topic: str | None = None) -> None:
        """Truncate the log at `to`, as after an unclean election or a restored disk."""
        log = self._at(partition, topic)
        del log.slots[to:]
        log.log_start = min(log.log_start, to)
        log.epoch += 1

    def open_transaction(self, partition: int, topic: str | None = None) -> None:
        """Make records after the current end unstable until `close_transaction`."""
        log = self._at(partition, topic)
        log.stable = len(log.slots)

    def close_transaction(self, partition: int, topic: str | None = None) -> None:
        """End the open transaction; its marker takes an offset."""
        self._at(partition, topic).stable = None
        self.mark(partition, topic=topic)

    def add_partitions(self, number: int = 1, topic: str | None = None) -> None:
        """Add partitions to the topic."""
        self._topics[topic or self._first].logs.extend(_Log() for _ in range(number))

    def recreate(self, partitions: int | None = None, topic: str | None = None) -> None:
        """Delete the topic and recreate it under another id, empty."""
        name = topic or self._first
        self._topics[name] = self._made(name, partitions or len(self._topics[name].logs))

    def name(self, *topics: str) -> None:
        """Make the definition name these topics."""
        self._named = topics

    def create(self, topic: str, partitions: int = 1) -> None:
        """Add a topic."""
        self._topics[topic] = self._made(topic, partitions)

    def delete(self, topic: str | None = None) -> None:
        """Delete the topic."""
        del self._topics[topic or self._first]

    def fail_over(self, cluster: str) -> None:
        """Switch to another cluster, with the same topics and the same contents, at the same address."""
        self._cluster = cluster
        for topic in self._topics.values():
            topic.id = replace(topic.id, cluster=cluster)

    def fail(self, *errors: Exception) -> None:
        """Make the next calls of `snapshot` raise these errors, one each."""
        self._errors.extend(errors)

    # Methods for tests and fake readers

    def source(self, partition: int = 0, topic: str | None = None) -> PartitionId:
        """Return the partition, with its topic's current identity."""
        return PartitionId(self._topics[topic or self._first].id, partition)

    def read(self, source: PartitionId, within: Range) -> Sequence[tuple[int, Slot]]:
        """Return records of a range with their offsets, as a read_committed consumer gets them.

        Raises:
            ReadFailed: the topic has another identity, or the range is not inside the stable part of the log.
        """
        if self._present(source) is None:
            raise ReadFailed(f"{source} {within}: the topic was deleted or recreated")
        log = self._log(source)
        state = log.state()
        if within.start < state.log_start or within.end > state.end:
            raise ReadFailed(f"{source} {within}: offset out of range: expected offsets in [{state.log_start}, {state.end})")
        return [(at, log.slots[at]) for at in range(within.start, within.end) if log.slots[at].kind == RECORD]

    def tail(self, source: PartitionId, within: Range, after: Tail | None = None, epoch: int = -1) -> Tail | None:
        """Compare the records before a range, and return the fingerprint of its last ones, as the read of a range does.

        Raises:
            LogTruncated: the records before it are not those of the fingerprint.
            ReadFailed: as `read`.
        """
        before: list[tuple[int, str]] = []
        if after is not None:
            before = [_hashed(*item) for item in self.read(source, Range(after.start, within.start))]
            log = self._log(source)
            found = after.difference(dict(before), lambda: within.start if log.compacted else log.log_start, epoch)
            if found is not None:
                error = after.error(str(source), found, epoch)
                error.record = source, found.offset
                raise error
        return Tail.of(within.end, [*before, *(_hashed(*item) for item in self.read(source, within))])

    def _made(self, name: str, partitions: int) -> _Topic:
        return _Topic(TopicId(self._cluster, f"topic-{next(self._numbers)}", name), [_Log() for _ in range(partitions)])

    def _append(self, partition: int, slots: Sequence[Slot], topic: str | None) -> Range:
        log = self._at(partition, topic)
        log.slots.extend(slots)
        return Range(len(log.slots) - len(slots), len(log.slots))

    def _at(self, partition: int, topic: str | None) -> _Log:
        return self._topics[topic or self._first].logs[partition]

    def _present(self, source: PartitionId) -> _Topic | None:
        topic = self._topics.get(source.topic.name)
        found = topic is not None and topic.id == source.topic and source.partition < len(topic.logs)
        return topic if found else None

    def _log(self, source: PartitionId) -> _Log:
        return self._topics[source.topic.name].logs[source.partition]


def _hashed(offset: int, slot: Slot) -> tuple[int, str]:
    value = None if slot.value is None else repr(slot.value).encode()
    return offset, record_hash(offset, slot.timestamp_ms, None, value, None)
