"""Topics in memory: logs written by a script, with everything that happens to logs in production.

Offsets are given out one by one. A slot of a log is a record, a control marker (the end of a transaction, an aborted
record) or a hole (compacted away); what expired stays in memory, so that a test can still compare against it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from kpipe.definition.pipeline import Timestamp
from kpipe.errors import ReadFailed, TopicUnknown
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
        kind: `record`, `marker` or `hole`; only a record is ever seen by a consumer.
        value: payload of a record; None is a tombstone.
        timestamp_ms: when it was written, UTC.
        bad: whether it can not become a row.
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

    def state(self) -> PartitionState:
        high = len(self.slots)
        return PartitionState(self.log_start, high if self.stable is None else min(self.stable, high), high)


@dataclass
class _Topic:
    id: TopicId
    logs: list[_Log]


class FakeTopics:
    """The `Topics` protocol over logs in memory, and the verbs that a test script needs.

    Every verb takes `topic=`; None means the first one. A deleted or recreated topic is simply gone for its readers, as
    with Kafka.

    Args:
        partitions: number of partitions by topic, or of the one topic `tweets`.
        cluster: the cluster's id.
        pattern: topics are found by it: those that it does not match are not seen, and those that are gone are no error.
    """

    def __init__(self, partitions: Mapping[str, int] | int = 1, cluster: str = "cluster-1", pattern: str = "") -> None:
        wanted = {"tweets": partitions} if isinstance(partitions, int) else dict(partitions)
        self._numbers = count(1)
        self._cluster = cluster
        self._topics = {name: self._made(name, number) for name, number in wanted.items()}
        self._first = next(iter(wanted))
        self.pattern, self._named = pattern, tuple(wanted)
        #: Whether rows name their topic.
        self.several = bool(pattern) or len(wanted) > 1
        self._errors: list[Exception] = []
        #: Calls of `snapshot` so far, the failed ones too.
        self.asked = 0

    # The protocol

    def snapshot(self) -> TopicSnapshot:
        """Identity and offsets of all partitions, or the next scripted error."""
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        seen = [name for name in self._topics if re.search(self.pattern, name)] if self.pattern else self._named
        missing = [name for name in seen if name not in self._topics] if seen else [self._first]
        if missing:
            raise TopicUnknown(f"the cluster has no topic {missing[0]}", "create it, or mend source.topic")
        logs = ((self._topics[name].id, at, log) for name in seen for at, log in enumerate(self._topics[name].logs))
        return TopicSnapshot({PartitionId(topic, at): log.state() for topic, at, log in logs}, self.pattern)

    def present(self) -> Collection[PartitionId]:
        """As `snapshot`, in everything."""
        return self.snapshot().partitions

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """First offset of each partition whose record is not older than the moment; the last stable offset if none is."""
        found: dict[PartitionId, int] = {}
        for source, state in snapshot.partitions.items():
            slots = self._log(source).slots
            later = (at for at in range(state.log_start, state.end) if slots[at].timestamp_ms >= moment.ms)
            found[source] = next(later, state.end)
        return found

    # What producers and brokers do

    def produce(
        self, partition: int, *values: Mapping[str, Any] | None, bad: bool = False, at_ms: int = 0, topic: str | None = None
    ) -> Range:
        """Append records (None: a tombstone); gives their offsets. `bad` ones can not become rows."""
        return self._append(partition, [Slot(RECORD, value, at_ms, bad) for value in values], topic)

    def numbered(self, partition: int, number: int, topic: str | None = None) -> Range:
        """Append that many records whose payload is their own offset: `{"id": offset}`."""
        at = len(self._at(partition, topic).slots)
        return self.produce(partition, *({"id": at + i} for i in range(number)), topic=topic)

    def mark(self, partition: int, number: int = 1, topic: str | None = None) -> Range:
        """Append control markers, or records of an aborted transaction: offsets that no consumer sees."""
        return self._append(partition, [Slot(MARKER)] * number, topic)

    def compact(self, partition: int, *offsets: int, topic: str | None = None) -> None:
        """Compaction removes these offsets; the offsets of all others stay."""
        slots = self._at(partition, topic).slots
        for offset in offsets:
            slots[offset] = replace(slots[offset], kind=HOLE)

    def expire(self, partition: int, to: int, topic: str | None = None) -> None:
        """Retention deletes everything before `to`; the log start never goes back."""
        log = self._at(partition, topic)
        log.log_start = max(log.log_start, min(to, len(log.slots)))

    def truncate(self, partition: int, to: int, topic: str | None = None) -> None:
        """The log loses everything from `to` on: an unclean election, or a restored disk."""
        log = self._at(partition, topic)
        del log.slots[to:]
        log.log_start = min(log.log_start, to)

    def open_transaction(self, partition: int, topic: str | None = None) -> None:
        """From the present end on, records are not stable until `close_transaction`."""
        log = self._at(partition, topic)
        log.stable = len(log.slots)

    def close_transaction(self, partition: int, topic: str | None = None) -> None:
        """The open transaction ends; its marker takes an offset."""
        self._at(partition, topic).stable = None
        self.mark(partition, topic=topic)

    def add_partitions(self, number: int = 1, topic: str | None = None) -> None:
        """The topic gets that many partitions more."""
        self._topics[topic or self._first].logs.extend(_Log() for _ in range(number))

    def recreate(self, partitions: int | None = None, topic: str | None = None) -> None:
        """The topic is deleted and made again under another id, empty."""
        name = topic or self._first
        self._topics[name] = self._made(name, partitions or len(self._topics[name].logs))

    def name(self, *topics: str) -> None:
        """The definition names these from now on."""
        self._named = topics

    def create(self, topic: str, partitions: int = 1) -> None:
        """There is one topic more."""
        self._topics[topic] = self._made(topic, partitions)

    def delete(self, topic: str | None = None) -> None:
        """The topic is gone."""
        del self._topics[topic or self._first]

    def fail_over(self, cluster: str) -> None:
        """Another cluster, with the same topics and the same contents, answers at the same address."""
        self._cluster = cluster
        for topic in self._topics.values():
            topic.id = replace(topic.id, cluster=cluster)

    def fail(self, *errors: Exception) -> None:
        """The next calls of `snapshot` raise these, one each."""
        self._errors.extend(errors)

    # What a test or a fake reader asks

    def source(self, partition: int = 0, topic: str | None = None) -> PartitionId:
        """The partition, with its topic's present identity."""
        return PartitionId(self._topics[topic or self._first].id, partition)

    def read(self, source: PartitionId, within: Range) -> Sequence[tuple[int, Slot]]:
        """Records of a range with their offsets, as a read_committed consumer sees them.

        Raises:
            ReadFailed: the topic has another identity, or the range is not inside what the log holds and has stable.
        """
        if self._present(source) is None:
            raise ReadFailed(f"{source} {within}: the topic is gone or has another identity")
        log = self._log(source)
        state = log.state()
        if within.start < state.log_start or within.end > state.end:
            raise ReadFailed(f"{source} {within}: offset out of range, the log holds [{state.log_start}, {state.end})")
        return [(at, log.slots[at]) for at in range(within.start, within.end) if log.slots[at].kind == RECORD]

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
