"""Read a range of one partition inside a task: `[start, end)`, in blocks, to an end that is proven.

Rules: docs/design.md, section 6. Reads start with `assign`, never with `seek` or a group's offset. Only an offset or an
end-of-partition event proves the end, never a timeout or a count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from kpipe.errors import InvalidPipeline, KpipeError, ReadFailed, ReadStalled, RecordsUnreadable
from kpipe.failpoints import failpoint
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from resources.kafka.consumer import BindingClient, Client, Event
from resources.kafka.errors import DAMAGED, OUT_OF_RANGE, Voice, failure
from resources.kafka.native_consumer import NativeClient, available
from resources.kafka.rare_requests import ASK_SECONDS, RareRequests
from resources.kafka.record_block import RecordBlock
from resources.kafka.tail_check import TailCheck, payload_bytes
from resources.secrets import redact, secrets_in

__all__ = ["RangeReader", "ReadReport"]

BLOCK_RECORDS = 16_384
BLOCK_BYTES = 4 << 20
"""A block of this size is still in the CPU cache when it is decoded; twice or half of it is not faster."""

_WAIT_SECONDS = 0.2
"""Longest sleep in the client without records: delay until rejected credentials or the deadline are noticed."""


@dataclass(frozen=True)
class ReadReport:
    """Facts proven by a finished read.

    Attributes:
        records: number of records.
        bytes: of their keys and values.
        gaps: offsets of the range without a record.
        last: offset of the last record; None if no record was read.
        proof: why the range is complete: `last_offset` (the record at `end - 1`), `later_record` (a record at or
            beyond `end`), `end_of_partition` (the event, at or beyond `end`), `empty` (the range is empty).
        seconds: from opening the client to the proof, including the caller's work in between.
    """

    records: int
    bytes: int
    gaps: int
    last: int | None
    proof: str
    seconds: float


class RangeReader:
    """Reader of one range, for one use. A context manager: leaving it always closes the client.

    Its records must be discarded unless `blocks` ended without an error.

    Args:
        config: `client_config` of the source.
        topic: topic's name.
        partition: partition's number.
        span: what to read, `[start, end)`; an empty range needs no broker.
        stall_timeout_s: longest time without a record, in seconds; end-of-partition events before the end do not count
            as records. The caller's time for a block is excluded.
        of_batch: whether the read is a step of a batch, with its failpoints; else it reads a ledger.
        after: fingerprint of the records before the range, which are read first and compared; None: nothing to compare.
        epoch: leader epoch of the partition, for messages; -1: unknown.

    Attributes:
        count: records returned so far.
        bytes: bytes of their keys and values.
        report: None until the end of the range has been proven.
        tail: fingerprint of the last records before the end of the range, then; None without records.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partition: int,
        span: Range,
        *,
        stall_timeout_s: float = 60.0,
        of_batch: bool = True,
        after: Tail | None = None,
        epoch: int = -1,
    ) -> None:
        self.count, self.seconds = 0, 0.0
        self.bytes = 0
        self._of_batch = of_batch
        self.report: ReadReport | None = None
        self._config, self._span, self._stall = config, span, stall_timeout_s
        self._topic, self._partition = topic, partition
        self._where = f"{topic}/{partition} {span}"
        self._secrets = secrets_in(config)
        self._voice = Voice(self._secrets)
        self._client: Client | None = None
        self.tail: Tail | None = None
        self._requests = RareRequests(config, topic, partition, self._where, self._secrets)
        self._tails = TailCheck(span, after, epoch, self._requests)
        self._last = self._tails.start - 1
        self._first_gap: int | None = None
        self._end_seen: int | None = None
        self._later: int | None = None
        self._doubtful = self._unreadable = False

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the client; takes a millisecond, also without a broker, and never longer than some seconds.

        Can be called again.
        """
        client, self._client = self._client, None
        if client is not None:
            client.close(keep=self.report is not None)
        self._requests.close()

    def start(self) -> None:
        """Start receiving records before the first is read. `blocks` reports errors."""
        if len(self._span) and self._client is None:
            with suppress(KpipeError, KafkaException):
                self._client = self._open()

    def blocks(self) -> Iterator[tuple[RecordBlock, int]]:
        """Yield blocks of records in offset order, each with the bytes of its keys and values; none is empty.

        The last block is returned after the end has been proven and the client is closed. Memory: a block and the
        client's queue (`queued.max.messages.kbytes`), whatever the length of the range.

        Raises:
            ReadStalled: no progress before the deadline.
            BrokerUnreachable: the log start could not be requested at the end.
            CredentialsRefused: authentication, authorization or TLS.
            TopicUnknown: the topic does not exist.
            ReadFailed: the broker or the client returned an error, offsets decreased, or retention removed offsets of the
                range while it was read.
        """
        began = time.monotonic()
        try:
            for block in self._blocks(began):
                self.seconds += time.monotonic() - began
                yield block
                began = time.monotonic()
            self.seconds += time.monotonic() - began
        except KafkaException as error:
            raise failure(error.args[0], self._where, self._secrets) from None
        finally:
            self.close()

    def _blocks(self, began: float) -> Iterator[tuple[RecordBlock, int]]:
        if not len(self._span):
            self.report = ReadReport(0, 0, 0, None, "empty", 0.0)
            return
        self._client, proof = self._client or self._open(), None
        heard, asked = time.monotonic(), False
        while proof is None:
            # Each record has an offset of its own, so the range cannot contain more than this.
            most = min(BLOCK_RECORDS, self._span.end - self._last - 1)
            taken = self._client.take(most, BLOCK_BYTES, _WAIT_SECONDS)
            proof = self._events(taken.events)
            held, size = taken.held, taken.size
            if len(held):
                if not self.count and self._of_batch:
                    failpoint("read.first")
                self._voice.heard()
                held, size, later = self._block(held, size)
                proof = "later_record" if later else "last_offset" if self._last == self._span.end - 1 else proof
            elif proof is None and not self._doubtful:
                self._check(heard)
                if not asked and time.monotonic() > heard + ASK_SECONDS:
                    asked = True
                    self._requests.check_topic()
                continue
            if self._unreadable and self._tails.waiting:
                self._tails.pass_over(f"{self._topic}/{self._partition}")
                self._last = self._span.start - 1
            if self._doubtful and proof is None:
                self._client.close()
                self._client, self._doubtful = self._open(fresh=True), False
            if proof is not None:
                self._finish(proof, began)
            if len(held):
                yield held, size
            heard, asked = time.monotonic(), False

    def _open(self, fresh: bool = False) -> Client:
        # A short range needs no read-ahead. Fixed values, because ranges with the same settings share a connection.
        config = {**self._config, "queued.min.messages": self._ahead()}
        try:
            where = self._voice, self._topic, self._partition, self._last + 1
            return NativeClient(config, *where, fresh) if available() else BindingClient(config, *where)
        except (KafkaException, ValueError, TypeError) as error:
            # From None: librdkafka quotes the rejected value.
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"{self._where}: the Kafka client rejects its settings: {what}") from None

    def _ahead(self) -> int:
        """Return the number of records to read ahead: at most the length of a short range."""
        configured = int(self._config.get("queued.min.messages", 100_000))
        return max(1, min(configured, 1000 if len(self._span) <= 1000 else configured))

    def _events(self, events: Iterable[Event]) -> str | None:
        """Return the proof of the end if one of the events is such a proof.

        Raises:
            SourceError: an event is an error of the partition.
        """
        proof = None
        for event in events:
            if event.error.code() == KafkaError._PARTITION_EOF:
                self._end_seen = event.offset
                # The partition ends below the range: the log was truncated, or the plan is wrong. Wait until the deadline.
                if event.offset >= self._span.end:
                    proof = "end_of_partition"
            elif not event.about_partition:
                # About the group, in which nothing is stored: its coordinator moved, or access to it is denied. Connection
                # errors are reported by the callback.
                self._voice.aside = event.error
            elif event.error.code() in OUT_OF_RANGE and self._client is not None and not self._client.fresh:
                # This event of librdkafka has no version (rd_kafka_offset_reset): on a kept connection, it may belong to an
                # earlier read; after a batch with a bad CRC, its offset is made of that batch's bytes.
                self._doubtful = True
            elif event.error.code() in OUT_OF_RANGE and self._tails.waiting and self._tails.expired():
                self._last, self._doubtful = self._tails.start - 1, True
            else:
                error = failure(event.error, f"{self._where}, after offset {self._last}", self._secrets)
                # Behind a damaged batch, the client goes on among its bytes, and reports what it takes for the next one.
                damaged = self._unreadable or isinstance(error, RecordsUnreadable)
                if not damaged or not self._tails.apart:
                    raise error
                # They were skipped because of that: the range behind them is read without them.
                self._unreadable = self._doubtful = True
        return proof

    def _block(self, held: RecordBlock, size: int) -> tuple[RecordBlock, int, bool]:
        """Return the records inside the range, their bytes, and whether a record was beyond its end."""
        offsets = held.column("offset").to_numpy()
        ordered = offsets[0] > self._last and bool((np.diff(offsets) > 0).all())
        if not ordered:
            raise ReadFailed(
                f"{self._where}: offsets do not increase: after {self._last} came {offsets[0]} to {offsets[-1]}",
                DAMAGED,
            )
        if self._tails.waiting:
            size -= self._tails.take(held.take(int(np.searchsorted(offsets, self._span.start))))
            if not len(held):
                self._last = int(offsets[-1])
                return held, size, False
            self._compare()
            offsets = held.column("offset").to_numpy()
        count = len(held)
        if self._first_gap is None and offsets[-1] != self._last + count:
            expected = np.arange(self._last + 1, self._last + 1 + count)
            self._first_gap = int(expected[np.argmax(offsets != expected)])
        later = bool(offsets[-1] >= self._span.end)
        if later:
            self._later = int(offsets[-1])
            held = held.take(int(np.searchsorted(offsets, self._span.end)))
            size = payload_bytes(held)
        if len(held):
            self._last = int(offsets[len(held) - 1])
            self._tails.add(held)
        self.count += len(held)
        self.bytes += size
        return held, size, later

    def _compare(self) -> None:
        """Compare the records before the range, unless that was done."""
        if self._tails.waiting:
            self._tails.compare(f"{self._topic}/{self._partition}")
            self._last = self._span.start - 1

    def _check(self, heard: float) -> None:
        """Raise an error if waiting for more records is useless."""
        final = self._voice.final(self._where)
        if final is not None:
            raise final
        if time.monotonic() < heard + self._stall:
            return
        at = f"no record for {self._stall:g} s after offset {self._last}"
        end = f"; the broker ends the partition at {self._end_seen}" if self._end_seen is not None else ""
        last = self._voice.explain()
        raise ReadStalled(
            f"{self._where}: {at}{end}{f'; the client reports: {last}' if last else ''}",
            "check the brokers; what was read is discarded and read again",
        )

    def _finish(self, proof: str, began: float) -> None:
        if self._of_batch:
            failpoint("read.end")
        self._compare()
        gaps = len(self._span) - self.count
        if gaps:
            self._check_log_start()
        last = self._last if self.count else None
        self.tail = self._tails.tail() if self._of_batch else None
        self.report = ReadReport(self.count, self.bytes, gaps, last, proof, time.monotonic() - began)
        self.close()

    def _check_log_start(self) -> None:
        """Prove that gaps are gaps: retention removed no missing offset during the read (A6), and the log contains a later
        record if that proved the end.

        The log start only grows. If it is still at or below the first missing offset, the log was complete when it was read.
        Records before that offset were read, so their later removal loses nothing.
        """
        first = self._last + 1 if self._first_gap is None else self._first_gap
        low, high = self._requests.watermarks()
        if self._later is not None and self._later >= high:
            raise ReadFailed(
                f"{self._where}: after offset {self._last} the broker gave offset {self._later}, but its log ends at {high}",
                DAMAGED,
            )
        if low > first:
            raise ReadFailed(
                f"{self._where}: retention removed records during the read: the log now starts at {low}, and nothing"
                f" was read at {first}",
                "run it again: the next plan compares the ledger with the log and reports missing offsets",
            )
