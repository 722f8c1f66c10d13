"""Send a batch: all requests, several streams at a time, and record each final response."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, Mark, StagedFile
from kpipe.batch.table_write import ByLane
from kpipe.definition.pipeline import Policy
from kpipe.errors import RecordRejected
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.staged_file_check import Proven
from resources.destinations.webhook.ordered_rows import windows
from resources.destinations.webhook.outbox import Pinned, Receipt, Receipts
from resources.destinations.webhook.requests import Request, Row, Shaper
from resources.destinations.webhook.sender import Sender, Stopped, Verdict

__all__ = ["RECEIPTS", "Delivery"]

#: Columns of the receipts table, in addition to Kafka's coordinates: one row for each accepted row.
RECEIPTS = Columns.of({"request": "VARCHAR", "status": "SMALLINT", "sent": "TIMESTAMP WITH TIME ZONE"})
_INSTANT = pa.timestamp("us", "UTC")
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_LETTERS = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", _INSTANT),
        ("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS), ("stage", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip


class Delivery:
    """One batch that is sent to one endpoint.

    Args:
        pinned: the batch as it was stored.
        policy: the policy for records that the receiver rejects.
        receipts: final responses so far; new ones are added.
        folder: for the files that are committed to the ledger.
    """

    def __init__(self, pinned: Pinned, policy: Policy, receipts: Receipts, folder: Path) -> None:
        self._into, self._commit, self._block_bytes = pinned.into, pinned.commit, pinned.block_bytes
        self._receipts, self._folder, commit = receipts, folder, pinned.commit
        # Of a record with several rows, some may have been accepted: the record cannot become a dead letter.
        self._fan_out = any(counts.given for counts in commit.records.values())
        self._policy = "fail" if self._fan_out else policy
        self._taken: list[tuple[Row, str, Receipt]] = []
        self._refused: list[tuple[Row, str]] = []

    def send(self, files: Sequence[Proven], sender: Sender) -> Commit:
        """Send all requests without a receipt; return the commit for the ledger.

        Its files contain receipts instead of rows, and dead letters for rejected records, if that is the policy.

        Raises:
            RecordRejected: a record was rejected, and the policy is `fail`.
            DestinationBusy, DestinationError, SchemaConflict.
        """
        shaper = Shaper(self._into, self._commit)
        topics = any("_kafka_topic" in file.names for file in files)
        with ThreadPoolExecutor(self._into.concurrency, "kpipe-webhook") as threads:
            path = self._folder / "taken.parquet"
            with pq.ParquetWriter(path, _taken_schema(topics)) as writer:
                for blocks in windows(files, self._block_bytes):
                    self._streams(shaper.streams(blocks), sender, threads)
                    writer.write_table(self._taken_rows(topics))
                    self._taken.clear()
        taken, letters = _staged(path), self._letters()
        told = self._settled().writing(
            columns=RECEIPTS if self._commit.only.columns else Columns(), files=(taken,) if taken.rows else ()
        )
        return replace(told, dead_letters=(*self._commit.dead_letters, *letters))

    def _streams(self, streams: Sequence[Sequence[Request]], sender: Sender, threads: ThreadPoolExecutor) -> None:
        """Send all streams, limited by the threads. When one fails, the others stop after their current request."""
        jobs = [threads.submit(self._stream, stream, sender) for stream in streams]
        try:
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
            failed = [error for error in (job.exception() for job in done) if error is not None]
            for error in sorted(failed, key=lambda error: isinstance(error, Stopped)):
                raise error
        except BaseException:
            sender.stop()
            for job in jobs:
                job.cancel()
            wait(jobs)
            raise
        for job in jobs:
            for request, receipt in job.result():
                if receipt.reason:
                    self._refused += [(row, receipt.reason) for row in request.rows]
                else:
                    self._taken += [(row, request.key, receipt) for row in request.rows]

    def _stream(self, stream: Sequence[Request], sender: Sender) -> list[tuple[Request, Receipt]]:
        found = []
        for request in stream:
            receipt = self._receipts.get(request.key)
            # A rejected request is sent again if the policy has changed: the receiver may have changed, too.
            if receipt is None or (receipt.reason and self._policy == "fail"):
                verdict = self._sent(request, sender)
                receipt = Receipt(verdict.status, time.time_ns() // 1000, verdict.reason)
                if verdict.reason and (self._policy == "fail" or not all(map(_traced, request.rows))):
                    raise self._rejected(request, verdict)
                self._receipts.add(request.key, receipt)
            found.append((request, receipt))
        return found

    def _sent(self, request: Request, sender: Sender) -> Verdict:
        size = len(request.body)
        if len(request.rows) == 1 and size > self._into.max_bytes:
            return Verdict(0, f"the request has {size:,} bytes: into.max_bytes is {self._into.max_bytes:,}")
        return sender.send(request.key, request.body, request.place)

    def _rejected(self, request: Request, verdict: Verdict) -> RecordRejected:
        several = f" (one of {len(request.rows)} records in a request)" if len(request.rows) > 1 else ""
        hint = "make the receiver accept it, change into.body, or set errors.constraint: dead_letter (or skip)"
        if not all(map(_traced, request.rows)):
            hint = "make the receiver accept it, or change into.body: rows of this program cannot be traced to one record"
        elif self._fan_out:
            hint = "make the receiver accept it, or change into.body: a record with several rows cannot become a dead letter"
        error = RecordRejected(f"{request.place}{several}: the receiver rejected it: {verdict.reason}", hint)
        if len(request.rows) == 1 and request.rows[0].offset is not None:
            error.record = request.rows[0].source, request.rows[0].offset
        return error

    def _taken_rows(self, topics: bool) -> pa.Table:
        """Return the receipts of the current window as rows."""
        made: dict[str, list[Any]] = {
            "request": [key for _, key, _ in self._taken],
            "status": [receipt.status for *_, receipt in self._taken],
            "sent": [receipt.micros for *_, receipt in self._taken],
            "_kafka_partition": [row.source.partition for row, *_ in self._taken],
            "_kafka_offset": [row.offset for row, *_ in self._taken],
            "_kafka_timestamp": [row.value("_kafka_timestamp") for row, *_ in self._taken],
        }
        if topics:
            made["_kafka_topic"] = [row.source.topic.name for row, *_ in self._taken]
        return pa.table(made, _taken_schema(topics))

    def _letters(self) -> list[StagedFile]:
        """Write rejected records as dead letters, unchanged."""
        if not self._refused or self._policy != "dead_letter":
            return []
        rows = []
        for row, reason in self._refused:
            record: Any = row.value(ORIGINAL) or {}
            rows.append(
                {
                    "topic": row.source.topic.name, "partition": row.source.partition, "offset": row.offset,
                    "timestamp": row.value("_kafka_timestamp"), "key": record.get("key"), "value": record.get("value"),
                    "headers": record.get("headers"), "stage": "constraint", "reason": reason,
                }
            )  # fmt: skip
        path = self._folder / "refused.parquet"
        pq.write_table(pa.Table.from_pylist(rows, _LETTERS), path)
        return [_staged(path)]

    def _settled(self) -> Commit:
        """Return the commit with the outcome of its records."""
        gone: dict[ByLane, Mark] = {}
        for row, _ in self._refused:
            at = row.offset
            steps = (step for step in self._commit.steps if step.source == row.source and at is not None and at in step.range)
            lane = next(steps).lane.key
            gone[lane] = gone.get(lane, Mark()) + Mark(1, at or 0)
        if not gone:
            return self._commit
        counts, marks = dict(self._commit.only.counts), dict(self._commit.only.marks)
        for lane, found in gone.items():
            old, n = counts[lane], found.records
            if lane in marks:
                marks[lane] += Mark(-n, -found.offsets)
            name = "dead_letters" if self._policy == "dead_letter" else "filtered"
            counts[lane] = replace(
                old, rows=old.rows - n, inserted=max(0, old.inserted - n), **{name: getattr(old, name) + n}
            )  # fmt: skip
        return self._commit.writing(marks=marks).settled([counts])


def _traced(row: Row) -> bool:
    """Return whether the row's original record is available in full."""
    return row.offset is not None and row.value(ORIGINAL) is not None


def _taken_schema(topics: bool) -> pa.Schema:
    fields = [
        ("request", pa.string()), ("status", pa.int16()), ("sent", _INSTANT),
        ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64()), ("_kafka_timestamp", _INSTANT),
    ]  # fmt: skip
    return pa.schema([*fields, *([("_kafka_topic", pa.string())] if topics else [])])


def _staged(path: Path) -> StagedFile:
    data = path.read_bytes()
    with pq.ParquetFile(path) as parquet:
        rows = parquet.metadata.num_rows
    return StagedFile(str(path), len(data), rows, sha256(data).hexdigest())
