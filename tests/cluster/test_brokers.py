"""Brokers lost, and links to them, while a batch is read. Each is a controller, too: with any one, a minority of those is lost.

Links are slow until the fault has come, and readers hold little ahead, so that most of a batch is yet to be fetched then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.cluster import KAFKAS, Cluster, wait
from tests.cluster.following import held, host_of
from tests.cluster.site import PARTITIONS, Site, Told

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos, pytest.mark.minutes(35)]

# Some 170 bytes each; at that rate a partition's share takes three minutes. On a busy machine, 40 s passed before the fault came.
RECORDS, SHARE_BYTES, KBIT = 24_000, 1_200_000, 64


@pytest.fixture(scope="module")
def differs() -> Mapping[str, Any]:
    return {"config": {"queued.max.messages.kbytes": 32, "fetch.message.max.bytes": 16_384, "queued.min.messages": 10}}


def leaders(one: Site) -> dict[int, int]:
    """Number of the broker that leads each partition; -1: none does."""
    with one.cluster["client"].network():
        admin = AdminClient({"bootstrap.servers": one.cluster.brokers, "log_level": 0, "error_cb": lambda _: None})
        parts = admin.list_topics(one.oracle.observer.topic, timeout=30).topics[one.oracle.observer.topic].partitions
        return {number: part.leader for number, part in parts.items()}


def whole(one: Site) -> bool:
    """All replicas of the topic have everything."""
    with one.cluster["client"].network():
        admin = AdminClient({"bootstrap.servers": one.cluster.brokers, "log_level": 0, "error_cb": lambda _: None})
        parts = admin.list_topics(one.oracle.observer.topic, timeout=30).topics[one.oracle.observer.topic].partitions
        return len(parts) == PARTITIONS and all(len(part.isrs) == len(KAFKAS) for part in parts.values())


def elect(one: Site) -> int:
    """Each partition's leader becomes the broker that is named first, if it is not; how many moved."""
    places = [TopicPartition(one.oracle.observer.topic, number) for number in range(PARTITIONS)]
    with one.cluster["client"].network():
        admin = AdminClient({"bootstrap.servers": one.cluster.brokers, "log_level": 0, "error_cb": lambda _: None})
        done = admin.elect_leaders(ElectionType.PREFERRED, places).result(60)
    refused = {error.code() for error in done.values() if error is not None}
    assert refused <= {KafkaError.ELECTION_NOT_NEEDED}, done
    return sum(error is None for error in done.values())


@contextmanager
def reading(one: Site) -> Iterator[list[Told]]:
    """Inside, workers have most of their part of a batch yet to read, slowly; behind it at full speed."""
    cluster = one.cluster
    before = [worker.received() for worker in cluster.workers]
    for worker in cluster.workers:
        cluster.network.slow(worker, KBIT)
    try:
        yield held(one, records=RECORDS)
        came = [worker.received() - was for worker, was in zip(cluster.workers, before, strict=True)]
        assert max(came) < SHARE_BYTES, "it had been read before the fault came"
    finally:
        for worker in cluster.workers:
            cluster.network.slow(worker, 0)


@pytest.fixture
def all_there(cluster: Cluster, caught_up: Site) -> Iterator[Site]:
    """Every broker is there before and afterwards."""
    yield caught_up
    for name in KAFKAS:
        if not cluster[name].processes("kafka.Kafka"):
            cluster.start_kafka(name)
    cluster.wait_for_kafka()

    def synchronous() -> bool:
        try:
            return whole(caught_up)
        except KafkaException:  # the one that was asked has just begun
            return False

    wait(synchronous, "three replicas of everything")


def test_a_worker_cut_from_the_brokers(cluster: Cluster, all_there: Site) -> None:
    """Its range cannot be read there. It is read elsewhere, and what was read so far is not taken twice."""
    one = all_there
    brokers = [cluster[name] for name in KAFKAS]
    with reading(one) as told:
        victim = host_of(cluster, told)
        victim.cut(*brokers)
    try:
        one.release()
        one.exact()
        moved = [begun for begun in one.told() if begun.attempt > 0]
        assert moved and moved[0].partition == 0, one.told()  # what a transaction left for another batch moves, too
        assert victim.name not in {begun.host for begun in moved}, one.told()
    finally:
        victim.mend(*brokers)


@pytest.mark.parametrize("number", range(1, len(KAFKAS) + 1))
def test_a_broker_killed_in_mid_batch(cluster: Cluster, all_there: Site, number: int) -> None:
    """Each in turn, so that one of them led each partition, and one the controllers. It stays away until the batch is in."""
    gone = cluster[KAFKAS[number - 1]]
    with reading(all_there):
        led = [part for part, leader in leaders(all_there).items() if leader == number]
        assert gone.kill() == 1
    all_there.release()
    all_there.exact()
    assert gone.processes() == [] and all(leader not in (number, -1) for leader in leaders(all_there).values()), led


def test_leaders_that_move_in_mid_batch(cluster: Cluster, all_there: Site) -> None:
    """Nobody is lost: brokers that came back take over again what they led before."""
    one = all_there
    at = leaders(one)
    elect(one)
    first = next(iter(leaders(one).values()))
    assert cluster[KAFKAS[first - 1]].kill() == 1
    wait(lambda: first not in leaders(one).values(), "other leaders")
    cluster.start_kafka(KAFKAS[first - 1])
    cluster.wait_for_kafka()
    wait(lambda: whole(one), "three replicas of everything")
    one.exact()
    one.forget()
    held(one, records=RECORDS)
    assert elect(one) >= 1, (at, leaders(one))
    one.release()
    one.exact()


def test_a_broker_that_falls_silent(cluster: Cluster, all_there: Site) -> None:
    """Its cable is out: nobody is told, requests to it are not answered."""
    one = all_there
    with reading(one):
        silent = cluster[KAFKAS[leaders(one)[0] - 1]]
        cluster.network.link(silent, up=False)
    try:
        one.release()
        one.exact()
    finally:
        cluster.network.link(silent, up=True)
