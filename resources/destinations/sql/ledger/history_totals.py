"""Sum a pipeline's history in the database."""

# ruff: noqa: S608 - names in statements are constants, values are always parameters
from __future__ import annotations

from kpipe.ledger.totals import SUMMED, PartitionTotals, Totals
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["totals"]


def totals(connection: Connection, dialect: Dialect, pipeline: str, seq: int) -> Totals:
    """Return the sums over all commits of a pipeline up to a sequence number; cleared ranges stay in them.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
        seq: the newest commit to include.
    """
    sums = [f'CAST(sum("{name}") AS {dialect.bigint})' for name in SUMMED[1:-1]]
    ranges = connection.execute(
        f"SELECT topic, batch_source_partition_id,"
        f" CAST(sum(batch_latest_offset - batch_earliest_offset) AS {dialect.bigint}), {', '.join(sums)},"
        f" sum(batch_partition_time) FROM {BATCHES.sql}"
        " WHERE pipeline_name = $1 AND batch_state <> 'Cleared' AND seq <= $2 GROUP BY topic, batch_source_partition_id",
        [pipeline, seq],
    ).fetchall()
    began, ended = dialect.micros.format("started"), dialect.micros.format("committed")
    row = connection.execute(
        f"SELECT count(*), sum(seconds), sum({ended} - {began}), max({ended}) FROM {COMMITS.sql}"
        " WHERE pipeline_name = $1 AND kind IN ('batch', 'rows') AND seq <= $2",
        [pipeline, seq],
    ).fetchone()
    batches, staged, whole, newest = (float(value or 0) for value in row)
    partitions = {}
    for topic, number, *found, tasks in ranges:
        counts = dict(zip(SUMMED[:-1], (int(value or 0) for value in found), strict=True))
        partitions[str(topic), int(number)] = PartitionTotals(task_seconds=float(tasks or 0.0), **counts)
    return Totals(partitions, int(batches), staged, max(0.0, whole / 1e6 - staged), newest / 1e6)
