"""Records as bad as Kafka allows: huge, bombs, of any time, with any bytes; and other groups that meddle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Source
from kpipe.errors import RecordsUnreadable
from kpipe.offsets import Range
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import left, produce

pytestmark = pytest.mark.broker

MB = 1 << 20
ANY_TIME = {"message.timestamp.after.max.ms": str(2**62), "message.timestamp.before.max.ms": str(2**62), "retention.ms": "-1"}


def read(brokers: str, topic: str, span: Range, **config: Any) -> RecordBlock:
    settings = client_config(Source(brokers=brokers, topic=topic, config=config), {})
    whole = RecordBlock()
    with RangeReader(settings, topic, 0, span, stall_timeout_s=300) as reader:
        for block, _ in reader.blocks():
            whole.extend(block)
        assert reader.report is not None
    return whole


def test_times_from_before_1601_to_the_end_of_all_calendars(brokers: str, topic: Callable[..., str]) -> None:
    times = [-1, -11_644_473_600_000, 1, 253_402_300_799_999, 1_795_000_000_000_000_000, 2**62]
    name = topic(**ANY_TIME)
    produce(brokers, name, [{"value": b"%d" % at, "timestamp": at} for at in times])
    assert read(brokers, name, Range(0, 6)).timestamps == times


def test_the_brokers_time_where_the_topic_wants_it(brokers: str, topic: Callable[..., str]) -> None:
    name = topic(**{"message.timestamp.type": "LogAppendTime"})
    produce(brokers, name, [{"value": b"x", "timestamp": 1}])
    (at,) = read(brokers, name, Range(0, 1)).timestamps
    assert at > 1_600_000_000_000, "not the producer's time"


BOMB = """
import resource, sys
from kpipe.offsets import Range
from kpipe.definition.pipeline import Source
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
brokers, topic = sys.argv[1:]
config = client_config(Source(brokers=brokers, topic=topic, config={"receive.message.max.bytes": 2_000_000}), {})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with RangeReader(config, topic, 0, Range(0, 2), stall_timeout_s=300) as reader:
    sizes = [len(value) for block, _ in reader.blocks() for value in block.values]
print(*sizes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd", "snappy"])
def test_decompression_bomb(brokers: str, topic: Callable[..., str], compression: str) -> None:
    """40 MB of zeros in some kilobytes, twenty times what the pipeline lets a response have.

    librdkafka unpacks a batch whole: Zstandard up to receive.message.max.bytes, the others without a limit. So a worker's
    memory is bounded by what the brokers take (max.message.bytes) times what the compression can do: gzip and lz4 some
    thousand and 255 times, Snappy 21 times.
    """
    name = topic(**{"max.message.bytes": str(4 * MB)})
    bomb = bytes(40 * MB)
    produce(brokers, name, [b"small", bomb], **{"compression.type": compression, "message.max.bytes": 64 * MB})
    done = subprocess.run([sys.executable, "-c", BOMB, brokers, name], capture_output=True, text=True, timeout=600, check=False)
    if compression == "zstd":
        assert done.returncode == 1
        assert "RecordsUnreadable" in done.stderr and "raise source.config receive.message.max.bytes" in done.stderr
        with pytest.raises(RecordsUnreadable, match=rf"{name}/0 \[0, 2\)"):
            read(brokers, name, Range(0, 2), **{"receive.message.max.bytes": 2_000_000})
        assert read(brokers, name, Range(0, 2)).values == [b"small", bomb]
    else:
        small, large, grown = map(int, done.stdout.split())
        assert (small, large) == (5, 40 * MB)
        assert grown < 400 * 1024  # KB: some copies of the record, and no more


def test_other_groups_are_of_no_interest(brokers: str, topic: Callable[..., str]) -> None:
    """Somebody joins the group that kpipe names but does not use, commits for it, and deletes it."""
    name = topic()
    produce(brokers, name, [b"%d" % at for at in range(20)])
    source = Source(brokers=brokers, topic=name)
    group = str(client_config(source, {})["group.id"])
    meddler = Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    admin = AdminClient({"bootstrap.servers": brokers})
    try:
        meddler.subscribe([name])
        deadline = time.monotonic() + 300
        while not meddler.assignment():
            meddler.poll(0.1)
            assert time.monotonic() < deadline
        meddler.commit(offsets=[TopicPartition(name, 0, 17)], asynchronous=False)
        before = KafkaTopics(source).snapshot()
        assert read(brokers, name, Range(0, 20)).offsets == list(range(20))
        assert read(brokers, name, Range(3, 9)).offsets == list(range(3, 9))
        # kpipe has neither joined nor committed.
        (told,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0)])]).values()
        assert [found.offset for found in told.result(300).topic_partitions] == [17]
        members = admin.describe_consumer_groups([group])[group].result(300).members
        assert len(members) == 1
    finally:
        meddler.close()
    left(brokers, group)
    admin.delete_consumer_groups([group])[group].result(300)
    assert read(brokers, name, Range(0, 20)).offsets == list(range(20))
    assert KafkaTopics(source).snapshot() == before
    found = admin.list_consumer_groups().result(300).valid
    assert group not in [each.group_id for each in found]
