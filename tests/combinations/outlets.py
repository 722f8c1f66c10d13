"""A real topic and a real receiver of webhooks as places for examples."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.combinations.definition import TOPICS, Definition
from tests.combinations.found import Found, Letter, Row, from_document, of_duckdb
from tests.combinations.sites import Plain
from tests.receiver import Got, Receiver
from tests.resources.destinations.kafka_place import wait_for_markers

__all__ = ["KafkaSite", "WebhookSite"]

_BODY = '{"row": ${*}, "at": [%s${_kafka_partition}, ${_kafka_offset}], "when": ${_kafka_timestamp}}'


class KafkaSite(Plain):
    """Topics of their own on a real broker.

    Args:
        folder: of the example.
        brokers: of the broker.
    """

    def __init__(self, folder: Path, brokers: str) -> None:
        super().__init__(folder)
        self._brokers, self._prefix = brokers, f"g-{uuid.uuid4().hex[:10]}"
        self._admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        self._made: set[str] = set()

    def _topic(self, table: str) -> str:
        return f"{self._prefix}-{table}"

    def into(self, definition: Definition) -> dict[str, Any]:
        """Brokers, topic and ledger; the topic is made if it is not there."""
        topic = self._topic(definition.table)
        self._make(topic, definition.partitions, "delete")
        # Made here, so that none is made under another retention by the broker's defaults.
        return {"brokers": self._brokers, "topic": topic, "table": definition.table, "ledger": f"{self._prefix}-ledger",
                "dead_letters": f"{self._prefix}-dead"}  # fmt: skip

    def _make(self, topic: str, partitions: int, policy: str) -> None:
        if topic in self._made:
            return
        self._made.add(topic)
        # Rows keep their record's time; the user sets the topic's limits on it (docs/how-to/destinations/kafka-sink.md).
        config = {"retention.ms": "-1", "cleanup.policy": policy, "message.timestamp.after.max.ms": str(2**63 - 1)}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(300)
        until = time.monotonic() + 300
        while self._admin.list_topics(topic).topics[topic].error is not None:  # the controller answers before brokers know it
            assert time.monotonic() < until, f"topic {topic} is not known"
            time.sleep(0.02)

    def outlive(self) -> None:
        """Wait for its limit (a second), and take the producer's name.

        To the producer that is as if the brokers had ended the transaction, for which they look every 10 s.
        """
        time.sleep(1)
        Producer({"bootstrap.servers": self._brokers, "transactional.id": f"{self._prefix}-ledger"}).init_transactions(300)

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """By a consumer of committed records."""
        found = Found()
        for table in tables:
            rows = found.rows.setdefault(table, [])
            for message in self._read(self._topic(table)):
                said = dict(message.headers() or ())
                rows.append(self._row(message, said, found))
        for message in self._read(f"{self._prefix}-dead"):
            said = dict(message.headers() or ())
            place = _text(said["kpipe.topic"]), int(said["kpipe.partition"]), int(said["kpipe.offset"])
            reason = _text(said["kpipe.reason"])
            found.letters.append(Letter(*place, message.key(), message.value(), _text(said["kpipe.stage"]), reason))
        return found

    def _row(self, message: Any, said: dict[str, bytes], found: Found) -> Row:
        deleted = said["kpipe.kind"] == b"delete"
        document = {} if deleted else from_document(message.value())
        if document is None:
            found.problems.append(f"C8 not a JSON object: {message.value()[:300]!r}")
        at = message.timestamp()[1] * 1000
        number, offset = (int(said[name]) if name in said else None for name in ("kpipe.partition", "kpipe.offset"))
        values = document or {}
        return Row(_text(said["kpipe.topic"]), number, offset, at, values, True, deleted, message.key(), message.partition())

    def _read(self, topic: str) -> Iterable[Any]:
        settings = {"bootstrap.servers": self._brokers, "group.id": "reads-all", "isolation.level": "read_committed",
                    "enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                    "log_level": 0, "fetch.wait.max.ms": 10}  # fmt: skip
        consumer = Consumer(settings)
        try:
            known = consumer.list_topics(topic, timeout=600).topics[topic]
            if known.error is not None:
                return
            for number in known.partitions:
                wait_for_markers(settings, consumer, TopicPartition(topic, number))
                consumer.assign([TopicPartition(topic, number, 0)])
                while True:
                    message = consumer.poll(300)
                    assert message is not None, f"{topic}/{number} does not end"
                    if message.error() is not None:
                        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                        break
                    yield message
        finally:
            consumer.close()

    def close(self) -> None:
        """Remove the topics."""
        known = [name for name in self._admin.list_topics(timeout=600).topics if name.startswith(self._prefix)]
        for future in self._admin.delete_topics(known).values() if known else ():
            with suppress(KafkaException):  # deleted already, and not all brokers knew
                future.result(300)


class WebhookSite(Plain):
    """A receiver on this machine that drops keys that it knows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._receiver = Receiver()
        self._answers: list[str] = []

    def into(self, definition: Definition) -> dict[str, Any]:
        """The address, and a body that names the record."""
        body = _BODY % ("${_kafka_topic}, " if definition.topics > 1 else "")
        return {"url": self._receiver.url, "allow_hosts": ["127.0.0.1"], "body": body, "retry_s": 0, "timeout_s": 30}

    def answers(self, answers: Sequence[str]) -> None:
        """How the next requests are answered; behind these, all are taken."""
        self._receiver.faults[:] = list(answers)

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """What the receiver has taken, each key once, in order; dead letters by SQL."""
        found = of_duckdb(self.folder / "home" / "data" / "kpipe.duckdb")
        taken = {one.key for one in self._receiver.taken}
        rows = [row for one in self._receiver.taken for row in self._rows(one, found)]
        found.rows = {table: rows if table == tables[0] else [] for table in tables}
        for one in self._receiver.got:
            if one.fault in ("400", "413", "422") and one.key not in taken:
                found.refused |= {(row.topic or TOPICS[0], row.partition or 0, row.offset or 0) for row in self._rows(one, found)}
        return found

    def _rows(self, one: Got, found: Found) -> Iterable[Row]:
        document = from_document(b'{"all":' + one.body + b"}")
        if document is None:
            found.problems.append(f"C8 not JSON: {one.body[:300]!r}")
            return
        bodies = document["all"] if isinstance(document["all"], list) else [document["all"]]
        for body in bodies:
            *topics, partition, offset = body["at"]
            topic = topics[0] if topics else None
            yield Row(topic, partition, offset, None, body["row"], True, target=-1)

    def close(self) -> None:
        """No more answers."""
        self._receiver.stop()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
