"""Topics of a real Kafka as a place for the conformance suite."""

from __future__ import annotations

import base64
import gzip
import json
import multiprocessing
import signal
import time
import uuid
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Into
from kpipe.schema.columns import Columns, ListOf, Struct, Type
from kpipe.tables.upsert import KeyRule
from resources.destinations.kafka_sink import KafkaDestination
from resources.destinations.kafka_sink.ledger_topic import State
from resources.testing.place import Place
from resources.type_compatibility import COORDINATES

_processes = multiprocessing.get_context("forkserver")  # a fork of a process that has Kafka clients has lost their threads
_processes.set_forkserver_preload(["tests.resources.destinations.kafka_place"])


def killed(place: KafkaPlace, commit: Commit, point: str) -> None:
    """A process that commits is killed when it comes to that point."""
    where = place.folder, place.brokers, place.prefix, place.staging
    process = _processes.Process(target=_commit, args=(where, commit, f"{point}:1:kill"))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def _commit(where: tuple[Path, str, str, Path], commit: Commit, fault: str) -> None:
    folder, brokers, prefix, staging = where
    ledger = f"{prefix}-ledger-{commit.pipeline}"
    into = Into.model_validate({"type": "kafka", "brokers": brokers, "topic": f"{prefix}-tweets", "ledger": ledger})
    failpoints.arm(failpoints.Fault(fault))
    KafkaDestination(into, commit.pipeline, {}, (staging,), folder / "notes").commit(commit)


def read_all(brokers: str, topic: str, level: str = "read_committed") -> list[Any]:
    """Every record that a consumer sees, as librdkafka gives them, partition by partition."""
    settings = {
        "bootstrap.servers": brokers, "group.id": "reads-all", "isolation.level": level, "enable.partition.eof": True,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
        "fetch.wait.max.ms": 10,  # the broker would wait 0.5 s before it answers that a partition has ended
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(topic, timeout=600).topics[topic]
        if known.error is not None:
            return []
        found: list[Any] = []
        for number in known.partitions:
            if level == "read_committed":
                wait_for_markers(settings, consumer, TopicPartition(topic, number))
            consumer.assign([TopicPartition(topic, number, 0)])
            while True:
                message = consumer.poll(300)
                assert message is not None, f"{topic}/{number} does not end"
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    break
        return found
    finally:
        consumer.close()


def wait_for_markers(settings: dict[str, Any], consumer: Any, where: TopicPartition) -> None:
    """Wait for markers of transactions: brokers answer a commit before they are written. Some seconds: one may stay open."""
    every = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        until, end = time.monotonic() + 5, every.get_watermark_offsets(where, timeout=300)[1]
        while consumer.get_watermark_offsets(where, timeout=300)[1] < end and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        every.close()


def meant(value: Any, kind: Type) -> Any:
    """What a value of JSON stands for, by the type of its column."""
    if value is None:
        return None
    if isinstance(kind, ListOf):
        return [meant(item, kind.item) for item in value]
    if isinstance(kind, Struct):
        return {name: meant(value.get(name), item) for name, item in kind.fields}
    name = str(kind)
    if name == "JSON":
        return json.dumps(value, separators=(",", ":"))
    if name == "BLOB":
        return base64.b64decode(value)
    if name.startswith("TIMESTAMP"):
        return datetime.fromisoformat(value)
    return Decimal(value) if name.startswith("DECIMAL") else float(value) if name == "DOUBLE" else value


class KafkaPlace(Place):
    null_json = False
    rows_go = False  # no hand can take one record out of a log

    def __init__(self, folder: Path, brokers: str, partitions: int = 2) -> None:
        super().__init__(folder)
        self.folder, self.brokers, self.partitions = folder, brokers, partitions
        self.prefix, self.made = uuid.uuid4().hex[:8], set[str]()
        self.admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})

    def name(self, table: str) -> str:
        return f"{self.prefix}-{table}"

    def topic(self, name: str, partitions: int, **config: str) -> None:
        """Make a topic unless this place has made it."""
        if name not in self.made:
            self.made.add(name)
            self.admin.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1", **config})])[name].result(300)
            until = time.monotonic() + 300
            while self.admin.list_topics(name).topics[name].error is not None:  # its controller answers before brokers know it
                assert time.monotonic() < until, f"topic {name} is not known"
                time.sleep(0.05)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic, and wait until brokers have it: their controller answers first."""
        change, asked = (ConfigResource(ResourceType.TOPIC, topic) for _ in range(2))
        change.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        self.admin.incremental_alter_configs([change])[change].result(300)
        until = time.monotonic() + 300
        while self.admin.describe_configs([asked])[asked].result(300)[name].value != value:
            assert time.monotonic() < until, f"topic {topic} does not have {name}={value}"
            time.sleep(0.02)

    def into(self, pipeline: str, table: str, **more: Any) -> Into:
        """Fields of a destination here."""
        ledger = f"{self.prefix}-ledger-{pipeline}"
        return Into.model_validate(
            {"type": "kafka", "brokers": self.brokers, "topic": self.name(table), "ledger": ledger, **more}
        )

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None, **more: Any) -> KafkaDestination:
        self.topic(self.name(table), self.partitions)
        into, notes = self.into(pipeline, table, **more), self.folder / "notes"
        return KafkaDestination(into, pipeline, {"source_type": "KAFKA"}, (self.staging,), notes, rule)

    def records(self, name: str) -> list[Any]:
        return read_all(self.brokers, name)

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        found, columns = [], self.columns(table)
        for message in self.records(self.name(table)):
            said = dict(message.headers())
            values = json.loads(message.value(), parse_float=Decimal)
            row = {name: meant(values.get(name), kind) for name, kind in columns}
            at = {name: int(said[f"kpipe.{name}"]) if f"kpipe.{name}" in said else None for name in ("partition", "offset")}
            found.append({**row, **{f"_kafka_{name}": number for name, number in at.items()}})
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def columns(self, table: str) -> Columns:
        """Of the rows in a topic, by whatever pipeline has written it last."""
        for pipeline in ("tweets", "other", *(f"p{n}" for n in range(4))):
            found = [m for m in self.records(f"{self.prefix}-ledger-{pipeline}") if m.key() == b"state"]
            state = State.decoded(found[-1].value()) if found else None
            if state is not None and state.record.table == self.name(table):
                return state.columns.without(COORDINATES.names())
        return Columns()

    def dead_letters(self, pipeline: str = "tweets") -> int:
        found = self.records(f"{self.name('tweets')}.dead-letters")
        return sum(dict(message.headers())["kpipe.pipeline"] == pipeline.encode() for message in found)

    def produce(self, topic: str, **record: Any) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "log_level": 0})
        producer.produce(topic, **record)
        assert producer.flush(300) == 0

    def delete_row(self, partition: int, offset: int) -> None:
        raise NotImplementedError

    def double_row(self, partition: int, offset: int) -> None:
        for message in self.records(self.name("tweets")):
            said = dict(message.headers())
            if (said["kpipe.partition"], said.get("kpipe.offset")) == (b"%d" % partition, b"%d" % offset):
                self.produce(self.name("tweets"), value=message.value(), partition=partition, headers=message.headers())

    def delete_dead_letter(self) -> None:
        topic = f"{self.name('tweets')}.dead-letters"
        first = self.records(topic)[0].offset() + 1
        self.admin.delete_records([TopicPartition(topic, 0, first)])[TopicPartition(topic, 0)].result(300)

    def state(self) -> dict[str, Any]:
        found = [message for message in self.records(f"{self.prefix}-ledger-tweets") if message.key() == b"state"]
        return json.loads(gzip.decompress(found[-1].value()))

    def rewrite(self, state: dict[str, Any]) -> None:
        """What hands that know the topic, and not the seal, would do."""
        self.produce(f"{self.prefix}-ledger-tweets", key=b"state", value=gzip.compress(json.dumps(state).encode()))

    def move_lane(self, partition: int, to: int) -> None:
        state = self.state()
        for lane in state["record"]["lanes"]:
            if lane[3] == partition and lane[6] is None:
                lane[5] = to
        self.rewrite(state)

    def erase_lane(self, partition: int) -> None:
        state = self.state()
        state["record"]["lanes"] = [lane for lane in state["record"]["lanes"] if lane[3] != partition]
        self.rewrite(state)

    def drop_table(self) -> None:
        self.admin.delete_topics([self.name("tweets")])[self.name("tweets")].result(300)

    def close(self) -> None:
        """Remove the topics."""
        known = [name for name in self.admin.list_topics(timeout=600).topics if name.startswith(self.prefix)]
        for future in self.admin.delete_topics(known).values() if known else ():
            with suppress(KafkaException):  # the test has deleted it, and not all brokers knew
                future.result(300)
