"""Offsets and records of a connector's splits, through the interfaces that Kafka's topics have."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

import pyarrow.compute as pc

from kpipe.definition.pipeline import Timestamp
from kpipe.errors import NotAvailable, ReadFailed
from kpipe.failpoints import failpoint
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from resources.kafka.range_reader import RangeReader, ReadReport
from resources.kafka.rare_requests import RareRequests
from resources.kafka.record_block import RecordBlock
from resources.kafka.tail_check import TailCheck
from resources.sources.connector import Connector

__all__ = ["SplitReader", "SplitTopics"]


class SplitTopics:
    """`Topics` (kpipe/interfaces.py) over a connector: each split is a topic with partition 0.

    Args:
        connector: the source.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def snapshot(self) -> TopicSnapshot:
        """See `Topics`."""
        made = self._connector
        found = {PartitionId(TopicId(made.place, split.identity, split.name), 0): split for split in made.splits()}
        states = {
            source: PartitionState(
                0,
                split.end,
                split.end if split.high is None else split.high,
                complete=split.complete,
                settled=split.settled,
            )
            for source, split in found.items()
        }
        return TopicSnapshot(states, made.pattern, made.noun, made.on_removal)

    def present(self) -> Collection[PartitionId]:
        """See `Topics`."""
        return self.snapshot().partitions

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """See `Topics`. Splits have no timestamps.

        Raises:
            NotAvailable: always.
        """
        raise NotAvailable(
            f"{self._connector.noun}s have no offsets by timestamp: expected offsets", "write EARLIEST, LATEST or offsets"
        )


class _NoBroker(RareRequests):
    """Answers for a split: none of its records may be missing."""

    compacts = False

    def __init__(self) -> None:
        super().__init__({}, "", 0, "", ())

    def may_be_compacted(self) -> bool:
        """Return False: records are never removed from a split."""
        return False

    def watermarks(self) -> tuple[int, int]:
        """Return the start of a split."""
        return 0, 0


class SplitReader(RangeReader):
    """Range reader of a split. Its end is proven by the connector, which reads to it or raises an error.

    Args:
        connector: the source.
        topic: name and identity of the split.
        span: what to read.
        after: fingerprint of the records before the range, which are read first and compared; None: nothing to compare.
    """

    def __init__(self, connector: Connector, topic: TopicId, span: Range, after: Tail | None = None) -> None:
        super().__init__({}, topic.name, 0, span)
        self._connector, self._split, self._range = connector, topic, span
        self._tails = TailCheck(span, after if connector.unchanging else None, -1, _NoBroker())

    def start(self) -> None:
        """Do nothing: reading a split needs no wait for a broker."""

    def _blocks(self, began: float) -> Iterator[tuple[RecordBlock, int]]:
        last = self._range.start - 1
        if self._tails.waiting:
            for early in self._connector.read(self._split.name, self._split.topic_id, Range(self._tails.start, last + 1)):
                self._tails.take(early)
            self._tails.compare(self._split.name)
        for block in self._connector.read(self._split.name, self._split.topic_id, self._range):
            if not len(block):
                continue
            if not self.count:
                failpoint("read.first")
            offsets = block.column("offset")
            if offsets[0].as_py() <= last or offsets[-1].as_py() >= self._range.end:
                raise ReadFailed(
                    f"{self._split.name}: a record at {offsets[0]} to {offsets[-1]} is outside of {self._range}, or out of order",
                    "this is a defect of kpipe",
                )
            last = offsets[-1].as_py()
            lines, keys = (pc.sum(pc.binary_length(block.column(name))).as_py() or 0 for name in ("line", "key"))
            size = lines + keys - len(block) + block.column("line").null_count  # without the newlines
            self.count, self.bytes = self.count + len(block), self.bytes + size
            self._tails.add(block)
            yield block, size
        failpoint("read.end")
        self.tail = self._tails.tail() if self._connector.unchanging else None
        gaps = len(self._range) - self.count
        self.report = ReadReport(self.count, self.bytes, gaps, last if self.count else None, "split", time.monotonic() - began)
