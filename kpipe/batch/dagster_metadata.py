"""What Dagster is to show of a batch: made before the commit, stored with it, published after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.batch.batch import SETTLED, Batch, Counts, Portion, shares
from kpipe.topics import PartitionId, TopicSnapshot

__all__ = ["metadata"]


def metadata(
    batch: Batch,
    counts: Mapping[tuple[PartitionId, int], Counts],
    snapshot: TopicSnapshot,
    seconds: float,
    lookups: Mapping[str, Mapping[str, object]] | None = None,
    also: Sequence[Portion] = (),
) -> dict[PartitionId, dict[str, object]]:
    """Numbers to publish, by partition of the batch.

    Offsets are exclusive at the end, `lag` counts offsets up to the high watermark at plan time, bytes are keys and
    values as read, `rows_per_second` is of the partition over the batch's whole time. Rows are the first table's; those of
    further tables stand by the table's name under `targets`, which is there only if there are some.
    """
    result: dict[PartitionId, dict[str, object]] = {}
    further = shares(also)
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
            **({"lookups": lookups} if lookups else {}),
            **({"targets": further.get(step.source, {})} if also else {}),
        }
    return result
