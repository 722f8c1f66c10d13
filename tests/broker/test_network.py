"""A network that resets, cuts, corrupts, holds back and crawls between kpipe and a real Kafka: exact, or an error, never less."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import pytest

from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, ReadFailed, ReadStalled
from kpipe.offsets import Range
from kpipe.topics import PartitionState
from resources.kafka.client_config import client_config
from resources.kafka.consumer import ends_in_time
from resources.kafka.range_reader import RangeReader
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import Node, eventually
from tests.faults.proxy import Proxy, corrupt, cut_after, delay, pass_, rst, stall, throttle
from tests.patience import longer

# Retries at once: a test does not wait for back-off that production wants.
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "fetch.error.backoff.ms": 10}
SMALL = {"fetch.message.max.bytes": 20_000, "queued.max.messages.kbytes": 100}  # many fetches for few records
COUNT = 3000


@pytest.fixture(scope="module")
def topic(breakable: tuple[Node, Proxy]) -> str:
    node, _ = breakable
    name = node.topic(f"t-{uuid.uuid4().hex[:8]}")
    node.write(name, [b"%06d" % at + bytes(range(256)) * 2 for at in range(COUNT)], **{"batch.size": 16_000})  # 1.5 MB
    return name


def source(proxy: Proxy, topic: str, **config: Any) -> Source:
    return Source(brokers=proxy.address, topic=topic, config={**QUICK, **config})


def numbers(source: Source, topic: str, span: Range, stall_timeout_s: float = 300) -> list[int]:
    with RangeReader(client_config(source, {}), topic, 0, span, stall_timeout_s=stall_timeout_s) as reader:
        found = [int(bytes(value)[:6]) for block, _ in reader.blocks() for value in block.values if value is not None]
        assert reader.report is not None
    return found


def test_the_way_leads_through_the_proxy_only(proxy: Proxy, topic: str) -> None:
    before = proxy.connections
    assert numbers(source(proxy, topic), topic, Range(0, COUNT)) == list(range(COUNT))
    assert proxy.connections > before
    proxy.now(stall())
    with pytest.raises(ReadStalled):
        numbers(source(proxy, topic), topic, Range(0, COUNT), 1)


@pytest.mark.parametrize("after", [0, 1, 3, 100, 4097, 200_000])
def test_answers_that_are_cut_anywhere_are_asked_for_again(proxy: Proxy, topic: str, after: int) -> None:
    """The first connections die after so many bytes, most in the middle of a record."""
    proxy.now(cut_after(after, times=2))
    assert numbers(source(proxy, topic), topic, Range(5, COUNT)) == list(range(5, COUNT))
    assert proxy.struck == 2


def test_one_byte_at_a_time(proxy: Proxy, topic: str) -> None:
    proxy.now(throttle(0))
    tiny = source(proxy, topic, **{"fetch.message.max.bytes": 2000})
    assert numbers(tiny, topic, Range(100, 110)) == list(range(100, 110))
    assert proxy.struck
    proxy.now(throttle(0, way="up"))
    assert numbers(tiny, topic, Range(100, 110)) == list(range(100, 110))
    assert len(KafkaTopics(source(proxy, topic), timeout_s=300).snapshot().partitions) == 1


@pytest.mark.parametrize("seconds", [0.25, pytest.param(5, marks=[pytest.mark.chaos, pytest.mark.slow])])
def test_latency(proxy: Proxy, topic: str, seconds: float) -> None:
    """Of the answers; the deadline for metadata must allow for some ten of them."""
    slow = source(proxy, topic, **{"operation.timeout.ms": 100_000, "api.version.request.timeout.ms": 60_000})
    proxy.now(delay(seconds))
    assert KafkaTopics(slow).snapshot().partitions.popitem()[1] == PartitionState(0, COUNT, COUNT)  # type: ignore[attr-defined]
    assert numbers(slow, topic, Range(0, COUNT), 300) == list(range(COUNT))
    hasty = source(proxy, topic, **{"operation.timeout.ms": seconds * 1000})
    with pytest.raises(BrokerUnreachable):
        KafkaTopics(hasty).snapshot()
    assert proxy.struck


@pytest.mark.parametrize("way", ["down", *(pytest.param(way, marks=pytest.mark.chaos) for way in ("up", ""))])
def test_black_hole_in_the_middle_of_a_read(proxy: Proxy, topic: str, way: str) -> None:
    """Silence that ends in time costs nothing, silence that does not is an error; neither is ever the end of a range."""
    hole = stall(way, after=300_000 if way == "down" else 1500)

    def end() -> None:
        eventually(lambda: proxy.struck > 0)
        time.sleep(1)
        proxy.now(pass_())

    def stalled(limit_s: float) -> None:
        proxy.now(hole)
        config = client_config(source(proxy, topic, **SMALL), {})
        with RangeReader(config, topic, 0, Range(0, COUNT), stall_timeout_s=limit_s) as reader:
            with pytest.raises(ReadStalled, match=rf"{topic}/0 \[0, {COUNT}\): no record for {limit_s:g} s after offset \d+"):
                list(reader.blocks())
            assert reader.report is None and 0 < reader.count < COUNT
        assert proxy.struck

    proxy.now(hole)
    thread = threading.Thread(target=end)
    thread.start()
    try:
        assert numbers(source(proxy, topic, **SMALL), topic, Range(0, COUNT)) == list(range(COUNT))
    finally:
        thread.join()  # it must not open the way in the next test
    longer(stalled, 8, 120)


def test_flipped_bits_are_never_taken_for_records(proxy: Proxy, topic: str) -> None:
    """Records are under a checksum, which the client is made to check. Frames and base offsets are not: TLS protects those."""
    ends = set()
    for at in range(5000, 200_000, 6000):
        proxy.now(corrupt(at))
        try:
            assert numbers(source(proxy, topic), topic, Range(0, 500), 3) == list(range(500))
            assert proxy.struck == 1
            ends.add("exact")
        except (ReadFailed, BrokerUnreachable) as error:
            assert proxy.struck == 1
            ends.add(type(error).__name__)
        except ReadStalled:  # by the damage, or on a busy machine before it
            ends.add("ReadStalled")
    assert ends & {"ReadFailed", "RecordsUnreadable"}


def test_metadata_that_is_cut_short_is_asked_for_again_or_an_error(breakable: tuple[Node, Proxy], proxy: Proxy) -> None:
    """Never fewer partitions than there are, never other offsets."""
    many = breakable[0].topic(f"t-{uuid.uuid4().hex[:8]}", 40)
    breakable[0].write(many, [b"x"] * 7, partition=39)
    expected = {at: PartitionState(0, 7, 7) if at == 39 else PartitionState(0, 0, 0) for at in range(40)}

    def seen(timeout_s: float = 120) -> dict[int, PartitionState]:
        topics = KafkaTopics(source(proxy, many), {}, timeout_s)
        return {key.partition: state for key, state in topics.snapshot().partitions.items()}

    assert seen() == expected
    for after in (10, 1000):
        proxy.now(cut_after(after, times=3))
        with suppress(BrokerUnreachable):  # it may also give up
            assert seen() == expected
        assert proxy.struck
    proxy.now(rst())
    with pytest.raises(BrokerUnreachable):
        seen(1)


CLOSES = """
import random, sys, time
from kpipe.definition.pipeline import Source
from resources.kafka.consumer import BindingClient
from resources.kafka.client_config import client_config
from resources.kafka.errors import Voice
from resources.kafka.native_consumer import NativeClient
brokers, topic = sys.argv[1:]
config = client_config(Source(brokers=brokers, topic=topic), {})
for make in (NativeClient, BindingClient):
    for _ in range(200):
        client = make(config, Voice(), topic, 0, 1_000_000)
        time.sleep(random.uniform(0.03, 0.2))
        client.close()
print("closed")
"""


@pytest.mark.chaos
def test_closing_while_the_answer_says_out_of_range(proxy: Proxy, topic: str) -> None:
    """librdkafka locks itself out in some of a hundred such moments (its issue 4514); the worker must not wait for it."""
    proxy.now(delay(0.02))
    done = subprocess.run(
        [sys.executable, "-c", CLOSES, proxy.address, topic], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.stdout == "closed\n", done.stderr


def test_client_that_does_not_close_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 0.2)
    over = threading.Event()
    assert not ends_in_time(over.wait)
    monkeypatch.setattr("resources.kafka.consumer._CLOSE_SECONDS", 300)
    over.set()
    assert ends_in_time(over.wait)
