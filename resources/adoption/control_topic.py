"""Count the files in the control topic of Iceberg's sink that no commit of the table contains yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline, ReadStalled
from resources.adoption.control_events import DATA_WRITTEN, InvalidEvent, event
from resources.kafka.client_config import client_config
from resources.kafka.consumer import ends_in_time
from resources.kafka.errors import Voice, failure
from resources.kafka.rare_requests import watermark_offsets
from resources.secrets import redact, secrets_in

__all__ = ["Waiting", "waiting_files"]

_STALL_S = 60.0
_WAIT_S = 0.5
_REQUEST_S = 10.0


@dataclass(frozen=True)
class Waiting:
    """Events beyond the offsets that the table's snapshot records.

    Attributes:
        written: events with files that are not in the table.
        partition, offset: the first of them.
        expired: whether Kafka has deleted events beyond the recorded offsets, so that more may be missing.
    """

    written: int = 0
    partition: int = 0
    offset: int = 0
    expired: bool = False


def waiting_files(source: Source, topic: str, group: str, offsets: Mapping[int, int]) -> Waiting:
    """Read the control topic from these offsets to its end. Memory does not depend on the number of events.

    Args:
        source: brokers, settings and credentials.
        topic: the control topic.
        group: connect group of the sink; events of other sinks are left out.
        offsets: next offset by partition, as a snapshot of the table records them; missing partitions are read whole.

    Raises:
        SourceError: the topic cannot be read.
    """
    config = {**client_config(source), "isolation.level": "read_committed"}
    secrets = secrets_in(config)
    voice = Voice(secrets)
    try:
        client = Consumer(voice.connecting(config))
    except (KafkaException, ValueError, TypeError) as error:
        raise InvalidPipeline(f"the Kafka client rejects its settings: {redact(str(error), secrets)}") from None
    try:
        metadata = client.list_topics(topic, timeout=_REQUEST_S).topics.get(topic)
        if metadata is None or metadata.error is not None or not metadata.partitions:
            hint = "check iceberg.control.topic; without its events nothing proves that all files are in the table"
            raise InvalidPipeline(f"control topic {topic} does not exist in this cluster", hint)
        found = Waiting()
        for number in sorted(metadata.partitions):
            found = _read(client, voice, topic, number, offsets.get(number, 0), group, found)
        return found
    except KafkaException as error:
        raise failure(error.args[0], f"control topic {topic}", secrets) from None
    finally:
        ends_in_time(client.close)


def _read(client: Consumer, voice: Voice, topic: str, number: int, start: int, group: str, found: Waiting) -> Waiting:
    low, high = watermark_offsets(client, TopicPartition(topic, number), _REQUEST_S)
    expired = found.expired or low > start
    written, first, place = found.written, found.offset, found.partition
    if max(low, start) < high:
        client.assign([TopicPartition(topic, number, max(low, start))])
        heard = time.monotonic()
        while True:
            message = client.poll(_WAIT_S)
            error = message.error() if message is not None else None
            if message is None:
                if (final := voice.final(f"control topic {topic}")) is not None:
                    raise final
                if time.monotonic() > heard + _STALL_S:
                    raise ReadStalled(f"control topic {topic}/{number}: no event for {_STALL_S:g} s", "check the brokers")
                continue
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                if message.topic() is None:
                    voice.aside = error
                    continue
                raise KafkaException(error)
            voice.heard()
            heard = time.monotonic()
            if _is_written(message.value(), group):
                if not written:
                    first, place = int(message.offset() or 0), number
                written += 1
            if int(message.offset() or 0) >= high - 1:
                break
    return Waiting(written, place, first, expired)


def _is_written(value: bytes | None, group: str) -> bool:
    try:
        return event(value or b"") == (DATA_WRITTEN, group)
    except InvalidEvent:
        return False
