"""Compare the records before a range with those that were read, and hash the last ones of the range (kpipe/ledger/tail.py)."""

from __future__ import annotations

from kpipe.ledger.tail import BYTES, RECORDS, Tail, record_hash
from kpipe.offsets import Range
from resources.kafka.rare_requests import RareRequests
from resources.kafka.record_block import RecordBlock

__all__ = ["TailCheck", "payload_bytes"]


class TailCheck:
    """Fingerprints at both ends of one read.

    Args:
        span: the range.
        after: fingerprint of the records before it; None: nothing to compare.
        epoch: leader epoch of the partition, for messages; -1: unknown.
        requests: about the partition.

    Attributes:
        start: offset from which on to read: of the first record to compare, or of the range.
    """

    def __init__(self, span: Range, after: Tail | None, epoch: int, requests: RareRequests) -> None:
        self._span, self._after, self._epoch, self._requests = span, after, epoch, requests
        self.start = span.start if after is None else after.start
        self._early: list[_Hashed] = []
        self._blocks: list[RecordBlock] = []  # last records of the latest blocks; hashed at the end only

    @property
    def waiting(self) -> bool:
        """True until the records before the range were compared."""
        return self._after is not None

    def take(self, early: RecordBlock) -> int:
        """Take records before the range, and return the bytes of their keys and values."""
        found = _hashed(early)
        self._early += found
        return sum(size for _, _, size in found)

    def expired(self) -> bool:
        """Return whether the log starts behind the first record to compare by now, and compare only the others."""
        low = self._requests.watermarks()[0]
        if self._after is None or self._early or low <= self._after.start:
            return False
        self._after = self._after.comparable(low)
        self.start = self._span.start if self._after is None else self._after.start
        return True

    def compare(self, partition: str) -> None:
        """Compare the records before the range, all of which were taken. Once; later calls do nothing.

        Args:
            partition: as text, for the message.

        Raises:
            LogTruncated: they are not those that were read.
        """
        after, self._after = self._after, None
        if after is None:
            return
        found = after.difference({at: hash for at, hash, _ in self._early}, self._required, self._epoch, self._requests.compacts)
        if found is not None:
            raise after.error(partition, found, self._epoch)

    @property
    def apart(self) -> bool:
        """True if skipped offsets lie between the records to compare and the range."""
        return self._after is not None and self._after.end < self._span.start

    def pass_over(self, partition: str) -> None:
        """End the comparison, as offsets before the range cannot be read. If all records were taken, raise as `compare` does."""
        if self._after is not None and self._early and self._early[-1][0] >= self._after.records[-1][0]:
            self.compare(partition)
        self._after, self.start = None, self._span.start

    def _required(self) -> int:
        return self._span.start if self._requests.may_be_compacted() else self._requests.watermarks()[0]

    def add(self, block: RecordBlock) -> None:
        """Add records of the range. The last ones keep the block's memory until later ones replace them."""
        self._blocks.append(RecordBlock(block.table.slice(max(0, len(block) - RECORDS))))
        while sum(map(len, self._blocks[1:])) >= RECORDS:
            self._blocks.pop(0)

    def tail(self) -> Tail | None:
        """Return the fingerprint of the last records before the end of the range; None without records near it."""
        last = [record for block in self._blocks for record in _hashed(block)]
        last = [*self._early[-RECORDS:], *last][-RECORDS:]
        while len(last) > 1 and sum(size for _, _, size in last) > BYTES:
            last.pop(0)
        return Tail.of(self._span.end, [(offset, hash) for offset, hash, _ in last])


def payload_bytes(block: RecordBlock) -> int:
    """Return the bytes of the records' keys and values."""
    return sum(len(part) for part in (*block.values, *block.keys()) if part is not None)


_Hashed = tuple[int, str, int]  # offset, hash, and the bytes of key and value


def _hashed(block: RecordBlock) -> list[_Hashed]:
    columns = (block.offsets, block.timestamps, block.keys(), block.values, block.column("headers").to_pylist())
    return [(row[0], record_hash(*row), len(row[2] or b"") + len(row[3] or b"")) for row in zip(*columns, strict=True)]
