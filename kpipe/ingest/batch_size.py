"""Bound batches of large records by bytes, where a destination needs memory for all rows of a batch.

The size of records is unknown until some are staged. So a run's first batch may be staged twice: as planned, and smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from kpipe.batch.batch import RangeReport
from kpipe.definition.pipeline import BatchLimits
from kpipe.interfaces import Destination
from kpipe.planning.planner import Limits
from kpipe.topics import PartitionId

__all__ = ["BatchSize", "Sized"]

# A batch that is larger than the bound by less than this factor is committed: staging it again costs more than it saves.
_TOLERANCE = 1.5
#: Files in a batch: the commit has a row for each, and a topic's ledger stores a commit in one record of 1 MB at most.
_MOST_SPLITS = 500


@runtime_checkable
class Sized(Protocol):
    """Optional interface of a destination: bound the bytes of a batch."""

    def batch_bytes(self, record_bytes: float) -> int | None:
        """Return the most bytes of a batch whose records have this mean size; None: no bound."""
        ...


class BatchSize:
    """Mean sizes of the records of one run, and the limits of its next batch.

    Args:
        destination: may be `Sized`.
        batch: limits of the definition.
        total: most offsets of a batch over all partitions, which then may have as many; None: no limit.
    """

    def __init__(self, destination: Destination, batch: BatchLimits, total: int | None = None) -> None:
        self._batch, self._total = batch, total
        self._destination = destination if isinstance(destination, Sized) else None
        self._means: dict[PartitionId, float] = {}
        self._most: int | None = None
        self._record = 0.0
        self._sources = 1

    def note(self, reports: Sequence[RangeReport]) -> bool:
        """Remember the sizes of a staged batch, and return whether it is too large for the destination."""
        total, records = sum(report.records.bytes for report in reports), sum(report.records.messages for report in reports)
        sizes: dict[PartitionId, tuple[int, int]] = {}
        for report in reports:
            size, offsets = sizes.get(report.source, (0, 0))
            sizes[report.source] = size + report.records.bytes, offsets + len(report.range)
        self._means.update({source: size / offsets for source, (size, offsets) in sizes.items() if offsets})
        if self._destination is None or not records:
            return False
        self._record, self._sources = total / records, max(1, len(sizes))
        self._most = self._destination.batch_bytes(self._record)
        return self._most is not None and total > self._most * _TOLERANCE

    def limits(self) -> Limits:
        """Return the definition's limits, the known sizes, and the destination's bound, shared by the partitions of a batch."""
        given = self._batch
        most, partitions = self._total or given.max_offsets_per_partition, given.max_partitions
        if self._total is not None and partitions is None:
            partitions = _MOST_SPLITS
        limits = Limits(most, given.max_bytes_per_partition, partitions, self._total, dict(self._means))
        if self._most is None:
            return limits
        share = max(1, self._most // self._sources)
        partitions = max(1, int(self._most / max(1.0, self._record)))
        return replace(
            limits,
            bytes=min(limits.bytes or share, share),
            partitions=min(limits.partitions or partitions, partitions),
            unknown_bytes=self._record,
        )
