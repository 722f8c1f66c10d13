"""Measure Kafka Connect with Iceberg's sink: four tasks, a commit each second, exactly once."""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.contenders.connect import Worker
from bench.peers import Peers
from bench.topics import Topic

__all__ = ["IcebergWorker"]

_FIELDS: list[dict[str, Any]] = [
    {"id": 1, "name": "id", "required": False, "type": "long"},
    {"id": 2, "name": "created_at", "required": False, "type": "timestamptz"},
    {"id": 3, "name": "text", "required": False, "type": "string"},
    {"id": 4, "name": "lang", "required": False, "type": "string"},
    {
        "id": 5,
        "name": "user",
        "required": False,
        "type": {
            "type": "struct",
            "fields": [
                {"id": 8, "name": "id", "required": False, "type": "long"},
                {"id": 9, "name": "screen_name", "required": False, "type": "string"},
                {"id": 10, "name": "followers", "required": False, "type": "long"},
            ],
        },
    },
    {"id": 6, "name": "retweets", "required": False, "type": "long"},
    {"id": 7, "name": "score", "required": False, "type": "double"},
]


class IcebergWorker(Worker):
    """A worker whose connectors write to tables of a Hadoop catalog in the worker's folder.

    Args:
        peers: where its jars are.
        folder: for the warehouse and offsets.
        brokers: `host:port`.
        topic: of tweets.
    """

    def __init__(self, peers: Peers, folder: Path, brokers: str, topic: Topic) -> None:
        # Iceberg's first: its jars are the newer ones where both bring one.
        super().__init__(peers.jars("iceberg", "hadoop", "connect", "log"), folder, brokers, topic)
        self._admin = AdminClient({"bootstrap.servers": brokers})

    def _table(self, name: str) -> Path:
        return self._folder / "warehouse" / "db" / name

    def _prepare(self, name: str) -> None:
        _make_table(self._table(name))
        self._admin.create_topics([NewTopic(f"control-{name}", 1, 1)])[f"control-{name}"].result(30)

    def _settings(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "value.converter.schemas.enable": "false",
            "iceberg.tables": f"db.{name}",
            "iceberg.catalog": "bench",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": f"file://{self._folder}/warehouse",
            "iceberg.control.topic": f"control-{name}",
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "20000",
        }

    def _complete(self, name: str) -> float | None:
        rows, visible, _, _ = _state(self._table(name))
        return visible if rows >= self._topic.records else None

    def _result(self, name: str) -> dict[str, Any]:
        table = self._table(name)
        return {"snapshots": _state(table)[2], "files": _data_files(table)}


def _make_table(table: Path) -> None:
    """Create an empty table of Hadoop's catalog, format version 2: the files that the table's spec requires."""
    metadata = table / "metadata"
    metadata.mkdir(parents=True)
    content = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": f"file://{table}",
        "last-sequence-number": 0,
        "last-updated-ms": int(time.time() * 1000),
        "last-column-id": 10,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": _FIELDS}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    (metadata / "v1.metadata.json").write_text(json.dumps(content))
    (metadata / "version-hint.text").write_text("1")


def _state(table: Path) -> tuple[int, float, int, str]:
    """Return committed rows, the time of the last commit (seconds since 1970), snapshots, and the file that lists manifests."""
    try:
        version = (table / "metadata" / "version-hint.text").read_text().strip()
        content = json.loads((table / "metadata" / f"v{version}.metadata.json").read_text())
    except (OSError, ValueError):
        return 0, 0.0, 0, ""  # it is being replaced
    for snapshot in content.get("snapshots", []):
        if snapshot["snapshot-id"] == content["current-snapshot-id"]:
            rows, moment = int(snapshot["summary"]["total-records"]), snapshot["timestamp-ms"] / 1000
            return rows, moment, len(content["snapshots"]), snapshot["manifest-list"]
    return 0, 0.0, 0, ""


def _data_files(table: Path) -> list[str]:
    """Return files of the current snapshot. The folder also has files that tasks wrote but never committed after a rebalance."""
    lists = [_state(table)[3]]
    manifests = [found for name in lists for found in _named(name, rb"file:[^\x00-\x1f]+?-m\d+\.avro")]
    return sorted({found for name in manifests for found in _named(name, rb"file:[^\x00-\x1f]+?\.parquet")})


def _named(avro: str, pattern: bytes) -> list[str]:
    """Find paths in the blocks of an Avro file (count, size, bytes, the marker at the end of its header)."""
    data = Path(avro.removeprefix("file:")).read_bytes()
    marker = data[-16:]
    at = data.index(marker) + 16
    deflated, found = b"deflate" in data[:at], []
    while at < len(data):
        _, at = _long(data, at)
        size, at = _long(data, at)
        block = data[at : at + size]
        found += re.findall(pattern, zlib.decompress(block, -15) if deflated else block)
        at += size + 16
    return [path.decode().removeprefix("file:") for path in found]


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Read Avro's zigzag number at a position; return it and the next position."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
