"""A Kafka node to break: with listeners of its own, reached through a proxy, stopped, damaged and started again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from resources.dev_broker import kafka_node

START_SECONDS = 300  # three at once, on a machine that does other things


class Node:
    """One node in the foreground of a thread of nobody: the test owns the process.

    Args:
        folder: of its data; made when missing.
        port, controller: where it listens.
        more: further properties, in place of those of the same name.
        cluster: id of a cluster that it is one node of; None: it is alone.
    """

    def __init__(
        self, folder: Path, port: int, controller: int, more: Mapping[str, object] = {}, cluster: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.address = folder, f"127.0.0.1:{port}"
        kafka_node.write_configuration(folder, port, controller)
        properties = folder / "server.properties"
        kept = [line for line in properties.read_text().splitlines() if line.split("=")[0] not in more]
        properties.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in more.items())]) + "\n")
        kafka_node.format_storage(folder, cluster)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Node:
        """Start it and wait until it answers."""
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                kafka_node.command(self.folder), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline, patience = time.monotonic() + START_SECONDS, 2.0
        while True:
            try:
                self.admin.list_topics(timeout=patience)
                return self
            except KafkaException:
                patience = min(30.0, 1.5 * patience)  # a busy machine may need longer for each answer
                told = (self.folder / "output").read_text()[-2000:]
                assert self.process.poll() is None and time.monotonic() < deadline, told

    def stop(self) -> None:
        """End it in good order: a killed one leaves its native libraries in the folder for temporary files."""
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):  # now and then Kafka hangs in its own shutdown
                self.process.wait(30)
            self.process.kill()
            self.process.wait()

    @property
    def admin(self) -> AdminClient:
        """A client of its own each time: none of what an earlier one knew is kept."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic, and wait until every partition has a leader."""
        admin = self.admin  # keep a reference: a collected client ends its requests
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(300)
        deadline = time.monotonic() + 300
        while len(admin.list_topics(name, timeout=600).topics[name].partitions) < partitions:
            assert time.monotonic() < deadline
        return name

    def write(self, topic: str, values: list[Any], **settings: Any) -> None:
        """As `produce`."""
        produce(self.address, topic, values, **settings)

    def log(self, topic: str, partition: int = 0) -> Path:
        """The first segment of a partition."""
        return self.folder / "data" / f"{topic}-{partition}" / f"{0:020}.log"


def produce(brokers: str, topic: str, values: list[Any], partition: int = 0, **settings: Any) -> None:
    """Write values, or dicts of `Producer.produce`'s arguments, and wait until the broker has every one."""
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, **settings})
    refused: list[Any] = []
    for value in values:
        record = value if isinstance(value, dict) else {"value": value}
        producer.produce(topic, partition=partition, on_delivery=lambda error, _: error and refused.append(error), **record)
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not refused, refused


def left(brokers: str, group: str) -> None:
    """Wait until a group has no member: a consumer that closes waits 5 s at most for the answer that it has left."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    eventually(lambda: not admin.describe_consumer_groups([group])[group].result(300).members)


def eventually(what: Callable[[], bool], within: float = 300) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)
