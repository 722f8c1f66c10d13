"""Content of a database, in memory, and its views."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kpipe.batch.batch import Commit, Committed, Counts
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId
from kpipe.verification.verify import Entry

__all__ = ["VIEWS", "Fault", "MemoryStore", "MemoryTable", "Registered", "Row", "entries"]

Row = dict[str, Any]
Fault = Literal["before", "after_landed", "unknown"]


@dataclass
class MemoryTable:
    """A table: its payload columns, and rows by column name, Kafka's coordinates among them."""

    columns: Columns = field(default_factory=Columns)
    rows: list[Row] = field(default_factory=list)


@dataclass
class Registered:
    """Stored data of one pipeline.

    Attributes:
        uid: registration id, made at the first commit.
        ledger: lanes and sequence number.
        seal: checksum of the lanes after the last commit (`kpipe.ledger.ledger.checksum`).
        state: state for display.
        written: rows written by all commits.
        commits: committed batches in order, with the table of each, by batch id.
        dead_letters: complete dead letters.
        errors: error events.
        published: ids of batches whose metadata was published.
        ends: log start and high watermark by partition, as of the last commit.
    """

    uid: str
    ledger: Ledger
    seal: int = 0
    state: str = "running"
    written: int = 0
    commits: dict[str, tuple[Committed, str]] = field(default_factory=dict)
    dead_letters: list[Row] = field(default_factory=list)
    errors: list[Row] = field(default_factory=list)
    published: set[str] = field(default_factory=set)
    ends: dict[PartitionId, tuple[int, int]] = field(default_factory=dict)


@dataclass
class MemoryStore:
    """Content of a database."""

    tables: dict[str, MemoryTable] = field(default_factory=dict)
    pipelines: dict[str, Registered] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def fail_next(self, fault: Fault, times: int = 1) -> None:
        """Make the next commits fail.

        Args:
            fault: `before`: nothing happens. `after_landed`: everything is committed, the response is lost, and the read-back
                finds it. `unknown`: everything is committed, the response is lost, and the store cannot be read.
            times: number of commits.
        """
        self.faults += [fault] * times


def entries(commit: Commit, seq: int = 0) -> list[Entry]:
    """Return the ranges of a commit with their counts."""
    again, loose, given_up = commit.kind in ("reread", "give_up"), commit.kind == "rows", commit.kind == "give_up"
    counts = {step: commit.counts.get(step.lane.key, Counts()) for step in commit.steps}
    return [Entry(commit.id, step.source, step.range, counts[step], again, loose, given_up, seq=seq) for step in commit.steps]


def _view_pipelines(pipeline: str, table: str, known: Registered) -> list[Row]:
    last = known.errors[-1]["error_message"] if known.errors else None
    row = {"pipeline_name": pipeline, "pipeline_id": known.uid, "state": known.state, "seq": known.ledger.seq}
    counts = {"rows": known.written, "dead_letters": known.ledger.dead_letters}
    return [{**row, **counts, "target_table": table, "last_error": last}]


def _view_batches(pipeline: str, _: str, known: Registered) -> list[Row]:
    return [
        {
            "pipeline_name": pipeline,
            "batch_id": done.commit.id,
            "batch_state": "Succeeded",
            "seq": done.seq,
            "target_table": written,
            "topic": entry.source.topic.name,
            "batch_source_partition_id": entry.source.partition,
            "batch_earliest_offset": entry.range.start,
            "batch_latest_offset": entry.range.end,
            "closed_by": step.closed_by,
            **asdict(entry.counts),
        }
        for done, written in reversed(known.commits.values())
        for step, entry in zip(done.commit.steps, entries(done.commit), strict=True)
    ]


def _view_summary(pipeline: str, _: str, known: Registered) -> list[Row]:
    return [
        {
            "pipeline_name": pipeline,
            "batch_id": done.commit.id,
            "batch_state": "Succeeded",
            "seq": done.seq,
            "batch_time": done.commit.seconds,
            "rows_streamed": done.commit.totals.messages,
            "rows_inserted": done.commit.totals.rows,
            "num_partitions": len({step.source for step in done.commit.steps}),
        }
        for done, _ in reversed(known.commits.values())
        if done.commit.steps
    ]


def _view_errors(pipeline: str, _: str, known: Registered) -> list[Row]:
    dead = [{**row, "dead_letter": True, "error_type": "Warning", "error_message": row["reason"]} for row in known.dead_letters]
    return [{"pipeline_name": pipeline, **row} for row in reversed([*dead, *known.errors])]


def _view_cursors(pipeline: str, _: str, known: Registered) -> list[Row]:
    rows = []
    for source in known.ledger.sources():
        lanes = known.ledger.of(source)
        head = known.ledger.live(source)
        cursor = head.next if head else None
        waiting = [x.start if x.kind != "read" else x.next for x in lanes if x.kind != "read" or x.next != x.end]
        earliest, latest = known.ends.get(source, (lanes[0].start, cursor))
        rows.append(
            {
                "pipeline_name": pipeline,
                "source_type": "KAFKA",
                "topic": source.topic.name,
                "source_partition_id": source.partition,
                "earliest_offset": earliest,
                "latest_offset": latest,
                "cursor_offset": cursor,
                "successful_cursor_offset": min(waiting) if waiting else cursor,
                "updated_unix_timestamp": time.time(),
            }
        )
    return rows


VIEWS: dict[str, Callable[[str, str, Registered], list[Row]]] = {
    "pipelines": _view_pipelines,
    "batches": _view_batches,
    "batches_summary": _view_summary,
    "errors": _view_errors,
    "cursors": _view_cursors,
}
