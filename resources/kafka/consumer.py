"""A client of one partition: gives what came in since the last time. Two make it: the binding's, and compiled code's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from resources.kafka.errors import Voice
from resources.kafka.record_block import Headers, Held, pack_headers

__all__ = ["STEP", "BindingClient", "Client", "Event", "Taken", "ends_in_time"]

_CLOSE_SECONDS = 5.0
"""A client closes within milliseconds, or never: librdkafka locks itself out where the answer "offset out of range" comes in
just then (its issues 4514 and 5476, open). Nothing is lost by leaving it behind; to wait would hold up the run for ever."""

STEP = 500
"""Records taken from librdkafka at once: with 2,000 they leave the processor's cache and cost 15 % more (bench/reader.py)."""


@dataclass(frozen=True)
class Event:
    """What the client says among the records.

    Attributes:
        error: what it is about.
        offset: where it stands.
        about_partition: whether it is about the partition, and not about the group or the connection.
    """

    error: KafkaError
    offset: int
    about_partition: bool


@dataclass(frozen=True)
class Taken:
    """What one `take` gave.

    Attributes:
        held: records in the order in which they came.
        size: bytes of their keys and values.
        events: in order; all of them came after the records.
    """

    held: Held
    size: int
    events: tuple[Event, ...] = ()


class Client(Protocol):
    """Reads one partition from a start offset on.

    Attributes:
        fresh: whether its connection was made for this read, so that nothing that it says can be about an earlier one.
    """

    fresh: bool

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """What has come in: up to so many records and about so many bytes of them; ends early where nothing more comes
        in for `wait_s` seconds, or with an event.
        """
        ...

    def close(self, keep: bool = False) -> None:
        """Close; can be called again.

        Args:
            keep: whether all went well, so that the connection can serve the next read.
        """
        ...


class BindingClient:
    """By confluent-kafka's objects: an object a record.

    Args:
        config: `client_config` of the source, complete.
        voice: hears errors and log lines.
        topic, partition, start: from where to read.

    Raises:
        KafkaException, ValueError, TypeError: the settings are refused.
    """

    fresh = True

    def __init__(self, config: Mapping[str, Any], voice: Voice, topic: str, partition: int, start: int) -> None:
        self._consumer: Consumer | None = Consumer({**config, **voice.settings()})
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """See `Client`."""
        assert self._consumer is not None
        messages: list[Message] = []
        events: list[Event] = []
        size = 0
        while len(messages) < most and size < most_bytes and not events:
            # The first call takes what is there without waiting; with a timeout, it would wait until it has that many.
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


def ends_in_time(close: Callable[[], None]) -> bool:
    """Close something of librdkafka's; False when that hangs, and it was left behind with its threads."""

    def work() -> None:
        with suppress(RuntimeError, KafkaException):
            close()

    thread = threading.Thread(target=work, name="kafka-close", daemon=True)
    thread.start()
    thread.join(_CLOSE_SECONDS)
    if thread.is_alive():
        logging.getLogger("kpipe.kafka").warning("a client does not close; it was left behind")
    return not thread.is_alive()


# Methods taken from the class once: `map` then calls them without a Python frame or a lookup for each record.
_error, _place, _value, _key, _timestamp, _headers = (
    Message.error, cast("Callable[[Message], int]", Message.offset), Message.value, Message.key, Message.timestamp,
    cast("Callable[[Message], Headers | None]", Message.headers),
)  # fmt: skip


def _held(messages: list[Message]) -> Held:
    if not messages:
        return Held()
    headers = list(map(_headers, messages))
    held = Held.of(
        list(map(_place, messages)),
        [at for _, at in map(_timestamp, messages)],
        list(map(_value, messages)),
        list(map(_key, messages)),
    )
    if any(headers):
        packed = pa.array([None if item is None else pack_headers(list(item)) for item in headers], pa.binary())
        held = Held(held.table.set_column(4, "headers", packed))
    return held
