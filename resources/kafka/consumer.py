"""Interface of a client that reads one partition, and its implementation with confluent-kafka's objects."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from resources.kafka.errors import Voice
from resources.kafka.record_block import Headers, RecordBlock, pack_headers

__all__ = ["STEP", "BindingClient", "Client", "Event", "Taken", "ends_in_time"]

_CLOSE_SECONDS = 5.0
"""A client closes within milliseconds, or never: librdkafka deadlocks if the error "offset out of range" arrives at that
moment (its issues 4514 and 5476, open). Abandoning it loses nothing, while waiting would block the run forever."""

STEP = 500
"""Records taken from librdkafka at once: 2,000 of them do not fit the CPU cache and cost 15 % more (bench/studies/reader.py)."""


@dataclass(frozen=True)
class Event:
    """Error or notification that the client reports between records.

    Attributes:
        error: its error code and text.
        offset: its offset in the partition.
        about_partition: whether it concerns the partition, not the group or the connection.
    """

    error: KafkaError
    offset: int
    about_partition: bool


@dataclass(frozen=True)
class Taken:
    """Result of one `take`.

    Attributes:
        held: records in the order of arrival.
        size: bytes of their keys and values.
        events: in order; all of them arrived after the records.
    """

    held: RecordBlock
    size: int
    events: tuple[Event, ...] = ()


class Client(Protocol):
    """Reader of one partition from a start offset.

    Attributes:
        fresh: whether its connection was opened for this read, so that no event can concern an earlier one.
    """

    fresh: bool

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """Return records that have arrived, at most about this many records and bytes.

        Returns early after an event, or if nothing arrives for `wait_s` seconds.
        """
        ...

    def close(self, keep: bool = False) -> None:
        """Close; can be called again.

        Args:
            keep: whether the read succeeded, so that the connection can serve the next one.
        """
        ...


class BindingClient:
    """Client that uses confluent-kafka's objects, one for each record.

    Args:
        config: complete `client_config` of the source.
        voice: receives errors and log lines.
        topic, partition, start: of the first record to read.

    Raises:
        KafkaException, ValueError, TypeError: librdkafka rejects the settings.
    """

    fresh = True

    def __init__(self, config: Mapping[str, Any], voice: Voice, topic: str, partition: int, start: int) -> None:
        self._consumer: Consumer | None = Consumer(voice.connecting(config))
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """See `Client`."""
        assert self._consumer is not None
        messages: list[Message] = []
        events: list[Event] = []
        size = 0
        while len(messages) < most and size < most_bytes and not events:
            # Without a timeout, the call returns what has arrived; with one, it waits for that many records.
            some = self._consumer.consume(min(STEP, most - len(messages)), 0) or self._consumer.consume(1, wait_s)
            if not some:
                break
            if any(map(_error, some)):
                events = [Event(error, _place(m), m.topic() is not None) for m in some if (error := m.error()) is not None]
                some = [message for message in some if message.error() is None]
            messages += some
            size += sum(map(len, filter(None, map(_value, some)))) + sum(map(len, filter(None, map(_key, some))))
        return Taken(_held(messages), size, tuple(events))

    def close(self, keep: bool = False) -> None:
        """See `Client`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            ends_in_time(consumer.close)


class _Closer:
    """Thread that closes clients, one at a time. Starting a thread for each of 1,000 ranges takes longer than closing them."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], None], threading.Event]] = SimpleQueue()
        self.usable = True
        threading.Thread(target=self._run, name="kafka-close", daemon=True).start()

    def close(self, close: Callable[[], None]) -> bool:
        """Return False if the call hangs; this thread cannot be used again then."""
        done = threading.Event()
        self._work.put((close, done))
        return done.wait(_CLOSE_SECONDS)

    def _run(self) -> None:
        while self.usable:
            close, done = self._work.get()
            self.usable = False  # stays so if an unexpected error ends the thread
            try:
                with suppress(RuntimeError, KafkaException):
                    close()
                self.usable = True
            finally:
                done.set()
            del close, done  # an idle thread keeps no client


# Idle threads by process: a forked process has none of them.
_IDLE: dict[int, list[_Closer]] = {}


def ends_in_time(close: Callable[[], None]) -> bool:
    """Close a librdkafka client; return False if that hangs and the client was abandoned with its threads."""
    idle = _IDLE.setdefault(os.getpid(), [])
    try:
        closer = idle.pop()
    except IndexError:
        closer = _Closer()
    if closer.close(close):
        if closer.usable:
            idle.append(closer)
        return True
    logging.getLogger("kpipe.kafka").warning("a Kafka client does not close; it was abandoned")
    return False


# Unbound methods: `map` calls them without a Python frame or an attribute lookup for each record.
_error, _place, _value, _key, _timestamp, _headers = (
    Message.error, cast("Callable[[Message], int]", Message.offset), Message.value, Message.key, Message.timestamp,
    cast("Callable[[Message], Headers | None]", Message.headers),
)  # fmt: skip


def _held(messages: list[Message]) -> RecordBlock:
    if not messages:
        return RecordBlock()
    headers = list(map(_headers, messages))
    held = RecordBlock.of(
        list(map(_place, messages)),
        [at for _, at in map(_timestamp, messages)],
        list(map(_value, messages)),
        list(map(_key, messages)),
    )
    if any(headers):
        packed = pa.array([None if item is None else pack_headers(list(item)) for item in headers], pa.binary())
        held = RecordBlock(held.table.set_column(4, "headers", packed))
    return held
