"""What Dagster is to show of a batch: made before the commit, stored with it, published after it."""

from __future__ import annotations

from collections.abc import Mapping

from kpipe.batch import SETTLED, Batch, Counts
from kpipe.source import PartitionId, TopicSnapshot

__all__ = ["metadata"]


def metadata(
    batch: Batch, counts: Mapping[tuple[PartitionId, int], Counts], snapshot: TopicSnapshot, seconds: float
) -> dict[PartitionId, dict[str, object]]:
    """Numbers to publish, by partition of the batch.

    Offsets are exclusive at the end, `lag` counts offsets up to the high watermark at plan time, bytes are keys and
    values as read, `rows_per_second` is of the partition over the batch's whole time.
    """
    result: dict[PartitionId, dict[str, object]] = {}
    for step in batch.steps:
        count = counts[step.lane.key]
        state = snapshot.partitions[step.source]
        result[step.source] = {
            "batch": batch.id,
            "start_offset": step.range.start,
            "end_offset": step.range.end,
            "messages": count.messages,
            "rows": count.rows,
            **{name: getattr(count, name) for name in SETTLED},
            "dead_letters": count.dead_letters,
            "filtered": count.filtered,
            "gaps": count.gaps,
            "bytes": count.bytes,
            "lag": max(0, state.high - step.range.end),
            "rows_per_second": round(count.rows / seconds, 1) if seconds > 0 else 0.0,
        }
    return result
