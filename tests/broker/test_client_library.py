"""What librdkafka does, and our reader is written around (docs/explanation/reliability.md, "Libraries")."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.broker.node import produce

pytestmark = pytest.mark.broker


@pytest.fixture
def ten(brokers: str, topic: Callable[..., str]) -> str:
    """A topic of one partition that holds offsets 0 to 9."""
    name = topic()
    produce(brokers, name, [{"value": b"%d" % n} for n in range(10)])
    return name


def first(brokers: str, topic: str, offset: int, reset: str) -> Any:
    """What a consumer that begins at that offset is given first."""
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
         "enable.partition.eof": True, "auto.offset.reset": reset, "log_level": 0}
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(300)
        assert message is not None
        return message.error().code() if message.error() else message.offset()
    finally:
        consumer.close()


def test_13_an_offset_beyond_the_end_rewinds_silently_unless_told_not_to(brokers: str, ten: str) -> None:
    assert first(brokers, ten, 15, "earliest") == 0
    assert first(brokers, ten, 15, "error") == KafkaError._AUTO_OFFSET_RESET


def test_end_of_partition_says_where_and_the_position_does_not(brokers: str, ten: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True, "auto.offset.reset": "error"}
    )
    try:
        consumer.assign([TopicPartition(ten, 0, 10)])
        message = consumer.poll(300)
        error = message.error() if message is not None else None
        assert message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF
        assert message.offset() == 10
        (position,) = consumer.position([TopicPartition(ten, 0)])
        assert position.offset < 0  # nothing was delivered, so it has none
    finally:
        consumer.close()
