"""Convert commits to rows of the ledger's tables (docs/design.md 4.5). Pure functions, used by every destination."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from kpipe.batch.batch import Batch, Commit, Counts
from kpipe.batch.table_write import ByLane
from kpipe.errors import RecordRejected, SourceError, TransformFailed, by_name
from kpipe.offsets import Range
from kpipe.topics import PartitionId, TopicId, part
from kpipe.verification.clearing import CLEARED
from kpipe.verification.verify import Entry

__all__ = [
    "DEAD_LETTER", "LOOSE", "SKIPS", "STATES", "SUCCEEDED", "UNREAD", "clean", "commit_row", "end_rows", "entry", "event_row",
    "keyed", "made_entry", "range_rows",
]  # fmt: skip

SKIPS = ("jump", "loss", "skip", "give_up")  #: kinds of commit that leave offsets unread
LOOSE = "Landed"  #: state of a range whose rows were committed before the ledger (`delivery: at_least_once`)
SUCCEEDED = "Succeeded"
#: State of a range by the kind of its commit, if not `SUCCEEDED`.
STATES = {"reread": "Reread", "rows": LOOSE, "give_up": "GivenUp", "clear": "Cleared"}
#: `closed_by` of ranges that were not read.
UNREAD = ("reread", "given_up")
#: Columns of a staged file of dead letters.
DEAD_LETTER = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "stage", "reason")


def commit_row(commit: Commit, table: str, seq: int) -> dict[str, Any]:
    """Return the commit's row of `kpipe_commits`."""
    return {
        "pipeline_name": commit.pipeline,
        "batch_id": commit.id,
        "seq": seq,
        "target_table": table,
        "kind": commit.kind,
        "run_id": commit.run_id,
        "version": commit.version,
        "started": datetime.fromtimestamp(commit.started_ms / 1000, timezone.utc),
        "committed": datetime.now(timezone.utc),
        "seconds": commit.seconds,
        **vars(commit.totals),
        "note": commit.note,
        "metadata": json.dumps(keyed(commit), default=str) if commit.metadata else None,
    }


def range_rows(
    commit: Commit, table: str, seq: int, database: str, tables: Mapping[ByLane, str] | None = None
) -> list[dict[str, Any]]:
    """Return the commit's rows of `kpipe_batches`, one for each range.

    Args:
        commit: the commit.
        table: name of the table.
        seq: number of the commit.
        database: name of the database.
        tables: names of the tables of ranges that another table than `table` takes.
    """
    rows = []
    for step in commit.steps:
        counts = commit.counts.get(step.lane.key, Counts())
        rows.append(
            {
                "pipeline_name": commit.pipeline,
                "batch_id": commit.id,
                "seq": seq,
                "target_table": (tables or {}).get(step.lane.key, table),
                "database_name": database,
                "batch_state": STATES.get(commit.kind, SUCCEEDED),
                "batch_rows_written": counts.inserted + counts.updated + counts.deleted,
                "batch_time": commit.seconds,
                "batch_start_unix_timestamp": commit.started_ms / 1000,
                "batch_partition_state": "Succeeded",
                "batch_partition_parsed_rows": counts.rows,
                "batch_source_partition_id": step.source.partition,
                "batch_earliest_offset": step.range.start,
                "batch_latest_offset": step.range.end,
                "batch_partition_time": commit.task_seconds.get(step.lane.key, 0.0),
                "batch_partition_extracted_bytes": counts.bytes,
                "batch_partition_extracted_rows": counts.messages,
                "cluster_id": step.source.topic.cluster,
                "topic_id": step.source.topic.topic_id,
                "topic": step.source.topic.name,
                "closed_by": step.closed_by,
                **vars(counts),
            }
        )
    return rows


def end_rows(commit: Commit) -> list[dict[str, Any]]:
    """Return the partitions' end offsets as rows of `kpipe_partitions`."""
    return [
        {
            "pipeline_name": commit.pipeline,
            "cluster_id": source.topic.cluster,
            "topic_id": source.topic.topic_id,
            "topic": source.topic.name,
            "partition": source.partition,
            "earliest_offset": earliest,
            "latest_offset": latest,
            "updated_unix_timestamp": time.time(),
        }
        for source, (earliest, latest) in commit.ends.items()
    ]


def event_row(
    pipeline: str, error: str, kind: str, batch: Batch | None, stderr: str, number: int | None, database: str
) -> dict[str, Any]:
    """Return the error that stopped a batch as a row of `kpipe_errors`. `number` increases within the pipeline."""
    steps = batch.steps if batch is not None else ()
    only = steps[0] if len(steps) == 1 else None  # an event of several ranges has no range columns
    external = issubclass(by_name(kind), (SourceError, TransformFailed, RecordRejected))
    return {
        "database_name": database,
        "pipeline_name": pipeline,
        "error_unix_timestamp": time.time(),
        "error_type": "Error",
        "error_code": kind,
        "error_message": error,
        "error_kind": "External" if external else "Internal",
        "std_error": stderr or None,
        "batch_id": batch.id if batch is not None else None,
        "error_id": number,
        "batch_source_partition_id": only.source.partition if only else None,
        "batch_earliest_offset": only.range.start if only else None,
        "batch_latest_offset": only.range.end if only else None,
        "dead_letter": False,
        "topic": only.source.topic.name if only else None,
        "partition": only.source.partition if only else None,
    }


def entry(row: Mapping[str, Any]) -> Entry:
    """Return the committed range of a row of `kpipe_batches`."""
    source = PartitionId(TopicId(row["cluster_id"], row["topic_id"], row["topic"]), row["batch_source_partition_id"])
    where = Range(row["batch_earliest_offset"], row["batch_latest_offset"])
    counts = Counts(*(row.get(field.name, 0) for field in fields(Counts)))  # older ledgers have fewer columns
    return made_entry(row["batch_id"], source, where, counts, row["closed_by"], row["batch_state"], seq=row.get("seq", 0))


def made_entry(
    batch: str,
    source: PartitionId,
    where: Range,
    counts: Counts,
    closed_by: str,
    state: str,
    table: str = "",
    seq: int = 0,
) -> Entry:
    """Return the range with the meaning of its columns `closed_by` and `batch_state`."""
    unread, given_up, cleared = closed_by in UNREAD, closed_by == "given_up", closed_by == CLEARED
    return Entry(batch, source, where, counts, unread, state == LOOSE, given_up, cleared, table, seq)


def keyed(commit: Commit) -> dict[str, Mapping[str, object]]:
    """Return the metadata by partition number, or by TOPIC:NUMBER where the pipeline reads several topics."""
    return {str(part(source, commit.multi_topic)): values for source, values in commit.metadata.items()}


def clean(text: str) -> str:
    """Return external text as valid UTF-8."""
    return text.encode("utf-8", "replace").decode()
