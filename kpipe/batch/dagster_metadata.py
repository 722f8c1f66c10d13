"""Metadata of a batch for Dagster: made before the commit, stored with it, published after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.batch.batch import SETTLED, Batch, Counts, TableWrite, listed
from kpipe.batch.table_write import ByLane, combined, of_also
from kpipe.topics import PartitionId, TopicSnapshot

__all__ = ["metadata"]


def metadata(
    batch: Batch,
    records: Mapping[ByLane, Counts],
    tables: Sequence[TableWrite],
    snapshot: TopicSnapshot,
    seconds: float,
    lookups: Mapping[str, Mapping[str, object]] | None = None,
    tasks: Mapping[ByLane, float] | None = None,
) -> dict[PartitionId, dict[str, object]]:
    """Return the metadata to publish, by partition of the batch.

    Offsets are exclusive at the end. `lag` counts offsets up to the high watermark at plan time. Bytes are those of keys and
    values as read. `rows_per_second` is the partition's rate over the batch's whole time. `core_seconds` is the time that
    tasks spent on the partition's range, each on one core. Rows are those of the table of `into`. Rows of the tables of
    `also`, if there are any, are under `targets` by table name. Of tables by topic, a partition has rows in its topic's only.
    With tables by a field, rows are those of all tables, and `targets` lists each.
    """
    result: dict[PartitionId, dict[str, object]] = {}
    by_field = batch.routes is not None
    if by_field:
        also = tables
    else:
        also = of_also(tables) if all(len(write.counts) == len(batch.steps) for write in tables) else ()
    others = listed(also)
    for step in batch.steps:
        lane = step.lane.key
        count = combined(records[lane], [write.counts[lane] for write in tables if lane in write.counts], by_field)
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
            "core_seconds": round((tasks or {}).get(lane, 0.0), 6),
            **({"lookups": lookups} if lookups else {}),
            **({"targets": others.get(step.source, {})} if also else {}),
        }
    return result
