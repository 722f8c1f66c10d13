"""Run a standalone Kafka Connect worker, with a new connector for each drain.

Settings are the fastest that were found on the test machine: the consumer's default of 500 records for each poll with large
fetches, a large heap with the parallel collector.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.child import clean_environment, stop, usage
from bench.meter import Meter
from bench.topics import Topic
from resources.java import find_java

__all__ = ["STRINGS", "Worker"]

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_JVM = ("-Xms2g", "-Xmx6g", "-XX:+UseParallelGC")
_DRAIN_SECONDS = 300.0
_POLL_SECONDS = 0.05


class Worker(ABC):
    """A Connect worker; its process starts with the first drain, which is the cold one.

    Args:
        jars: its class path.
        folder: for its files.
        brokers: `host:port`.
        topic: of tweets.
    """

    def __init__(self, jars: Sequence[Path], folder: Path, brokers: str, topic: Topic) -> None:
        folder.mkdir(parents=True)
        self._jars, self._folder, self._brokers, self._topic = jars, folder, brokers, topic
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address = f"http://127.0.0.1:{probe.getsockname()[1]}"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process)

    @abstractmethod
    def _prepare(self, name: str) -> None:
        """Create an empty table for a connector."""

    @abstractmethod
    def _settings(self, name: str) -> dict[str, str]:
        """Return the settings of a connector that no other sink needs."""

    @abstractmethod
    def _complete(self, name: str) -> float | None:
        """Return when the last row became visible, in seconds since 1970; None before that."""

    @abstractmethod
    def _result(self, name: str) -> dict[str, Any]:
        """Return what the answer to a drain contains about the table."""

    def _beside(self) -> Sequence[int]:
        """Return processes whose time and memory count, too."""
        return ()

    def drain(self) -> dict[str, Any]:
        """Return the seconds from the start of the process or of the connector until the last row is visible."""
        name = f"drain_{uuid.uuid4().hex[:8]}"
        self._prepare(name)
        began = time.time()
        if self._process is None:
            self._process = self._start(name)
        else:
            self._request("POST", "/connectors", {"name": name, "config": self._config(name)})
        with Meter(self._process.pid, *self._beside()) as meter:
            visible = self._wait(name)
        self._request("DELETE", f"/connectors/{name}")
        time.sleep(1)  # its tasks end
        return {"seconds": visible - began, **self._result(name), **usage(meter)}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        settings = {
            "bootstrap.servers": self._brokers,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.storage.file.filename": str(self._folder / "offsets"),
            # Between records, a task answers a commit only when this is over; by default that is a minute.
            "offset.flush.interval.ms": "500",
            "listeners": self._address,
            "connector.client.config.override.policy": "All",
        }
        worker, connector = self._folder / "worker.properties", self._folder / "connector.properties"
        worker.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        connector.write_text("".join(f"{key}={value}\n" for key, value in {"name": name, **self._config(name)}.items()))
        classes = ":".join(map(str, self._jars))
        command = [str(find_java().executable), *_JVM, "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone"]
        with self._folder.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(
                [*command, str(worker), str(connector)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), start_new_session=True,
            )  # fmt: skip

    def _config(self, name: str) -> dict[str, str]:
        return {
            "topics": self._topic.name,
            "tasks.max": str(self._topic.partitions),
            "key.converter": STRINGS,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "consumer.override.auto.offset.reset": "earliest",
            "consumer.override.fetch.max.bytes": str(128 << 20),
            "consumer.override.max.partition.fetch.bytes": str(16 << 20),
            "consumer.override.receive.buffer.bytes": str(1 << 20),
            "consumer.override.check.crcs": "false",
            **self._settings(name),
        }

    def _wait(self, name: str) -> float:
        deadline = time.monotonic() + _DRAIN_SECONDS
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            visible = self._complete(name)
            if visible is not None:
                return visible
            time.sleep(_POLL_SECONDS)
        tail = self._folder.with_suffix(".log").read_text(errors="replace")[-1500:]
        msg = f"{name}: not all of {self._topic.records:,} rows arrived: {self._status(name)}\n{tail}"
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
