"""Bounded reads against a real Kafka: every range ends where it should, and no other way."""

from __future__ import annotations

import itertools
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, InvalidPipeline, ReadFailed, ReadStalled, TopicUnknown
from kpipe.offsets import Range
from resources.kafka import native_consumer
from resources.kafka import range_reader as reader_module
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader, ReadReport
from resources.kafka.record_block import RecordBlock
from tests.patience import longer

pytestmark = pytest.mark.broker


@pytest.fixture(params=["compiled", "binding"], autouse=True)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test with both clients."""
    if request.param == "compiled":
        if not shutil.which("cc"):
            pytest.skip("no C compiler here, so there is no compiled part")
        assert native_consumer.available(), "the compiled part is not built -> make install"
    else:
        monkeypatch.setattr(reader_module, "available", lambda: False)


@pytest.fixture
def config(brokers: str) -> dict[str, Any]:
    return client_config(Source(brokers=brokers, topic="any"), {})


@pytest.fixture
def admin(brokers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers})


def produce(brokers: str, topic: str, values: list[Any], partition: int = 0, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": brokers, **settings})
    refused: list[Any] = []
    for value in values:
        record = value if isinstance(value, dict) else {"value": value}
        producer.produce(topic, partition=partition, on_delivery=lambda error, _: error and refused.append(error), **record)
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not refused


class Transactions:
    """A transactional producer."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.topic = topic
        # Brokers abort a transaction that stays open for longer; a busy machine needs more than the default of a minute.
        settings = {"transactional.id": f"of-{topic}", "transaction.timeout.ms": 900_000}
        self.producer = Producer({"bootstrap.servers": brokers, **settings})
        self.producer.init_transactions(300)
        self._watch = Consumer({"bootstrap.servers": brokers, "group.id": "watch"})

    def begin(self, count: int) -> None:
        self.producer.begin_transaction()
        for at in range(count):
            self.producer.produce(self.topic, b"%d" % at, partition=0)
            self.producer.poll(0)
        assert self.producer.flush(300) == 0

    def commit(self, count: int) -> None:
        self.begin(count)
        with self._marker():
            self.producer.commit_transaction(300)

    def abort(self, count: int) -> None:
        self.begin(count)
        with self._marker():
            self.producer.abort_transaction(300)

    @contextmanager
    def _marker(self) -> Iterator[None]:
        """The coordinator answers before the marker is in the log; what is written meanwhile would stand before it."""
        before = self._high()
        yield
        while self._high() == before:
            time.sleep(0.01)

    def _high(self) -> int:
        return int(self._watch.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=600, cached=False)[1])


def joined(blocks: Iterator[tuple[RecordBlock, int]]) -> tuple[RecordBlock, int]:
    """All blocks in one, and the sum of their sizes."""
    whole, size = RecordBlock(), 0
    for block, more in blocks:
        assert len(block) > 0
        whole.extend(block)
        size += more
    return whole, size


def read(config: dict[str, Any], topic: str, span: Range, **options: Any) -> tuple[RecordBlock, ReadReport]:
    with RangeReader(config, topic, 0, span, **options) as reader:
        whole, size = joined(reader.blocks())
        report = reader.report
    assert report is not None
    assert (report.records, report.bytes) == (len(whole), size) == (reader.count, reader.bytes)
    assert report.gaps == len(span) - len(whole)
    assert report.last == (whole.offsets[-1] if len(whole) else None)
    return whole, report


def test_every_range_over_committed_aborted_and_plain_records(
    brokers: str, config: dict[str, Any], topic: Callable[..., str]
) -> None:
    name = topic()
    transactions = Transactions(brokers, name)
    transactions.commit(3)  # 0 1 2, marker at 3
    transactions.abort(10)  # 4 to 13, marker at 14
    transactions.commit(2)  # 15 16, marker at 17
    produce(brokers, name, [b"plain", b"plain"])  # 18 19
    transactions.abort(1)  # 20, marker at 21
    visible = {0, 1, 2, 15, 16, 18, 19}
    bounds = [*range(7), *range(12, 23)]  # within the aborted ones, all are alike
    for start, end in itertools.combinations_with_replacement(bounds, 2):
        whole, report = read(config, name, Range(start, end), stall_timeout_s=300)
        assert whole.offsets == sorted(visible & set(range(start, end))), (start, end)
        assert (report.proof == "empty") == (start == end)
        if report.proof == "last_offset":
            assert end - 1 in visible


def test_open_transaction_ends_the_read_at_the_last_stable_offset(
    brokers: str, config: dict[str, Any], topic: Callable[..., str]
) -> None:
    name = topic()
    transactions = Transactions(brokers, name)
    transactions.commit(3)
    transactions.begin(4)  # 4 to 7, open
    whole, report = read(config, name, Range(0, 4))
    assert (whole.offsets, report.proof) == ([0, 1, 2], "end_of_partition")

    def stalled(limit_s: float) -> None:
        with pytest.raises(ReadStalled, match=rf"{name}/0 \[0, 8\): no record for {limit_s:g} s after offset 2; .* at 4"):
            read(config, name, Range(0, 8), stall_timeout_s=limit_s)

    longer(stalled, 8, 120)  # the first three records must come within it
    transactions.producer.commit_transaction(300)
    assert read(config, name, Range(0, 9))[0].offsets == [0, 1, 2, 4, 5, 6, 7]


def test_blocks_of_a_long_range(brokers: str, config: dict[str, Any], topic: Callable[..., str]) -> None:
    name = topic()
    produce(brokers, name, [b"%05d" % at for at in range(20_000)])
    whole, report = read(config, name, Range(777, 19_001))
    assert whole.offsets == list(range(777, 19_001))
    assert whole.values == [b"%05d" % at for at in range(777, 19_001)]
    assert report == ReadReport(18_224, 18_224 * 5, 0, 19_000, "last_offset", report.seconds)
    for at in (0, 1, 9_999, 19_999):
        assert read(config, name, Range(at, at + 1))[0].values == [b"%05d" % at]


def test_records_come_as_they_were_written(brokers: str, config: dict[str, Any], topic: Callable[..., str]) -> None:
    # Else the broker refuses what comes from the future, and deletes what is old.
    name = topic(**{"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"})
    many = [(f"h{at % 100}", b"%d" % at) for at in range(10_000)]
    produce(
        brokers,
        name,
        [
            {"value": None, "key": b"tombstone", "timestamp": 1_700_000_000_000},
            {"value": b"", "key": None},
            {"value": b"\x00\x00", "key": b""},
            {"value": b"\xff\xfe{", "key": b"\xc3"},
            {"value": b"v", "headers": many},
            {"value": b"v", "headers": [("twice", b"1"), ("none", None), ("twice", b"2"), ("", b"")]},
            {"value": b"old", "timestamp": 1},
            {"value": b"new", "timestamp": 253_402_300_799_999},
        ],
    )
    whole, report = read(config, name, Range(0, 8))
    assert whole.values == [None, b"", b"\x00\x00", b"\xff\xfe{", b"v", b"v", b"old", b"new"]
    assert whole.keys() == [b"tombstone", None, b"", b"\xc3", None, None, None, None]
    headers = whole.headers()
    assert headers[:4] == [None] * 4
    assert headers[4] == many
    assert headers[5] == [("twice", b"1"), ("none", None), ("twice", b"2"), ("", b"")]
    assert whole.timestamps[0] == 1_700_000_000_000 and whole.timestamps[6:] == [1, 253_402_300_799_999]
    assert report.bytes == 9 + 2 + 3 + 1 + 1 + 1 + 3 + 3


def test_start_outside_of_the_log(brokers: str, config: dict[str, Any], topic: Callable[..., str], admin: AdminClient) -> None:
    name = topic()
    produce(brokers, name, [b"x"] * 10)
    for span in (Range(11, 12), Range(5_000, 6_000)):
        with pytest.raises(ReadFailed, match=f"{name}/0 .*out of range"):
            read(config, name, span)
    admin.delete_records([TopicPartition(name, 0, 5)])[TopicPartition(name, 0, 5)].result(300)
    with pytest.raises(ReadFailed, match=f"{name}/0 .*out of range"):
        read(config, name, Range(4, 10))
    assert read(config, name, Range(5, 10))[0].offsets == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("gap", [True, False])
def test_retention_during_the_read(
    brokers: str,
    config: dict[str, Any],
    topic: Callable[..., str],
    admin: AdminClient,
    gap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "BLOCK_RECORDS", 500)
    name = topic()
    if gap:
        Transactions(brokers, name).commit(2999)  # marker at 2999
    else:
        produce(brokers, name, [b"x"] * 3000)
    produce(brokers, name, [b"x"] * 3000)
    with RangeReader(config, name, 0, Range(0, 6000)) as reader:
        blocks = reader.blocks()
        first, _ = next(blocks)
        time.sleep(0.5)  # the client holds the rest of this small range by now
        admin.delete_records([TopicPartition(name, 0, 5000)])[TopicPartition(name, 0, 5000)].result(300)
        if gap:
            with pytest.raises(ReadFailed, match=r"now starts at 5000, and nothing was read at 2999"):
                list(blocks)
            assert reader.report is None
        else:
            # Every offset was read: what retention does to them afterwards is no loss.
            assert len(first) + sum(len(block) for block, _ in blocks) == 6000
            assert reader.report is not None
            assert (reader.report.records, reader.report.gaps) == (6000, 0)


@pytest.mark.slow
def test_compacted_holes_at_the_start_in_the_middle_and_at_the_end(
    brokers: str, config: dict[str, Any], topic: Callable[..., str]
) -> None:
    name = topic(
        **{
            "cleanup.policy": "compact",
            "segment.ms": "200",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
            "max.compaction.lag.ms": "500",
        }
    )
    keys = [b"a", b"a", b"b", b"c", b"a", b"d", b"b", b"a", b"e", b"e"]
    produce(brokers, name, [{"key": key, "value": b"%d" % at} for at, key in enumerate(keys)])
    last = {key: at for at, key in enumerate(keys)}
    deadline = time.monotonic() + 300
    end = len(keys)
    while True:
        # A new record closes the segment before it; only closed ones are cleaned.
        time.sleep(0.5)
        produce(brokers, name, [{"key": b"e", "value": b"tick"}])
        end += 1
        found = read(config, name, Range(0, end))[0].offsets
        kept = sorted(at for key, at in last.items() if key != b"e")
        if [at for at in found if at < len(keys)] == kept:
            break
        assert time.monotonic() < deadline, found
    for start, stop in itertools.combinations_with_replacement(range(len(keys) + 1), 2):
        assert read(config, name, Range(start, stop))[0].offsets == [at for at in kept if start <= at < stop]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_record_larger_than_the_limit(brokers: str, config: dict[str, Any], topic: Callable[..., str], compression: str) -> None:
    name = topic()
    # Sent from a source that compresses nothing, it is the response that is too large; else what it unpacks to.
    value = bytes(range(256)) * 3600
    produce(brokers, name, [b"small", value], **{"compression.type": compression})
    small = client_config(Source(brokers=brokers, topic=name, config={"receive.message.max.bytes": 200_000}), {})
    with pytest.raises(ReadFailed, match=r"receive\.message\.max\.bytes") as failed:  # and not ReadStalled later
        read(small, name, Range(0, 2), stall_timeout_s=600)
    assert f"{name}/0 [0, 2)" in failed.value.what
    assert read(config, name, Range(0, 2))[0].values == [b"small", value]


def test_a_broker_that_does_not_know_its_partitions_yet_is_worth_another_try(
    brokers: str, config: dict[str, Any], topic: Callable[..., str]
) -> None:
    """So it answers for a moment after it was restarted, here when the log start is asked for."""

    class Restarting:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def get_watermark_offsets(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    name = topic()
    Transactions(brokers, name).commit(3)
    with RangeReader(config, name, 0, Range(0, 4)) as reader:
        reader._requests._client = Restarting(reader._requests._connected())  # type: ignore[assignment]
        with pytest.raises(
            BrokerUnreachable, match=rf"{name}/0 \[0, 4\): requesting the log start: .*nknown partition"
        ) as failed:
            list(reader.blocks())
    assert failed.value.retriable and reader.report is None


def test_unknown_topic_and_partition_are_named_and_not_created(
    brokers: str, config: dict[str, Any], topic: Callable[..., str], admin: AdminClient
) -> None:
    with pytest.raises(TopicUnknown, match="never-made/0"):
        read(config, "never-made", Range(0, 1))
    assert "never-made" not in admin.list_topics(timeout=600).topics
    name = topic()
    with RangeReader(config, name, 7, Range(0, 1)) as reader, pytest.raises(ReadFailed, match=f"{name}/7"):
        list(reader.blocks())


def test_leaving_early_closes_at_once(
    brokers: str, config: dict[str, Any], topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 300)
    name = topic()
    produce(brokers, name, [b"x" * 1000] * 20_000)
    with RangeReader(config, name, 0, Range(0, 20_000)) as reader:
        next(reader.blocks())
    assert "does not close" not in caplog.text
    assert reader.report is None


def test_empty_range_needs_no_broker() -> None:
    config = client_config(Source(brokers="127.0.0.1:1", topic="t"), {})
    whole, report = read(config, "t", Range(5, 5))
    assert (len(whole), report.proof) == (0, "empty")


def test_settings_travel_pickled(brokers: str, config: dict[str, Any], topic: Callable[..., str]) -> None:
    name = topic()
    produce(brokers, name, [b"x"])
    assert read(pickle.loads(pickle.dumps(config)), name, Range(0, 1))[0].values == [b"x"]


def test_settings_that_the_client_refuses_are_the_pipelines_fault(brokers: str) -> None:
    config = client_config(Source(brokers=brokers, topic="t", config={"fetch.min.bytes": "many"}), {})
    with pytest.raises(InvalidPipeline, match=r"fetch\.min\.bytes"):
        read(config, "t", Range(0, 1))
