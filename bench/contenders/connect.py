"""Measure Kafka Connect with Iceberg's sink: a standalone worker, and a new connector and table for each drain.

Settings are the fastest that were found on the test machine: four tasks, the consumer's default of 500 records for each
poll with large fetches, a commit each second, a large heap with the parallel collector.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.request
import uuid
import zlib
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.child import clean_environment, stop, usage
from bench.meter import Meter
from bench.peers import Peers
from bench.topics import Topic
from resources.java import find_java

__all__ = ["Worker"]

_JVM = ("-Xms2g", "-Xmx6g", "-XX:+UseParallelGC")
_DRAIN_SECONDS = 300.0
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


class Worker:
    """A Connect worker; its process starts with the first drain, which is the cold one.

    Args:
        peers: where its jars are.
        folder: for the warehouse and offsets.
        brokers: `host:port`.
        topic: of tweets.
    """

    def __init__(self, peers: Peers, folder: Path, brokers: str, topic: Topic) -> None:
        folder.mkdir(parents=True)
        self._peers, self._folder, self._brokers, self._topic = peers, folder, brokers, topic
        self._admin = AdminClient({"bootstrap.servers": brokers})
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address = f"http://127.0.0.1:{probe.getsockname()[1]}"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process)

    def drain(self) -> dict[str, Any]:
        """Return the seconds from the start of the process or of the connector to the snapshot with the last row."""
        name = f"drain_{uuid.uuid4().hex[:8]}"
        table = self._folder / "warehouse" / "db" / name
        _make_table(table)
        self._admin.create_topics([NewTopic(f"control-{name}", 1, 1)])[f"control-{name}"].result(30)
        began = time.time()
        if self._process is None:
            self._process = self._start(name)
        else:
            self._request("POST", "/connectors", {"name": name, "config": self._config(name)})
        with Meter(self._process.pid) as meter:
            visible, snapshots = self._wait(table, name)
        self._request("DELETE", f"/connectors/{name}")
        time.sleep(1)  # its tasks end
        return {"seconds": visible - began, "snapshots": snapshots, "files": _data_files(table), **usage(meter)}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        settings = {
            "bootstrap.servers": self._brokers,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            # Between records, a task answers a commit only when this is over; by default that is a minute.
            "offset.flush.interval.ms": "500",
            "listeners": self._address,
            "connector.client.config.override.policy": "All",
        }
        worker, connector = self._folder / "worker.properties", self._folder / "connector.properties"
        worker.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        connector.write_text("".join(f"{key}={value}\n" for key, value in {"name": name, **self._config(name)}.items()))
        # Iceberg's first: its jars are the newer ones where both bring one.
        classes = ":".join(map(str, self._peers.jars("iceberg", "hadoop", "connect", "log")))
        command = [str(find_java().executable), *_JVM, "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone"]
        with self._folder.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(
                [*command, str(worker), str(connector)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), start_new_session=True,
            )  # fmt: skip

    def _config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self._topic.name,
            "tasks.max": str(self._topic.partitions),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "consumer.override.auto.offset.reset": "earliest",
            "consumer.override.fetch.max.bytes": str(128 << 20),
            "consumer.override.max.partition.fetch.bytes": str(16 << 20),
            "consumer.override.receive.buffer.bytes": str(1 << 20),
            "consumer.override.check.crcs": "false",
            "iceberg.tables": f"db.{name}",
            "iceberg.catalog": "bench",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": f"file://{self._folder}/warehouse",
            "iceberg.control.topic": f"control-{name}",
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "20000",
        }

    def _wait(self, table: Path, name: str) -> tuple[float, int]:
        deadline = time.monotonic() + _DRAIN_SECONDS
        rows = 0
        while time.monotonic() < deadline:
            rows, visible, snapshots, _ = _state(table)
            if rows >= self._topic.records:
                return visible, snapshots
            assert self._process is not None
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        tail = self._folder.with_suffix(".log").read_text(errors="replace")[-1500:]
        msg = f"{name}: {rows:,} of {self._topic.records:,} rows arrived: {self._status(name)}\n{tail}"
        raise RuntimeError(msg)

    def _status(self, name: str) -> str:
        try:
            with urllib.request.urlopen(f"{self._address}/connectors/{name}/status", timeout=5) as answer:
                return str(answer.read().decode())[:1500]
        except OSError as error:
            return str(error)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30):
            pass


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
