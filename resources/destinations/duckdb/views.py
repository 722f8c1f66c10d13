"""What is derived from the ledger's tables, as views that any client reads. Ends are exclusive."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from resources.destinations.duckdb.connection import Connection, quote

__all__ = ["VIEWS", "rows"]

# What "newest first" means in each view.
_NEWEST = {
    "pipelines": "pipeline_name",
    "batches": "seq DESC, topic, batch_source_partition_id, batch_earliest_offset",
    "batches_summary": "seq DESC",
    "errors": "error_id DESC",
    "cursors": "topic, source_partition_id",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_US = 253_402_300_799_999_999  # the year 9999 is Python's last; producers stamp later ones

_SUMMARY = """
CREATE VIEW IF NOT EXISTS main.kpipe_batches_summary AS
SELECT
    any_value(b.database_name) AS database_name,
    b.pipeline_name,
    b.batch_id,
    any_value(b.batch_state) AS batch_state,
    to_timestamp(min(b.batch_start_unix_timestamp)) AS start_time,
    max(b.batch_time) AS batch_time,
    sum(b.batch_partition_extracted_rows) / nullif(max(b.batch_time), 0) AS rows_per_sec,
    sum(b.batch_partition_extracted_rows)::BIGINT AS rows_streamed,
    count(DISTINCT (b.topic, b.batch_source_partition_id)) AS num_partitions,
    count(DISTINCT (b.topic, b.batch_source_partition_id)) FILTER (b.batch_partition_state = 'Succeeded')
        AS num_partitions_finished,
    sum(b.batch_partition_extracted_bytes) / 1e6 AS mb_streamed,
    sum(b.batch_partition_extracted_bytes) / 1e6 / nullif(max(b.batch_time), 0) AS mb_per_sec,
    sum(b."rows")::BIGINT AS rows_inserted,
    0::BIGINT AS rows_updated,
    0::BIGINT AS rows_deleted,
    any_value(b.seq) AS seq,
    sum(b.dead_letters)::BIGINT AS dead_letters,
    sum(b.filtered)::BIGINT AS filtered,
    sum(b.gaps)::BIGINT AS gaps,
    any_value(c.committed) AS committed
FROM main.kpipe_batches AS b
LEFT JOIN main.kpipe_commits AS c ON c.batch_id = b.batch_id
GROUP BY b.pipeline_name, b.batch_id
"""

# successful_cursor_offset: the first offset that was not read, whether skipped, lost, or still waiting in a backfill.
_CURSORS = """
CREATE VIEW IF NOT EXISTS main.kpipe_cursors AS
SELECT
    p.database_name,
    p.pipeline_name,
    'KAFKA' AS source_type,
    l.partition AS source_partition_id,
    coalesce(any_value(k.earliest_offset), min(l.lane_start)) AS earliest_offset,
    coalesce(any_value(k.latest_offset), max(l.next_offset) FILTER (l.kind = 'read')) AS latest_offset,
    max(l.next_offset) FILTER (l.kind = 'read') AS cursor_offset,
    coalesce(
        min(CASE
            WHEN l.kind <> 'read' THEN l.lane_start
            WHEN l.lane_end IS NULL OR l.next_offset < l.lane_end THEN l.next_offset
        END),
        max(l.next_offset)
    ) AS successful_cursor_offset,
    coalesce(any_value(k.updated_unix_timestamp), epoch(any_value(p.updated))) AS updated_unix_timestamp,
    l.topic,
    l.cluster_id,
    l.topic_id
FROM main.kpipe_ledger AS l
JOIN main.kpipe_pipelines AS p ON p.pipeline_name = l.pipeline_name
LEFT JOIN main.kpipe_partitions AS k
    ON k.pipeline_name = l.pipeline_name AND k.cluster_id = l.cluster_id AND k.topic_id = l.topic_id
    AND k.topic = l.topic AND k.partition = l.partition
GROUP BY p.database_name, p.pipeline_name, l.cluster_id, l.topic_id, l.topic, l.partition
"""

VIEWS = (_SUMMARY, _CURSORS)


def rows(connection: Connection, name: str, pipeline: str, limit: int | None) -> Sequence[Mapping[str, Any]]:
    """Rows of one view that belong to one pipeline, newest first, by column name; times are aware, UTC.

    Raises:
        KeyError: there is no such view.
    """
    order, view = _NEWEST[name], quote("main", f"kpipe_{name}")
    described = connection.execute(f"DESCRIBE {view}").fetchall()
    names = [column for column, *_ in described]
    instants = [kind == "TIMESTAMP WITH TIME ZONE" for _, kind, *_ in described]
    # As a number: DuckDB's client needs another package to make an aware datetime.
    parts = [f"epoch_us({quote(n)})" if instant else quote(n) for n, instant in zip(names, instants, strict=True)]
    sql = f"SELECT {', '.join(parts)} FROM {view} WHERE pipeline_name = $1 ORDER BY {order} LIMIT $2"
    found = connection.execute(sql, [pipeline, 2**62 if limit is None else limit]).fetchall()
    return [dict(zip(names, map(_value, row, instants), strict=True)) for row in found]


def _value(value: Any, instant: bool) -> Any:
    return _EPOCH + timedelta(microseconds=min(value, _LAST_US)) if instant and value is not None else value
