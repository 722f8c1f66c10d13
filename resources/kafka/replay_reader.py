"""Return records in memory through the interface of a bounded read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow.compute as pc

from kpipe.offsets import Range
from resources.kafka.range_reader import RangeReader, ReadReport
from resources.kafka.record_block import RecordBlock

__all__ = ["ReplayReader"]

_BLOCK_RECORDS = 4096


class ReplayReader(RangeReader):
    """Range reader without a broker.

    Args:
        held: records in offset order.
        topic: topic's name.
        partition: partition's number.
        span: offsets of the records to return, `[start, end)`.
    """

    def __init__(self, held: RecordBlock, topic: str, partition: int, span: Range) -> None:
        super().__init__({}, topic, partition, span)
        offsets = held.table.column("offset")
        self._held = RecordBlock(held.table.filter(pc.and_(pc.greater_equal(offsets, span.start), pc.less(offsets, span.end))))
        self._length = len(span)

    def start(self) -> None:
        """Do nothing: the records are in memory."""

    def _blocks(self, began: float) -> Iterator[tuple[RecordBlock, int]]:
        last = None
        while len(self._held):
            block = self._held.take(_BLOCK_RECORDS)
            size = sum(len(data) for data in (*block.values, *block.keys()) if data is not None)
            self.count += len(block)
            self.bytes += size
            last = block.offsets[-1]
            yield block, size
        self.report = ReadReport(self.count, self.bytes, self._length - self.count, last, "held", time.monotonic() - began)
