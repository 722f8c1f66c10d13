"""`kpipe ui` as a client meets it: one UI on a real Kafka and a real Spark, asked through GraphQL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from kpipe.errors import KpipeError
from kpipe_assets.commands.ui import _free
from kpipe_assets.instance import prepare
from resources.home import Home
from resources.java import JavaHome
from resources.local.broker import LocalBroker

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guide" / "graphql.md").read_text(encoding="utf-8")
PARTITIONS = 3


def query(name: str) -> str:
    """A query of the guide, by its operation's name: what is documented is what is tested."""
    (found,) = [body for body in re.findall(r"^```graphql\n(.*?)^```$", GUIDE, re.M | re.S) if re.search(rf"\b{name}\b", body)]
    return str(found)


@dataclass
class Ui:
    """A running `kpipe ui`."""

    home: Home
    address: str
    process: subprocess.Popen[str]
    topic: str
    brokers: str

    def ask(self, name: str, **variables: Any) -> Any:
        body = json.dumps({"query": query(name), "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        (value,) = found["data"].values()
        return value

    def until(self, what: Callable[[], Any], seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline, (self.home.logs / "dagster.log").read_text()[-3000:]
            time.sleep(0.3)
        return found

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.brokers})
        for number in range(count):
            producer.produce(self.topic, json.dumps({"id": number}), partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def launch(self, first: str, last: str) -> str:
        launched = self.ask("Launch", table=["orders"], first=first, last=last)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def finished(self, run: str) -> str:
        def status() -> str:
            found = str(self.ask("Run", run=run)["status"])
            return found if found in ("SUCCESS", "FAILURE", "CANCELED") else ""

        return str(self.until(status))

    def latest(self) -> dict[str, dict[str, Any]]:
        """Metadata of the newest materialization, by partition."""
        events = self.ask("Latest", table=["orders"])["latestMaterializationByPartition"]
        return {
            event["partition"]: {
                entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in event["metadataEntries"]
            }
            for event in events
            if event
        }


def started(home: Home, port: int, **more: str) -> tuple[subprocess.Popen[str], str]:
    """`kpipe ui`, once it has said where it is."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "kpipe_assets.cli", "ui", "--port", str(port)],
        env={**keep, "KPIPE_HOME": str(home.path), "KPIPE_SPARK_MASTER": "local[2]", **more},
        cwd=home.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://\S+", line):
            return process, found[0]
    raise AssertionError("".join(said))


def processes(home: Home) -> list[str]:
    """Command lines of what belongs to a home."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        if process.pid != os.getpid() and f"KPIPE_HOME={home.path}" in [
            f"{k}={v}" for k, v in (process.info["environ"] or {}).items()
        ]:
            found.append(" ".join(process.info["cmdline"] or ()))
    return found


@pytest.fixture(scope="module")
def ui(
    java: JavaHome,
    kafka_broker: LocalBroker,
    brokers: str,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ui]:
    home = Home(tmp_path_factory.mktemp("ui") / "home").make()
    kafka_broker.create_topic("ui-orders", PARTITIONS)
    definition = {
        "type": "kpipe_assets.KafkaPipeline",
        "attributes": {
            "name": "orders",
            "source": {"brokers": brokers, "topic": "ui-orders"},
            "into": {"table": "orders"},
        },
    }
    (home.pipelines / "orders.yaml").write_text(json.dumps(definition))
    process, address = started(home, free_port())
    try:
        yield Ui(home, address, process, "ui-orders", brokers)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
        kafka_broker.delete_topic("ui-orders")


# In this order: each goes on from where the one before has left the pipeline.


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_partitions_appear_by_themselves(ui: Ui) -> None:
    assert ui.until(lambda: ui.ask("Partitions", table=["orders"]).get("partitionKeys")) == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_all_partitions_in_one_run_and_their_metadata(ui: Ui) -> None:
    ui.produce(30)
    assert ui.finished(ui.launch("0", "2")) == "SUCCESS"
    shown = ui.latest()
    assert set(shown) == {"0", "1", "2"}
    for metadata in shown.values():
        assert metadata["kpipe/rows"] == 10
        assert metadata["kpipe/start_offset"] == 0
        assert metadata["kpipe/end_offset"] == 10
        assert metadata["kpipe/lag"] == 0
        assert isinstance(metadata["kpipe/rows_per_second"], float)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_one_partition_leaves_the_others_where_they_are(ui: Ui) -> None:
    ui.produce(30)
    assert ui.finished(ui.launch("1", "1")) == "SUCCESS"
    assert {key: metadata["kpipe/end_offset"] for key, metadata in ui.latest().items()} == {"0": 10, "1": 20, "2": 10}


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_the_sensor_starts_and_stops_continuous_ingest(ui: Ui) -> None:
    found = ui.ask("Start", sensor="orders_ingest")
    assert found["sensorState"]["status"] == "RUNNING"
    ui.until(lambda: all(metadata["kpipe/end_offset"] == 20 for metadata in ui.latest().values()), 90)
    found = ui.ask("Stop", id=found["id"])
    assert found["instigationState"]["status"] == "STOPPED"


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_a_definition_that_is_added_appears_by_itself(ui: Ui) -> None:
    text = (ui.home.pipelines / "orders.yaml").read_text().replace('"orders"', '"copies"')
    (ui.home.pipelines / "copies.yaml").write_text(text)
    ui.until(lambda: "copies" in str(ui.ask("Tables")))


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_killed_it_leaves_no_process_behind_although_a_run_goes_on(ui: Ui, free_port: Callable[[], int]) -> None:
    assert len(processes(ui.home)) >= 5
    with pytest.raises(subprocess.CalledProcessError) as second:
        subprocess.run(
            [sys.executable, "-m", "kpipe_assets.cli", "ui"],
            env={**os.environ, "KPIPE_HOME": str(ui.home.path)},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert f"is running already on {ui.address}" in second.value.stderr
    ui.process.kill()
    ui.process.wait()
    deadline = time.monotonic() + 25
    while left := processes(ui.home):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


# -- without a UI -----------------------------------------------------------------------------------------------------


def test_the_settings_are_renewed_until_somebody_edits_them(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    file = home.dagster / "dagster.yaml"
    environ = prepare(home, {})
    assert environ["DAGSTER_HOME"] == str(home.dagster)
    assert environ["KPIPE_HOME"] == str(home.path)
    current = file.read_text()
    assert "telemetry: {enabled: false}" in current

    import hashlib

    older = "telemetry: {enabled: true}\n"
    file.write_text(f"{older}# written by kpipe, unedited: {hashlib.sha256(older.encode()).hexdigest()}\n")
    prepare(home, {})
    assert file.read_text() == current

    edited = current.replace("limit: 2", "limit: 1")
    file.write_text(edited)
    prepare(home, {})
    assert file.read_text() == edited


def test_a_dagster_home_of_the_users_own_stays_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    with pytest.raises(KpipeError, match="DAGSTER_HOME"):
        prepare(Home(tmp_path / "home"), {"DAGSTER_HOME": str(mine)})
    mine.mkdir()
    assert prepare(Home(tmp_path / "home"), {"DAGSTER_HOME": str(mine)})["DAGSTER_HOME"] == str(mine)
    assert not list(mine.iterdir())


def test_dagster_takes_the_settings(tmp_path: Path) -> None:
    import dagster as dg

    home = Home(tmp_path / "home")
    prepare(home, {})
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        (limit,) = instance.get_concurrency_config().run_queue_config.tag_concurrency_limits  # type: ignore[union-attr]
        assert limit["limit"] == 2
        assert not instance.telemetry_enabled


def test_the_next_free_port_is_taken(free_port: Callable[[], int]) -> None:
    import socket

    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert _free("127.0.0.1", port) > port
    with pytest.raises(KpipeError, match="not an address"):
        _free("192.0.2.1", port)
