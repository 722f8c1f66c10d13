"""A batch sent: every request of every stream, several at a time, each noted when it is answered for good."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, StagedFile
from kpipe.definition.pipeline import Into, Policy
from kpipe.errors import RecordRejected
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from kpipe.topics import PartitionId
from resources.destinations.staged_file_check import Proven
from resources.destinations.webhook.ordered_rows import windows
from resources.destinations.webhook.outbox import Receipt, Receipts
from resources.destinations.webhook.requests import Request, Row, Shaper
from resources.destinations.webhook.sender import Sender, Stopped, Verdict

__all__ = ["RECEIPTS", "Delivery"]

#: Columns of the table of receipts, beside Kafka's coordinates: a row for each row that was taken.
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
    """One batch on its way to one endpoint.

    Args:
        into: the fields of the definition.
        policy: what becomes of a record that the receiver refuses.
        commit: the batch, fixed.
        receipts: what was answered before, and is from here on.
        folder: for files that the ledger is told by.
    """

    def __init__(self, into: Into, policy: Policy, commit: Commit, receipts: Receipts, folder: Path) -> None:
        self._into, self._commit, self._receipts, self._folder = into, commit, receipts, folder
        # A record that gave several rows may have had some of them taken: it can be neither whole nor set aside.
        self._policy = "fail" if commit.marks or any(counts.given for counts in commit.counts.values()) else policy
        self._taken: list[tuple[Row, str, Receipt]] = []
        self._refused: list[tuple[Row, str]] = []

    def send(self, files: Sequence[Proven], sender: Sender) -> Commit:
        """Send all that has no receipt yet; the commit that tells the ledger.

        Its files are receipts in place of rows, and dead letters for what was refused, where that is the policy.

        Raises:
            RecordRejected: a record was refused, and the policy is `fail`.
            DestinationBusy, DestinationError, SchemaConflict.
        """
        shaper = Shaper(self._into, self._commit)
        topics = any("_kafka_topic" in file.names for file in files)
        with ThreadPoolExecutor(self._into.concurrency, "kpipe-webhook") as threads:
            path = self._folder / "taken.parquet"
            with pq.ParquetWriter(path, _taken_schema(topics)) as writer:
                for blocks in windows(files):
                    self._streams(shaper.streams(blocks), sender, threads)
                    writer.write_table(self._taken_rows(topics))
                    self._taken.clear()
        taken, letters = _staged(path), self._letters()
        return replace(
            self._settled(),
            columns=RECEIPTS if self._commit.columns else Columns(),
            files=(taken,) if taken.rows else (),
            dead_letters=(*self._commit.dead_letters, *letters),
        )

    def _streams(self, streams: Sequence[Sequence[Request]], sender: Sender, threads: ThreadPoolExecutor) -> None:
        """All streams at once, as far as there are threads; when one fails, the others end after the request at hand."""
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
            # What was refused is asked again where the policy has become another one: the receiver may have, too.
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
            return Verdict(0, f"the request would have {size:,} bytes, into.max_bytes is {self._into.max_bytes:,}")
        return sender.send(request.key, request.body, request.place)

    def _rejected(self, request: Request, verdict: Verdict) -> RecordRejected:
        several = f" (one of {len(request.rows)} records in a request)" if len(request.rows) > 1 else ""
        hint = "have the receiver take it, change into.body, or set errors.constraint: dead_letter (or skip)"
        if not all(map(_traced, request.rows)):
            hint = "have the receiver take it, or change into.body: rows of this program cannot be traced to one record"
        elif self._commit.marks or any(counts.given for counts in self._commit.counts.values()):
            hint = "have the receiver take it, or change into.body: records that may give several rows are not set aside"
        error = RecordRejected(f"{request.place}{several}: the receiver refuses it: {verdict.reason}", hint)
        if len(request.rows) == 1 and request.rows[0].offset is not None:
            error.record = request.rows[0].source, request.rows[0].offset
        return error

    def _taken_rows(self, topics: bool) -> pa.Table:
        """Receipts of the window at hand, as rows."""
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
        """What was refused as dead letters: records as they were."""
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
        """The commit with what became of its records."""
        gone: Counter[tuple[PartitionId, int]] = Counter()
        for row, _ in self._refused:
            steps = (s for s in self._commit.steps if s.source == row.source and row.offset is not None and row.offset in s.range)
            gone[next(steps).lane.key] += 1
        if not gone:
            return self._commit
        counts = dict(self._commit.counts)
        for lane, n in gone.items():
            old = counts[lane]
            name = "dead_letters" if self._policy == "dead_letter" else "filtered"
            counts[lane] = replace(
                old, rows=old.rows - n, inserted=max(0, old.inserted - n), **{name: getattr(old, name) + n}
            )  # fmt: skip
        return self._commit.settled(counts)


def _traced(row: Row) -> bool:
    """Whether the record that the row comes from is known, whole."""
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
