"""A consumer group that follows the commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from kpipe.batch.batch import Commit, Committed
from kpipe.definition.pipeline import Source
from kpipe.ledger.ledger import Lane, LaneChange
from resources.kafka import consumer_group
from resources.kafka.consumer_group import GroupOffsets
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import left

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch does not wait long for the group; a test on a busy machine does."""
    monkeypatch.setattr(consumer_group, "_PATIENCE_S", 120.0)


def offsets(brokers: str, name: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": name})
    try:
        return [place.offset for place in consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=600)]
    finally:
        consumer.close()


def test_its_offsets_are_those_of_the_heads_that_a_commit_moved(brokers: str, topic: Callable[..., str]) -> None:
    name = topic(3)
    topics = KafkaTopics(Source(brokers=brokers, topic=name, group=f"kpipe-{name}"))
    zero, one, two = sorted(topics.snapshot().partitions)
    moved = (
        LaneChange(Lane(zero, 0, 5), Lane(zero, 0, 12)),
        LaneChange(Lane(one, 0, 5, 100), Lane(one, 0, 50, 100)),  # a backfill
        LaneChange(None, Lane(two, 7, 7)),
    )
    done = Committed(Commit("b" * 32, "p", moved), 1)
    deadline = time.monotonic() + 300
    while not GroupOffsets(Source(brokers=brokers, topic=name, group=f"kpipe-{name}")).follow({zero: 1}):
        assert time.monotonic() < deadline  # a new cluster makes the topic for groups at the first use
    topics.follow(done.heads())
    assert offsets(brokers, f"kpipe-{name}", name, 3) == [12, -1001, 7]
    topics.follow({zero: 3})  # an offset that an operator moved back
    assert offsets(brokers, f"kpipe-{name}", name, 1) == [3]


def test_without_a_group_nothing_is_asked(topic: Callable[..., str]) -> None:
    topics = KafkaTopics(Source(brokers="127.0.0.1:1", topic="t"))
    topics.follow({})


def test_a_group_with_members_is_told_once_and_nothing_else_happens(
    brokers: str, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    topics = KafkaTopics(Source(brokers=brokers, topic=name, group=f"busy-{name}"))
    (zero,) = topics.snapshot().partitions
    member = Consumer({"bootstrap.servers": brokers, "group.id": f"busy-{name}", "auto.offset.reset": "earliest"})
    try:
        member.subscribe([name])
        while not member.assignment():
            member.poll(0.2)
        with caplog.at_level(logging.WARNING, "kpipe.kafka"):
            topics.follow({zero: 3})
            topics.follow({zero: 4})
        assert len([record for record in caplog.records if f"busy-{name}" in record.message]) == 1
    finally:
        member.close()
    left(brokers, f"busy-{name}")
    topics.follow({zero: 5})
    assert offsets(brokers, f"busy-{name}", name, 1) == [5]
