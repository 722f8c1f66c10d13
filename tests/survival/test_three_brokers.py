"""A cluster of three brokers: the leader of a partition is killed, or moves, while a batch is on its way.

Without a JVM for kpipe (small.py): what it does is decided by its reader and its plan. The three brokers are real.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kpipe import failpoints
from kpipe.errors import KpipeError
from resources.dev_broker import kafka_node
from resources.java import JavaHome
from tests.broker.node import Node, eventually
from tests.survival.site import PARTITIONS, Site

pytestmark = [pytest.mark.chaos, pytest.mark.broker]


class Cluster:
    """Three nodes, each a broker and a voter; topics have a replica on each, and two must have a record."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        voters = ",".join(f"{number}@127.0.0.1:{controller}" for number, (_, controller) in enumerate(ports, start=1))
        replicas = dict.fromkeys(
            ("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "default.replication.factor"), 3
        )
        cluster = kafka_node.new_cluster_id()
        self.nodes = {
            number: Node(
                folder / str(number),
                port,
                controller,
                {"node.id": number, "controller.quorum.voters": voters, **replicas, "transaction.state.log.min.isr": 2,
                 "auto.leader.rebalance.enable": "false"},
                cluster,
            )
            for number, (port, controller) in enumerate(ports, start=1)
        }  # fmt: skip
        self.address = ",".join(node.address for node in self.nodes.values())

    def __enter__(self) -> Cluster:
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait()

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0, "error_cb": lambda _: None})

    def create_topic(self, name: str, partitions: int) -> None:
        """As a `LocalBroker` does it."""
        topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        admin = self.admin  # keep a reference: a collected client ends its requests
        admin.create_topics([topic])[name].result(300)
        eventually(lambda: all(self.whole(name, number) for number in range(partitions)))

    def leader(self, topic: str, partition: int) -> int:
        return int(self.admin.list_topics(topic, timeout=600).topics[topic].partitions[partition].leader)

    def whole(self, topic: str, partition: int) -> bool:
        """All three replicas have everything."""
        known = self.admin.list_topics(topic, timeout=600).topics[topic].partitions
        return partition in known and len(known[partition].isrs) == 3

    def mend(self) -> None:
        """Start what does not run, all at once: each waits for a second one."""
        gone = [node for node in self.nodes.values() if node.process is None or node.process.poll() is not None]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(Node.start, gone))

    def kill(self, number: int) -> None:
        process = self.nodes[number].process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()

    def elect(self, topic: str, partition: int) -> None:
        """Move the leader to the replica that is named first."""
        where = TopicPartition(topic, partition)
        admin = self.admin
        done = admin.elect_leaders(ElectionType.PREFERRED, [where]).result(300)
        assert done[where] is None, done


@pytest.fixture(scope="module")
def cluster(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three"), free_port) as found:
        yield found


@pytest.fixture(scope="module")
def old(cluster: Cluster, site: Callable[..., Site]) -> Site:
    made = site("three", address=cluster.address, broker=cluster)
    made.writer.round(90)
    made.exact()
    return made


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """One test's dead brokers are not the next one's."""
    yield
    cluster.mend()


def once(point: str, act: Callable[[], object]) -> list[object]:
    """The act comes when that point is reached for the first time."""
    done: list[object] = []

    def reached(name: str) -> None:
        if name == point and not done:
            done.append(True)
            act()

    failpoints.arm(reached)
    return done


@pytest.mark.parametrize("point", ["plan.offsets", "plan.frozen", "read.first", "commit.before"])
def test_the_leader_is_killed_and_later_moves_back(old: Site, cluster: Cluster, point: str) -> None:
    """Killed: another leads on. Back: the leader moves while a batch is on its way, and nobody dies."""
    topic = old.oracle.observer.topic
    old.writer.round(120)
    leader = cluster.leader(topic, 0)
    done = once(point, lambda: cluster.kill(leader))
    old.go_on_patiently(180)
    failpoints.arm(None)
    assert done and old.oracle.problems() == []
    assert cluster.leader(topic, 0) != leader
    old.writer.round(60)  # two are enough
    old.exact()

    cluster.mend()
    eventually(lambda: all(cluster.whole(topic, number) for number in range(PARTITIONS)), 90)
    old.writer.round(120)
    before = [cluster.leader(topic, number) for number in range(PARTITIONS)]
    done = once(point, lambda: [cluster.elect(topic, n) for n in range(PARTITIONS) if before[n] != preferred(cluster, topic, n)])
    old.go_on_patiently(180)
    failpoints.arm(None)
    assert done and old.oracle.problems() == []
    assert before != [cluster.leader(topic, number) for number in range(PARTITIONS)]
    old.exact()


def preferred(cluster: Cluster, topic: str, partition: int) -> int:
    return int(cluster.admin.list_topics(topic, timeout=600).topics[topic].partitions[partition].replicas[0])


def test_two_of_three_are_gone(old: Site, cluster: Cluster) -> None:
    """Nothing can be written, and what is read is only what had been committed by all: an error or progress, never a gap."""
    topic = old.oracle.observer.topic
    old.writer.round(120)
    leader = cluster.leader(topic, 0)
    victims = [number for number in cluster.nodes if number != leader]
    for number in victims:
        cluster.kill(number)
    old.define(source={"config": {"operation.timeout.ms": 5_000}})
    try:
        old.go_on()
    except KpipeError as error:
        assert error.retriable, error
    cluster.mend()
    eventually(lambda: all(cluster.whole(topic, number) for number in range(PARTITIONS)), 90)
    old.define()
    time.sleep(1)
    old.go_on_patiently(180)
    assert old.oracle.problems() == []
    old.writer.round(60)
    old.exact()
