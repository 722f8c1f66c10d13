"""A running `kpipe ui` for tests: started as a person would, and asked through GraphQL with the guide's own queries."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from confluent_kafka import Producer
from dagster._grpc.client import DagsterGrpcClient

from kpipe_assets.dagster_server.instance import open_instance
from resources.home import Home
from tests.patience import looks

__all__ = ["PARTITIONS", "PatientClient", "Ui", "processes", "running_ui", "sqlite_instance"]

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "graphql.md").read_text(encoding="utf-8")
PARTITIONS = 3


def query(name: str) -> str:
    """A query of the guide, by its operation's name: what is documented is what is tested."""
    (found,) = [body for body in re.findall(r"^```graphql\n(.*?)^```$", GUIDE, re.M | re.S) if re.search(rf"\b{name}\b", body)]
    return str(found)


def sqlite_instance(folder: Path) -> dg.DagsterInstance:
    """Open an instance with the storage of kpipe's `dagster.yaml`, and with nothing else of it."""
    storage = {
        "module": "kpipe_assets.dagster_server.storage",
        "class": "Storage",
        "config": {"base_dir": {"env": "DAGSTER_HOME"}},
    }
    (folder / "dagster.yaml").write_text(json.dumps({"storage": {"custom": storage}}), encoding="utf-8")
    return open_instance(folder)


@dataclass
class Ui:
    """A running `kpipe ui`."""

    home: Home
    address: str
    process: subprocess.Popen[str]
    topic: str
    brokers: str
    runs: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        """As a script of this user reads it."""
        return (self.home.state / "ui.token").read_text()

    def ask(self, name: str, **variables: Any) -> Any:
        body = json.dumps({"query": query(name), "variables": variables}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}/graphql", body, headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        (value,) = found["data"].values()
        return value

    def until(self, what: Callable[[], Any], seconds: float = 300) -> Any:
        for _ in looks(seconds, 0.3):
            if found := what():
                return found
            assert self.process.poll() is None
        raise AssertionError((self.home.logs / "dagster.log").read_text()[-3000:])

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.brokers})
        for number in range(count):
            producer.produce(self.topic, json.dumps({"id": number}), partition=number % PARTITIONS)
        assert producer.flush(120) == 0

    def launch(self, first: str, last: str) -> str:
        launched = self.ask("Launch", table=["orders"], first=first, last=last)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        self.runs.append(str(launched["run"]["runId"]))
        return self.runs[-1]

    def finished(self, run: str) -> str:
        def status() -> str:
            found = str(self.ask("Run", run=run)["status"])
            return found if found in ("SUCCESS", "FAILURE", "CANCELED") else ""

        return str(self.until(status))

    def waiting(self) -> int:
        """The process that waits for a run and has started Spark; 0 if there is none."""
        workers = {self.worker(run) for run in self.runs}  # one that has finished its run has a Spark, too, until it ends
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                spawned = process.pid not in workers and "spawn_main" in " ".join(process.cmdline())
                if spawned and "java" in [child.name() for child in process.children()]:
                    return process.pid
        return 0

    def worker(self, run: str) -> int:
        """The process that has executed the run, by the run's log."""
        with open_instance(self.home.dagster) as instance:
            for entry in instance.all_logs(run, of_type=dg.DagsterEventType.ENGINE_EVENT):
                assert entry.dagster_event is not None
                if found := entry.dagster_event.engine_event_data.metadata.get("pid"):
                    return int(str(found.value))
        raise AssertionError(run)

    def latest(self, table: str = "orders") -> dict[str, dict[str, Any]]:
        """Metadata of the newest materialization, by partition."""
        events = self.ask("Latest", table=[table])["latestMaterializationByPartition"]
        return {
            event["partition"]: {
                entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in event["metadataEntries"]
            }
            for event in events
            if event
        }


# Seconds that Dagster's processes wait for the code server, in place of one minute or two.
PATIENT = {f"DAGSTER_{what}GRPC_TIMEOUT_SECONDS": "600" for what in ("", "REPOSITORY_", "SENSOR_")}


class PatientClient(DagsterGrpcClient):
    """A client of the code server that waits as long."""

    def _query(self, method: str, request_type: Any, timeout: int = 600, **more: Any) -> Any:
        return super()._query(method, request_type, timeout=timeout, **more)


def started(home: Home, port: int, **more: str) -> tuple[subprocess.Popen[str], str]:
    """`kpipe ui`, once it has said where it is."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe_assets.cli", "ui", "--port", str(port)],
        env={**keep, "KPIPE_HOME": str(home.path), "KPIPE_SPARK_MASTER": "local[2]", **PATIENT, **more},
        cwd=home.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"http://\S+", line):
                return process, found[0]
        raise AssertionError("".join(said))
    except BaseException:  # else its object would be collected, with a warning, in a later test
        with process:
            process.kill()
        raise


@contextmanager
def running_ui(home: Home, port: int, topic: str, brokers: str, **more: str) -> Iterator[Ui]:
    """`kpipe ui` on a home, ended by Ctrl-C."""
    process, address = started(home, port, **more)
    try:
        yield Ui(home, address, process, topic, brokers)
    finally:
        with process:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(300)
            finally:
                process.kill()


def processes(home: Home) -> list[str]:
    """Command lines of what belongs to a home."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        if process.pid != os.getpid() and f"KPIPE_HOME={home.path}" in [
            f"{k}={v}" for k, v in (process.info["environ"] or {}).items()
        ]:
            found.append(" ".join(process.info["cmdline"] or ()))
    return found
