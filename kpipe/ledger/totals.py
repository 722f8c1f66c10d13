"""Sums over a pipeline's committed history, for metrics. They only grow: clearing a table does not reduce them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

__all__ = ["SUMMED", "PartitionTotals", "Totaling", "Totals", "of_views"]

_CLEARED = "Cleared"  # state of a range that reverses earlier ones


@dataclass(frozen=True)
class PartitionTotals:
    """Sums over the committed ranges of one partition, recreated topics of the same name included.

    Attributes:
        offsets: offsets of the ranges.
        messages, rows, deletes, filtered, gaps, bytes: see `Counts`.
        dead_letters: dead letters of the ranges that were not retried with success since.
        task_seconds: seconds that tasks spent on the ranges, each on one core.
    """

    offsets: int = 0
    messages: int = 0
    rows: int = 0
    deletes: int = 0
    dead_letters: int = 0
    filtered: int = 0
    gaps: int = 0
    bytes: int = 0
    task_seconds: float = 0.0

    def __add__(self, other: PartitionTotals) -> PartitionTotals:
        return PartitionTotals(**{name: getattr(self, name) + getattr(other, name) for name in SUMMED})


#: Names of the sums.
SUMMED = tuple(item.name for item in fields(PartitionTotals))


@dataclass(frozen=True)
class Totals:
    """Sums over a pipeline's history.

    Attributes:
        partitions: by topic and number.
        batches: batches with ranges.
        staging_seconds: from the plans of the batches until their rows were staged.
        commit_seconds: from then until they were committed.
        committed: time of the newest batch, in seconds since 1970; 0 without batches.
    """

    partitions: Mapping[tuple[str, int], PartitionTotals] = field(default_factory=dict)
    batches: int = 0
    staging_seconds: float = 0.0
    commit_seconds: float = 0.0
    committed: float = 0.0


@runtime_checkable
class Totaling(Protocol):
    """Optional interface of a destination: sum the history without reading all of it into memory."""

    def totals(self, seq: int) -> Totals:
        """Return the sums over all commits up to this sequence number."""
        ...


def of_views(ranges: Sequence[Mapping[str, Any]], batches: Sequence[Mapping[str, Any]], seq: int) -> Totals:
    """Sum the rows of `kpipe_batches` and `kpipe_batches_summary` up to a commit, for destinations without `Totaling`."""
    partitions: dict[tuple[str, int], PartitionTotals] = {}
    for row in ranges:
        if row["seq"] > seq or row["batch_state"] == _CLEARED:
            continue
        key = str(row["topic"]), int(row["batch_source_partition_id"])
        counts = {name: int(row.get(name) or 0) for name in SUMMED[1:-1]}
        span = int(row["batch_latest_offset"]) - int(row["batch_earliest_offset"])
        found = PartitionTotals(offsets=span, task_seconds=float(row.get("batch_partition_time") or 0.0), **counts)
        partitions[key] = partitions.get(key, PartitionTotals()) + found
    done = [row for row in batches if row["seq"] <= seq and row["batch_state"] != _CLEARED]
    staged = sum(float(row["batch_time"] or 0.0) for row in done)
    spans = [
        (row["start_time"].timestamp(), row["committed"].timestamp())
        for row in done
        if isinstance(row.get("start_time"), datetime) and isinstance(row.get("committed"), datetime)
    ]
    whole = sum(end - start for start, end in spans)
    return Totals(partitions, len(done), staged, max(0.0, whole - staged), max((end for _, end in spans), default=0.0))
