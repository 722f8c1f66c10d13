"""Define the views over the ledger's tables, which any client can read. Ends are exclusive."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = ["rows", "views"]

# The order "newest first" of each view.
_NEWEST = {
    "pipelines": "pipeline_name",
    "batches": "seq DESC, topic, batch_source_partition_id, batch_earliest_offset",
    "batches_summary": "seq DESC",
    "errors": "error_id DESC",
    "cursors": "topic, source_partition_id",
    "targets": "seq DESC, topic, batch_source_partition_id, batch_earliest_offset, target_table",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_US = 253_402_300_799_999_999  # Python's last year is 9999; producers may write later timestamps

# A topic's name contains no slash.
_SUMMARY = """
{create} {schema}kpipe_batches_summary AS
SELECT
    min(b.database_name) AS database_name,
    b.pipeline_name,
    b.batch_id,
    min(b.batch_state) AS batch_state,
    {start} AS start_time,
    max(b.batch_time) AS batch_time,
    sum(b.batch_partition_extracted_rows) / nullif(max(b.batch_time), 0) AS rows_per_sec,
    CAST(sum(b.batch_partition_extracted_rows) AS {bigint}) AS rows_streamed,
    count(DISTINCT concat(b.topic, '/', b.batch_source_partition_id)) AS num_partitions,
    count(DISTINCT CASE WHEN b.batch_partition_state = 'Succeeded' THEN concat(b.topic, '/', b.batch_source_partition_id) END)
        AS num_partitions_finished,
    sum(b.batch_partition_extracted_bytes) / 1e6 AS mb_streamed,
    sum(b.batch_partition_extracted_bytes) / 1e6 / nullif(max(b.batch_time), 0) AS mb_per_sec,
    CAST(sum(b.inserted) AS {bigint}) AS rows_inserted,
    CAST(sum(b.updated) AS {bigint}) AS rows_updated,
    CAST(sum(b.deleted) AS {bigint}) AS rows_deleted,
    min(b.seq) AS seq,
    CAST(sum(b.dead_letters) AS {bigint}) AS dead_letters,
    CAST(sum(b.filtered) AS {bigint}) AS filtered,
    CAST(sum(b.gaps) AS {bigint}) AS gaps,
    min(c.committed) AS committed,
    CAST(sum(b.ignored) AS {bigint}) AS rows_ignored
FROM {schema}kpipe_batches AS b
LEFT JOIN {schema}kpipe_commits AS c ON c.batch_id = b.batch_id
GROUP BY b.pipeline_name, b.batch_id
"""

# successful_cursor_offset: the first offset that was not read: it was skipped or lost, or waits in a backfill.
_CURSORS = """
{create} {schema}kpipe_cursors AS
SELECT
    p.database_name,
    p.pipeline_name,
    'KAFKA' AS source_type,
    l."partition" AS source_partition_id,
    coalesce(min(k.earliest_offset), min(l.lane_start)) AS earliest_offset,
    coalesce(min(k.latest_offset), max(CASE WHEN l.kind = 'read' THEN l.next_offset END)) AS latest_offset,
    max(CASE WHEN l.kind = 'read' THEN l.next_offset END) AS cursor_offset,
    coalesce(
        min(CASE
            WHEN l.kind <> 'read' THEN l.lane_start
            WHEN l.lane_end IS NULL OR l.next_offset < l.lane_end THEN l.next_offset
        END),
        max(l.next_offset)
    ) AS successful_cursor_offset,
    coalesce(min(k.updated_unix_timestamp), {updated}) AS updated_unix_timestamp,
    l.topic,
    l.cluster_id,
    l.topic_id
FROM {schema}kpipe_ledger AS l
JOIN {schema}kpipe_pipelines AS p ON p.pipeline_name = l.pipeline_name
LEFT JOIN {schema}kpipe_partitions AS k
    ON k.pipeline_name = l.pipeline_name AND k.cluster_id = l.cluster_id AND k.topic_id = l.topic_id
    AND k.topic = l.topic AND k."partition" = l."partition"
GROUP BY p.database_name, p.pipeline_name, l.cluster_id, l.topic_id, l.topic, l."partition"
"""


def views(dialect: Dialect) -> list[str]:
    """Return the statements that create the views."""
    words = {
        "create": dialect.create_view,
        "schema": dialect.schema,
        "bigint": dialect.bigint,
        "start": dialect.instant.format("min(b.batch_start_unix_timestamp)"),
        "updated": dialect.seconds.format("min(p.updated)"),
    }
    return [text.format(**words) for text in (_SUMMARY, _CURSORS)]


def rows(
    connection: Connection, dialect: Dialect, name: str, described: Sequence[tuple[str, bool]], pipeline: str, limit: int | None
) -> Sequence[Mapping[str, Any]]:
    """Return the rows of one view for one pipeline, newest first, by column name; times are aware, UTC.

    Args:
        connection: for reading.
        dialect: of the database.
        name: of the view, without `kpipe_`.
        described: the view's columns, each with whether it is an instant.
        pipeline: its name.
        limit: maximum of rows; None: all.

    Raises:
        KeyError: the view does not exist.
    """
    order, view = _NEWEST[name], quote(f"kpipe_{name}")
    # As a number: clients cannot convert every instant to an aware datetime.
    parts = [dialect.micros.format(quote(n)) if instant else quote(n) for n, instant in described]
    sql = f"SELECT {', '.join(parts)} FROM {view} WHERE pipeline_name = $1 ORDER BY {order} LIMIT $2"
    found = connection.execute(sql, [pipeline, 2**62 if limit is None else limit]).fetchall()
    names, instants = [n for n, _ in described], [instant for _, instant in described]
    return [dict(zip(names, map(_value, row, instants), strict=True)) for row in found]


def _value(value: Any, instant: bool) -> Any:
    if not instant or value is None:
        return value
    if value <= _LAST_US:
        return _EPOCH + timedelta(microseconds=value)
    import numpy as np

    return f"{np.datetime64(value, 'us')}Z"  # Python's years end at 9999: later instants are text
