"""A bounded read of one partition, inside a task: `[start, end)`, in blocks, to an end that is proven.

Rules: docs/design.md, section 6. `assign` at the start, never `seek`, never a group's offset. Silence proves nothing, a count
proves nothing: only an offset or an end-of-partition event does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import lt
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kpipe.errors import InvalidPipeline, ReadFailed, ReadStalled
from kpipe.faults import reach
from kpipe.offsets import Range
from resources.kafka.failures import Voice, failure
from resources.kafka.held import Held
from resources.kafka.secret import redact, secrets_in

__all__ = ["RangeReader", "ReadReport"]

_TAKE = 500
"""Records taken from the client at once: with 2,000 they leave the processor's cache and cost 15 % more (bench/reader.py)."""

_WAIT_SECONDS = 0.2
"""Longest sleep in the client when it holds no record: how soon refused credentials or the deadline are noticed."""

_ASK_SECONDS = 2.0
"""Silence after which the brokers are asked for the topic; and how long that may take."""

_LOG_START_SECONDS = 10.0

# Methods taken from the class once: `map` then calls them without a Python frame or a lookup for each record.
_error, _offset, _value, _key, _timestamp = (
    Message.error, Message.offset, Message.value, Message.key, Message.timestamp,
)  # fmt: skip


@dataclass(frozen=True)
class ReadReport:
    """What a finished read has proven.

    Attributes:
        records: number of records.
        bytes: of their keys and values.
        gaps: offsets of the range without a record.
        last: offset of the last record; None if there was none.
        proof: what showed that the range is complete: `last_offset` (the record at `end - 1`), `later_record` (one at
            or beyond `end`), `end_of_partition` (the event, at or beyond `end`), `empty` (nothing was to be read).
        seconds: from opening the client to the proof, the caller's own work in between included.
    """

    records: int
    bytes: int
    gaps: int
    last: int | None
    proof: str
    seconds: float


class RangeReader:
    """Reads one range once. A context manager: leaving it closes the client, whatever happened.

    Nothing that it gave may be kept unless `blocks` ended by itself, without an error.

    Args:
        config: `client_config` of the source.
        topic: topic's name.
        partition: partition's number.
        span: what to read, `[start, end)`; an empty range needs no broker.
        stall_timeout_s: longest time without a record, or with nothing but unfinished ends, in seconds. The time that
            the caller spends on a block does not count.

    Attributes:
        count: records given so far.
        bytes: bytes of their keys and values.
        report: None until the end of the range has been proven.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partition: int,
        span: Range,
        *,
        stall_timeout_s: float = 60.0,
    ) -> None:
        self.count = 0
        self.bytes = 0
        self.report: ReadReport | None = None
        self._config, self._span, self._stall = config, span, stall_timeout_s
        self._topic, self._partition = topic, partition
        self._where = f"{topic}/{partition} {span}"
        self._secrets = secrets_in(config)
        self._voice = Voice(self._secrets)
        self._consumer: Consumer | None = None
        self._last = span.start - 1
        self._first_gap: int | None = None
        self._end_seen: int | None = None

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the client; takes a millisecond, also when the broker is gone. Can be called again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(RuntimeError, KafkaException):
                consumer.close()

    def blocks(self) -> Iterator[tuple[Held, int]]:
        """Blocks of records in offset order, each with the bytes of its keys and values; none is empty.

        The last block is given after the end has been proven and the client is closed. Memory: a block and the
        client's queue (`queued.max.messages.kbytes`), whatever the length of the range.

        Raises:
            ReadStalled: no progress before the deadline.
            BrokerUnreachable: the log start could not be asked for at the end.
            CredentialsRefused: authentication, authorization or TLS.
            TopicUnknown: the topic is gone.
            ReadFailed: the broker or the client refused, offsets went backwards, or retention removed offsets of the
                range while it was read.
        """
        try:
            yield from self._blocks(time.monotonic())
        except KafkaException as error:
            raise failure(error.args[0], self._where, self._secrets) from None
        finally:
            self.close()

    def _blocks(self, began: float) -> Iterator[tuple[Held, int]]:
        if not len(self._span):
            self.report = ReadReport(0, 0, 0, None, "empty", 0.0)
            return
        consumer, proof = self._open(), None
        heard, asked = time.monotonic(), False
        while proof is None:
            # Each record takes an offset, so the range cannot hold more than that. The first call takes what is there
            # without waiting (with a timeout, `consume` would wait until it has that many), the second sleeps.
            most = min(_TAKE, self._span.end - self._last - 1)
            messages = consumer.consume(most, 0) or consumer.consume(1, _WAIT_SECONDS)
            if any(map(_error, messages)):
                messages, proof = self._events(messages)
            block, size = Held(), 0
            if messages:
                reach("read.first")
                self._voice.heard()
                block, size, later = self._block(messages)
                proof = "later_record" if later else "last_offset" if self._last == self._span.end - 1 else proof
            elif proof is None:
                self._check(heard)
                if not asked and time.monotonic() > heard + _ASK_SECONDS:
                    asked = True
                    self._ask(consumer)
                continue
            if proof is not None:
                self._finish(consumer, proof, began)
            if len(block):
                yield block, size
            heard, asked = time.monotonic(), False

    def _open(self) -> Consumer:
        try:
            consumer = Consumer({**self._config, "queued.min.messages": self._ahead(), **self._voice.settings()})
        except (KafkaException, ValueError, TypeError) as error:
            # From None: librdkafka quotes the value that it does not like.
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"{self._where}: the Kafka client refuses its settings: {what}") from None
        self._consumer = consumer
        consumer.assign([TopicPartition(self._topic, self._partition, self._span.start)])
        return consumer

    def _ahead(self) -> int:
        """Records that the client tries to hold ahead: no more than a short range has."""
        asked = int(self._config.get("queued.min.messages", 100_000))
        return max(1, min(asked, len(self._span)))

    def _events(self, messages: list[Message]) -> tuple[list[Message], str | None]:
        """The records among what the client gave, and the proof of the end if an event is one.

        Raises:
            SourceError: some event is an error. None that concerns the partition is passed over.
        """
        records: list[Message] = []
        proof = None
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._end_seen = message.offset()
                # An end below ours: the log was cut, or the plan is wrong. More may come, or the deadline does.
                if self._end_seen is not None and self._end_seen >= self._span.end:
                    proof = "end_of_partition"
            elif message.topic() is None:
                # About the group, in which nothing is stored: its coordinator moved, or may not be asked. What became
                # of the connection is told by the callback.
                self._voice.aside = error
            else:
                raise failure(error, f"{self._where}, after offset {self._last}", self._secrets)
        return records, proof

    def _block(self, messages: list[Message]) -> tuple[Held, int, bool]:
        """The records of the range among them, their bytes, and whether one lay beyond its end."""
        offsets: list[Any] = list(map(_offset, messages))
        count = len(offsets)
        if offsets[0] == self._last + 1 and offsets[-1] == self._last + count:
            ordered = offsets == list(range(offsets[0], offsets[0] + count))
        else:
            ordered = offsets[0] > self._last and all(map(lt, offsets, islice(offsets, 1, None)))
            if ordered and self._first_gap is None:
                expected = range(self._last + 1, self._last + 1 + count)
                self._first_gap = next((want for want, found in zip(expected, offsets, strict=True) if want != found))
        if not ordered:
            raise ReadFailed(
                f"{self._where}: offsets do not increase: after {self._last} came {offsets[0]} to {offsets[-1]}",
                "run it again; if it comes back, the broker's log is damaged",
            )
        later = offsets[-1] >= self._span.end
        if later:
            count = sum(offset < self._span.end for offset in offsets)
            messages, offsets = messages[:count], offsets[:count]
        if offsets:
            self._last = offsets[-1]
        values = list(map(_value, messages))
        size = sum(map(len, filter(None, values))) + sum(map(len, filter(None, map(_key, messages))))
        self.count += count
        self.bytes += size
        return Held(offsets, [at for _, at in map(_timestamp, messages)], values, messages), size, later

    def _ask(self, consumer: Consumer) -> None:
        """The client does not tell of a topic that may not be seen, and is slow to tell of one that is gone."""
        with suppress(KafkaException):  # the deadline decides about brokers that do not answer
            told = consumer.list_topics(self._topic, timeout=_ASK_SECONDS).topics.get(self._topic)
            if told is not None and told.error is not None:
                raise failure(told.error, self._where, self._secrets)

    def _check(self, heard: float) -> None:
        """Nothing has come since then: whether that can be waited out."""
        final = self._voice.final(self._where)
        if final is not None:
            raise final
        if time.monotonic() < heard + self._stall:
            return
        at = f"no record for {self._stall:g} s after offset {self._last}"
        end = f"; the broker ends the partition at {self._end_seen}" if self._end_seen is not None else ""
        last = self._voice.explain()
        raise ReadStalled(
            f"{self._where}: {at}{end}{f'; the client says: {last}' if last else ''}",
            "check the brokers; what was read is discarded and read again",
        )

    def _finish(self, consumer: Consumer, proof: str, began: float) -> None:
        reach("read.end")
        gaps = len(self._span) - self.count
        if gaps:
            self._check_log_start(consumer)
        self.close()
        last = self._last if self.count else None
        self.report = ReadReport(self.count, self.bytes, gaps, last, proof, time.monotonic() - began)

    def _check_log_start(self, consumer: Consumer) -> None:
        """Proof that gaps were gaps: no offset that gave no record can have been removed while we read (A6).

        The log start only grows. Where it is still at or below the first missing offset, all that is missing was missing
        from a log that had it; records before that were read, and what retention does to them afterwards is no loss.
        """
        first = self._last + 1 if self._first_gap is None else self._first_gap
        place = TopicPartition(self._topic, self._partition)
        try:
            consumer.unassign()
            low, _ = consumer.get_watermark_offsets(place, timeout=_LOG_START_SECONDS, cached=False)
        except KafkaException as error:
            raise failure(error.args[0], f"{self._where}: asking for the log start", self._secrets) from None
        if low > first:
            raise ReadFailed(
                f"{self._where}: retention removed records during the read: the log now starts at {low}, and nothing"
                f" was read at {first}",
                "run it again: the next plan compares the ledger with the log and says what is gone",
            )
