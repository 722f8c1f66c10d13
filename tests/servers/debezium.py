"""A real Kafka Connect worker with Debezium's connectors for tests (`make cdc`), on the loopback address."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from resources.java import find_java
from tests.ports import free_port

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_LOG = """
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.debezium.name = io.debezium
logger.debezium.level = info
"""


def jars() -> Path | None:
    """The folder of the runtime's and the connectors' jars."""
    folder = Path(sys.prefix) / "share" / "cdc"
    return folder if folder.is_dir() else None


class DebeziumServer:
    """One worker of Kafka Connect. A context manager; it ends with this process, however that dies.

    Args:
        brokers: where it keeps its own topics and writes changes.
    """

    def __init__(self, brokers: str) -> None:
        found = jars()
        if found is None:
            pytest.skip("no Kafka Connect and Debezium -> make cdc")
        self.jars, self.brokers, self.folder = found, brokers, Path(tempfile.mkdtemp(prefix="kpipe-cdc-"))
        self.port, self.group = free_port(), f"cdc-{uuid.uuid4().hex[:8]}"
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = ThreadPoolExecutor(1)

    def __enter__(self) -> DebeziumServer:
        settings = {
            "bootstrap.servers": self.brokers, "group.id": self.group, "listeners": f"http://127.0.0.1:{self.port}",
            "rest.advertised.host.name": "127.0.0.1",
            **{f"{name}.storage.topic": f"{self.group}-{name}" for name in ("offset", "config", "status")},
            **{f"{name}.storage.replication.factor": 1 for name in ("offset", "config", "status")},
            "offset.storage.partitions": 1, "status.storage.partitions": 1, "offset.flush.interval.ms": 500,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "scheduled.rebalance.max.delay.ms": 0, "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
            "plugin.discovery": "service_load", "plugin.path": str(self.folder),
        }  # fmt: skip
        (self.folder / "worker.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self.folder / "log4j2.properties").write_text(_LOG)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.thread.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """From a thread that lives as long as the server: the worker ends with the thread that has started it."""
        self.thread.submit(self._start).result()
        deadline = time.monotonic() + 300
        while True:
            try:
                self.rest("GET", "/connectors")
                return
            except OSError as error:
                alive = self.process is not None and self.process.poll() is None
                assert alive and time.monotonic() < deadline, f"{error}\n{self.log()[-6000:]}"
                time.sleep(0.2)

    def _start(self) -> None:
        options = [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-Xmx384m", "-XX:TieredStopAtLevel=1"]
        java = ["setpriv", "--pdeathsig", "KILL", str(find_java().executable), *options, "-cp", f"{self.jars}/*"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*java, _MAIN, str(self.folder / "worker.properties")],
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End the worker as a crash does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(300)
            self.process = None

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the worker's REST interface."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def connector(self, name: str, settings: dict[str, str]) -> None:
        """Create or change a connector, and wait until its task runs."""
        deadline = time.monotonic() + 300
        while True:  # a worker that rebalances answers 409
            try:
                self.rest("PUT", f"/connectors/{name}/config", settings)
                break
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code in (409, 500) and time.monotonic() < deadline, error.read().decode()
                time.sleep(0.5)
        self.running(name)

    def running(self, name: str) -> None:
        """Wait until the connector's task runs."""
        deadline = time.monotonic() + 300
        while True:
            try:
                found = self.rest("GET", f"/connectors/{name}/status")
                tasks = [task["state"] for task in found["tasks"]]
            except OSError:
                found, tasks = None, []
            if tasks == ["RUNNING"]:
                return
            assert time.monotonic() < deadline, f"{found}\n{self.log()[-6000:]}"
            if tasks == ["FAILED"]:
                with suppress(OSError):  # 409 while the worker rebalances
                    self.rest("POST", f"/connectors/{name}/restart?includeTasks=true")
            time.sleep(0.3)
