"""Measure Kafka Connect with Debezium's JDBC sink into PostgreSQL.

The sink is at least once. Upserts by topic, partition and offset make a repeated record harmless, so each row is there once:
that is its best guarantee. Sinks map no nested records, so `user` becomes three columns.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.contenders.connect import Worker
from bench.contenders.postgres import Postgres
from bench.peers import Peers
from bench.topics import Topic

__all__ = ["PostgresWorker"]

_TYPES = {"id": "int64", "created_at": "string", "text": "string", "lang": "string", "retweets": "int64", "score": "double"}
_USER = {"id": "int64", "screen_name": "string", "followers": "int64"}
_COLUMNS = """
    __connect_topic text, __connect_partition integer, __connect_offset bigint, id bigint, created_at timestamptz, text text,
    lang text, user_id bigint, user_screen_name text, user_followers bigint, retweets bigint, score double precision,
    PRIMARY KEY (__connect_topic, __connect_partition, __connect_offset)
"""


class PostgresWorker(Worker):
    """A worker whose connectors write to tables of one server.

    Args:
        peers: where its jars are.
        folder: for offsets.
        brokers: `host:port`.
        topic: of tweets.
        server: that holds the tables; started.
    """

    def __init__(self, peers: Peers, folder: Path, brokers: str, topic: Topic, server: Postgres) -> None:
        super().__init__(peers.jars("connect-jdbc", "debezium-jdbc", "log"), folder, brokers, topic)
        self._server, self._last = server, _last_offsets(brokers, topic)

    def _beside(self) -> list[int]:
        return [self._server.pid]

    def _prepare(self, name: str) -> None:
        self._server.create(name, _COLUMNS)

    def _settings(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": json.dumps(_schema()),
            "transforms": "flatten",
            "transforms.flatten.type": "org.apache.kafka.connect.transforms.Flatten$Value",
            "transforms.flatten.delimiter": "_",
            "consumer.override.max.poll.records": "5000",
            "batch.size": "5000",
            **self._server.jdbc(),
            "collection.name.format": name,
            "insert.mode": "upsert",
            "primary.key.mode": "kafka",
            "schema.evolution": "none",
        }

    def _complete(self, name: str) -> float | None:
        """Look for the last offset of each partition: a task writes a partition in order."""
        return time.time() if self._server.holds(name, self._last) else None

    def _result(self, name: str) -> dict[str, Any]:
        return {"found": self._server.counted(name)}


def _schema() -> dict[str, Any]:
    user = {"type": "struct", "field": "user", "optional": True, "fields": _fields(_USER)}
    return {"type": "struct", "optional": False, "fields": [*_fields(_TYPES), user]}


def _fields(types: dict[str, str]) -> list[dict[str, Any]]:
    return [{"field": name, "type": kind, "optional": True} for name, kind in types.items()]


def _last_offsets(brokers: str, topic: Topic) -> list[tuple[str, int, int]]:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench-connect"})
    try:
        ends = [
            (number, consumer.get_watermark_offsets(TopicPartition(topic.name, number), 10)[1])
            for number in range(topic.partitions)
        ]
    finally:
        consumer.close()
    return [(topic.name, number, end - 1) for number, end in ends if end]
