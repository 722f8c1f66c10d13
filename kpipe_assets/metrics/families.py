"""The metrics of `/metrics`: name, type, labels and meaning. The reference page is generated from this list."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BY_TOTAL", "FAMILIES", "PARTITION", "PIPELINE", "Family"]

PIPELINE = ("pipeline",)
PARTITION = ("pipeline", "topic", "partition")


@dataclass(frozen=True)
class Family:
    """One metric.

    Attributes:
        name: as Prometheus shows it; a counter's ends with `_total`.
        help: its meaning.
        labels: names of its labels.
        source: `ledger`, `brokers` or `home`.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    source: str = "ledger"

    @property
    def type(self) -> str:
        """Return Prometheus' type of the metric."""
        return "counter" if self.name.endswith("_total") else "gauge"


#: Counters by partition: metric and the sum in `PartitionTotals`.
BY_TOTAL = {
    "kpipe_read_offsets_total": "offsets",
    "kpipe_records_total": "messages",
    "kpipe_rows_total": "rows",
    "kpipe_deletes_total": "deletes",
    "kpipe_filtered_records_total": "filtered",
    "kpipe_gap_offsets_total": "gaps",
    "kpipe_read_bytes_total": "bytes",
    "kpipe_core_seconds_total": "task_seconds",
    "kpipe_dead_letters": "dead_letters",
}

FAMILIES = (
    Family("kpipe_up", "1 if the pipeline's definition and ledger could be read in time, else 0", PIPELINE),
    Family("kpipe_source_up", "1 if the pipeline's brokers answered in time, else 0", PIPELINE, "brokers"),
    Family(
        "kpipe_scrape_error", "1: reading the ledger or the brokers failed with this error", (*PIPELINE, "part", "error"), "home"
    ),
    Family("kpipe_scrape_duration_seconds", "Time that the last read of the pipeline took", PIPELINE, "home"),
    Family("kpipe_pipeline_state", "1 for the current state, 0 for the others", (*PIPELINE, "state"), "home"),
    Family("kpipe_partitions", "Partitions in the ledger", PIPELINE),
    Family(
        "kpipe_summed_partitions",
        'Partitions that only have sums, in series with partition="all"; 0 while each has its own',
        PIPELINE,
    ),
    Family("kpipe_committed_offset", "Next offset to read: all earlier ones are committed, skipped or lost", PARTITION),
    Family("kpipe_read_offsets_total", "Offsets of committed ranges", PARTITION),
    Family("kpipe_records_total", "Records read by committed batches", PARTITION),
    Family("kpipe_rows_total", "Rows written by committed batches", PARTITION),
    Family("kpipe_deletes_total", "Tombstones that deleted the row of their key", PARTITION),
    Family("kpipe_filtered_records_total", "Records that gave no row on purpose", PARTITION),
    Family("kpipe_gap_offsets_total", "Offsets without a record: control records, aborted transactions, compaction", PARTITION),
    Family("kpipe_read_bytes_total", "Bytes of keys and values of the records read", PARTITION),
    Family("kpipe_core_seconds_total", "Seconds that Spark's tasks spent on committed ranges, each on one core", PARTITION),
    Family("kpipe_dead_letters", "Dead letters of committed batches that no retry has resolved", PARTITION),
    Family("kpipe_lag_offsets", "Unread offsets up to the high watermark", PARTITION, "brokers"),
    Family("kpipe_lag_seconds", "Age of the first unread record; 0 if caught up", PARTITION, "brokers"),
    Family(
        "kpipe_newest_committed_record_timestamp_seconds",
        "Highest Kafka timestamp of the committed records that are still in the log",
        PARTITION,
        "brokers",
    ),
    Family("kpipe_batches_total", "Committed batches", PIPELINE),
    Family(
        "kpipe_batch_seconds_total",
        "Duration of committed batches: staging is plan, read, program, decode and write; commit is the rest",
        (*PIPELINE, "stage"),
    ),
    Family("kpipe_last_commit_timestamp_seconds", "Time of the newest batch; 0 without batches", PIPELINE),
    Family("kpipe_commit_sequence_number", "Number of the newest commit, decisions included", PIPELINE),
    Family("kpipe_table_rows", "Rows that the ledger records for the pipeline's first table", PIPELINE),
    Family("kpipe_skipped_batches_total", "Commits that left offsets unread: jumps, losses and skipped batches", PIPELINE),
    Family("kpipe_retries_total", "Batches that a run attempted again after an error, in this home", PIPELINE, "home"),
)
