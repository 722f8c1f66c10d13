"""What the brokers say about topics, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.errors import BrokerUnreachable, TopicUnknown
from kpipe.topics import PartitionState, TopicSnapshot
from resources.dev_broker.broker import LocalBroker
from resources.kafka.topic_metadata import KafkaTopics

HOUR = 3_600_000


@pytest.fixture
def admin(brokers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers})


def states(snapshot: TopicSnapshot) -> dict[str, tuple[int, int, int]]:
    return {str(key): (s.log_start, s.end, s.high) for key, s in snapshot.partitions.items()}


def produce(brokers: str, topic: str, count: int, partition: int = 0, start_ms: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for at in range(count):
        producer.produce(topic, b"x", partition=partition, timestamp=0 if start_ms is None else start_ms + at * 1000)
    assert producer.flush(300) == 0


@pytest.mark.broker
def test_identity_and_offsets(brokers: str, topic: Callable[..., str], admin: AdminClient) -> None:
    name = topic(3)
    produce(brokers, name, 5, partition=1)
    place = TopicPartition(name, 1, 2)
    admin.delete_records([place])[place].result(300)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    snapshot = topics.snapshot()
    assert states(snapshot) == {f"{name}/0": (0, 0, 0), f"{name}/1": (2, 5, 5), f"{name}/2": (0, 0, 0)}
    (identity,) = snapshot.topics()
    assert identity.cluster == admin.describe_cluster().result(300).cluster_id
    assert len(identity.topic_id) >= 22
    produce(brokers, name, 1, partition=2)
    assert states(topics.snapshot())[f"{name}/2"] == (0, 1, 1)  # nothing is cached


@pytest.mark.broker
def test_open_transaction_parts_end_and_high(brokers: str, topic: Callable[..., str]) -> None:
    name = topic()
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    settings = {"transactional.id": f"of-{name}", "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": brokers, **settings})
    producer.init_transactions(300)
    producer.begin_transaction()
    producer.produce(name, b"a", partition=0)
    producer.commit_transaction(300)
    producer.begin_transaction()
    producer.produce(name, b"b", partition=0)
    assert producer.flush(300) == 0
    assert states(topics.snapshot()) == {f"{name}/0": (0, 2, 3)}
    producer.abort_transaction(300)
    deadline = time.monotonic() + 300
    while states(topics.snapshot()) != {f"{name}/0": (0, 4, 4)}:  # the LSO may follow a little later
        assert time.monotonic() < deadline


@pytest.mark.broker
def test_topic_made_again_has_another_id(brokers: str, topic: Callable[..., str], kafka_broker: LocalBroker) -> None:
    name = topic()
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    (before,) = topics.snapshot().topics()
    kafka_broker.delete_topic(name)
    deadline = time.monotonic() + 300
    while True:
        try:
            topics.snapshot()
        except (TopicUnknown, BrokerUnreachable):
            break
        assert time.monotonic() < deadline
    kafka_broker.create_topic(name, 1, {})
    while True:
        try:
            (after,) = topics.snapshot().topics()
            break
        except (TopicUnknown, BrokerUnreachable):
            assert time.monotonic() < deadline
    assert (after.name, after.cluster) == (before.name, before.cluster)
    assert after.topic_id != before.topic_id


@pytest.mark.broker
def test_new_partitions_appear(brokers: str, topic: Callable[..., str], admin: AdminClient) -> None:
    name = topic(1)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    assert len(topics.snapshot().partitions) == 1
    admin.create_partitions([NewPartitions(name, 4)])[name].result(300)
    deadline = time.monotonic() + 300
    while True:
        try:
            if [key.partition for key in topics.snapshot().partitions] == [0, 1, 2, 3]:
                break
        except BrokerUnreachable:  # the new ones have no leader yet
            pass
        assert time.monotonic() < deadline


@pytest.mark.broker
def test_several_topics_and_one_that_is_not_there(brokers: str, topic: Callable[..., str], admin: AdminClient) -> None:
    one, two = topic(1), topic(2)
    both = KafkaTopics(Source(brokers=brokers, topics=[two, one, two])).snapshot()
    assert {str(key) for key in both.partitions} == {f"{one}/0", f"{two}/0", f"{two}/1"}
    wrong = f"{one}x"
    with pytest.raises(TopicUnknown) as unknown:
        KafkaTopics(Source(brokers=brokers, topics=[one, wrong]), timeout_s=300).snapshot()
    assert wrong in unknown.value.what
    assert brokers in unknown.value.what
    assert one in unknown.value.hint  # a name that is like it
    assert f"--create --topic {wrong}" in unknown.value.hint
    assert wrong not in admin.list_topics(timeout=600).topics  # asking did not create it


@pytest.mark.broker
def test_offsets_by_time(brokers: str, topic: Callable[..., str]) -> None:
    name = topic(2)
    now = int(time.time() * 1000) - HOUR
    produce(brokers, name, 10, start_ms=now)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    snapshot = topics.snapshot()

    def at(ms: int) -> list[int]:
        moment = Timestamp.model_validate({"timestamp": ms / 1000})
        assert moment.ms == ms
        return [offset for _, offset in sorted(topics.offsets_at(moment, snapshot).items())]

    assert at(now) == [0, 0]
    assert at(now + 4000) == [4, 0]
    assert at(now + 4001) == [5, 0]
    assert at(now + HOUR * 2) == [10, 0]
    produce(brokers, name, 1, start_ms=now + HOUR)
    assert at(now + HOUR) == [10, 0]  # never beyond the snapshot
    assert at(-1) == [0, 0]  # a second before 1970 is not Kafka's code for "latest"
    assert at(-2) == [0, 0]


@pytest.mark.broker
def test_answers_that_are_cut_short_are_errors(brokers: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(3)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    whole = AdminClient.describe_topics
    kept: list[int] = []

    class Short:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def result(self, timeout: float) -> Any:
            told = self.answer.result(timeout)
            chosen = [partition for partition in told.partitions if partition.id in kept]
            return SimpleNamespace(topic_id=told.topic_id, partitions=chosen)

    def describe(self: AdminClient, *args: Any, **more: Any) -> Any:
        return {key: Short(answer) for key, answer in whole(self, *args, **more).items()}

    monkeypatch.setattr(AdminClient, "describe_topics", describe)
    for some in ([], [1], [0, 2], [1, 2]):
        kept[:] = some
        with pytest.raises(BrokerUnreachable, match=f"{name}: incomplete list of partitions"):
            topics.snapshot()
    kept[:] = [0, 1, 2]
    assert len(topics.snapshot().partitions) == 3


@pytest.mark.broker
def test_offsets_that_contradict_each_other_are_errors(
    brokers: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(1)
    produce(brokers, name, 3)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    monkeypatch.setattr(OffsetSpec, "earliest", OffsetSpec.latest)
    assert topics.snapshot().partitions.popitem()[1] == PartitionState(3, 3, 3)  # type: ignore[attr-defined]
    monkeypatch.undo()
    monkeypatch.setattr(OffsetSpec, "latest", OffsetSpec.earliest)
    topics.snapshot()
    monkeypatch.setattr(OffsetSpec, "earliest", lambda: OffsetSpec.for_timestamp(2**61))
    with pytest.raises(BrokerUnreachable, match=f"{name}/0: the broker gives offsets that contradict"):
        topics.snapshot()


@pytest.mark.broker
def test_topic_made_again_between_two_questions(brokers: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(1)
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    honest, calls = KafkaTopics._partitions, []

    def partitions(self: KafkaTopics) -> Any:
        calls.append(1)
        found = honest(self)
        return [] if len(calls) == 1 else found

    monkeypatch.setattr(KafkaTopics, "_partitions", partitions)
    assert len(topics.snapshot().partitions) == 1
    assert len(calls) == 4


@pytest.mark.broker
def test_a_pattern_finds_topics_of_the_moment_and_never_kafkas_own(
    brokers: str, topic: Callable[..., str], admin: AdminClient
) -> None:
    one, two = topic(1), topic(2)
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": f"g-{one}"})  # a group makes __consumer_offsets
    deadline = time.monotonic() + 300
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(one, 0, 0)], asynchronous=False)
            break
        except KafkaException:  # the topic has no leaders yet
            assert time.monotonic() < deadline
    consumer.close()
    assert "__consumer_offsets" in admin.list_topics(timeout=600).topics
    topics = KafkaTopics(Source(brokers=brokers, topic_pattern=f"({one}|{two}|consumer_offsets)"))
    snapshot = topics.snapshot()
    assert {str(key) for key in snapshot.partitions} == {f"{one}/0", f"{two}/0", f"{two}/1"}
    assert set(topics.present()) == set(snapshot.partitions) and snapshot.means(one) and not snapshot.means("other")
    named = KafkaTopics(Source(brokers=brokers, topics=[one, two])).snapshot()
    assert set(named.partitions) == set(snapshot.partitions)  # the same identities
    everything = {key.topic.name for key in KafkaTopics(Source(brokers=brokers, topic_pattern="")).snapshot().partitions}
    assert {one, two} <= everything and not [name for name in everything if name.startswith("__")]
    third = topic(1)
    later = KafkaTopics(Source(brokers=brokers, topic_pattern=f"^({one}|{third})$"))
    seen(later, {one, third})
    admin.delete_topics([one])[one].result(300)
    seen(later, {third})
    assert not later.snapshot().means("x" + third)


def seen(topics: KafkaTopics, names: set[str]) -> None:
    """Until the brokers have heard of each other's topics."""
    deadline, found = time.monotonic() + 300, set[str]()
    while found != names:
        assert time.monotonic() < deadline, found
        with suppress(TopicUnknown, BrokerUnreachable):  # listed, and deleted before it is described
            found = {key.topic.name for key in topics.snapshot().partitions}


@pytest.mark.broker
def test_a_pattern_that_finds_nothing_is_an_error_that_names_it(brokers: str) -> None:
    with pytest.raises(TopicUnknown, match=r"no topic that matches '\^nothing\\\\\.here' -> .*source\.topic_pattern"):
        KafkaTopics(Source(brokers=brokers, topic_pattern=r"^nothing\.here")).snapshot()


@pytest.mark.broker
def test_a_start_beyond_the_last_record_is_the_end(brokers: str, topic: Callable[..., str]) -> None:
    one, two = topic(1), topic(1)
    produce(brokers, one, 5, start_ms=HOUR)
    topics = KafkaTopics(Source(brokers=brokers, topics=[one, two]))
    snapshot = topics.snapshot()
    found = topics.offsets_at(Timestamp.model_validate({"timestamp": "2100-01-01T00:00:00Z"}), snapshot)
    assert {str(key): at for key, at in found.items()} == {f"{one}/0": 5, f"{two}/0": 0}
