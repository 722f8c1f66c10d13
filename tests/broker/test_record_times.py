"""Times of committed and unread records, from the time index of a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Source
from resources.kafka.record_times import RecordTimes
from resources.kafka.topic_metadata import KafkaTopics


@pytest.mark.broker
def test_times_before_and_after_a_position(brokers: str, topic: Callable[..., str]) -> None:
    name, began = topic(5), int(time.time() * 1000) - 3_600_000
    producer = Producer({"bootstrap.servers": brokers})
    for partition in (0, 1, 2):
        for at in range(50):
            producer.produce(name, b"x", partition=partition, timestamp=began + at * 1000 + partition)
    for at, moment in enumerate((5000, 9000, 7000, 12_000, 8000)):  # a producer with an uneven clock
        producer.produce(name, b"%d" % at, partition=3, timestamp=began + moment)
    assert producer.flush(300) == 0
    place = TopicPartition(name, 2, 40)
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.delete_records([place])[place].result(300)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    sources = sorted(topics.snapshot().partitions)
    positions = dict(zip(sources, (50, 20, 10, 3, 0), strict=True))
    found = topics.times(positions)
    assert {source.partition: times for source, times in found.items()} == {
        0: RecordTimes(began + 49_000, None),
        1: RecordTimes(began + 19_001, began + 20_001),
        2: RecordTimes(None, began + 40_002),
        3: RecordTimes(began + 9000, began + 12_000),
        4: RecordTimes(None, None),
    }
    assert topics.times({}) == {}
