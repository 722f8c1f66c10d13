"""Run workers killed in the middle of ingest, under Dagster's own daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import psutil
import pytest
from confluent_kafka import Producer

from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source, Transform
from kpipe_assets.assets.table_asset import table_key
from kpipe_assets.dagster_server.instance import make_storage, open_instance, prepare
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.run_workers import _worker
from resources.destinations import open_destination
from resources.home import Home
from resources.java import JavaHome
from tests.kpipe_assets.dagster_ui import processes, query
from tests.kpipe_assets.runs.dagster_site import PARTITIONS, all_published
from tests.patience import looks
from tests.survival import small

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "transforms" / "programs" / "flatten_tweet.py"


# In the midst of ingest, under Dagster's own daemon


@dataclass
class Dev:
    """`dagster dev`, as started from a terminal in the project's folder."""

    home: Home
    brokers: str
    port: int
    workspace: str = "workspace.yaml"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ}
        command = [sys.executable, "-m", "dagster", "dev", "-w", self.workspace, "-h", "127.0.0.1", "-p", str(self.port)]
        with (self.home.logs / "dev.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={
                    **keep,
                    "KPIPE_HOME": str(self.home.path),
                    "DAGSTER_HOME": str(self.home.dagster),
                    "KPIPE_SPARK_MASTER": "local[2]",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # what a terminal gives its foreground job: Ctrl-C goes to all of it
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)
        self.process.wait(300)  # Dagster itself waits 60 s each for two of its processes before it kills them

    def ask(self, name: str, **variables: Any) -> Any:
        body = json.dumps({"query": query(name), "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            (value,) = json.load(answer)["data"].values()
        return value

    def switch_on(self, sensor: str) -> None:
        def is_on() -> bool:
            with suppress(OSError, ValueError, AttributeError):  # it is starting
                return bool(self.ask("Start", sensor=sensor).get("sensorState", {}).get("status") == "RUNNING")
            return False

        self.until(is_on)

    def until(self, what: Callable[[], Any], seconds: float = 300) -> Any:
        for _ in looks(seconds, 0.3):
            if found := what():
                return found
        raise AssertionError((self.home.logs / "dev.log").read_text()[-5000:])

    def committed_by(self) -> set[str]:
        """Runs that have committed a batch."""
        file = self.home.data / "kpipe.duckdb"
        asked = "SELECT DISTINCT run_id FROM kpipe_commits WHERE kind = 'batch'"
        # There is none yet, or a commit has it open.
        with suppress(duckdb.Error), duckdb.connect(str(file), read_only=True) as connection:
            return {run for (run,) in connection.execute(asked).fetchall()}
        return set()


@contextmanager
def dev(home: Home, brokers: str, port: int, workspace: str = "workspace.yaml") -> Iterator[Dev]:
    """A home with the pipeline `tweets`, as the demo's, ingested continuously by `dagster dev`; nothing is left at the end."""
    make_storage(prepare(home, {}))
    home.save(
        Pipeline(
            name="tweets",
            source=Source(brokers=brokers, topic="worker"),
            batch=BatchLimits(interval_ms=200),
            transform=Transform(program=str(PROGRAM)),
            into=Into(table="tweets"),
        )
    )
    made = Dev(home, brokers, port, workspace)
    made.start()
    try:
        yield made
    finally:
        with suppress(ProcessLookupError):
            made.signal(signal.SIGKILL)


@contextmanager
def writing(brokers: str) -> Iterator[list[int]]:
    """Ids are written all the time; the list holds those that Kafka has."""
    written: list[int] = []
    end = threading.Event()

    def work() -> None:
        producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True})
        while not end.wait(0.1):
            ids = range(len(written), len(written) + 20)
            for item in ids:
                producer.produce(
                    "worker", json.dumps({"id": item, "lang": "en", "retweet_count": 1}), partition=item % PARTITIONS
                )
            if producer.flush(120) == 0:
                written.extend(ids)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield written
    finally:
        end.set()
        thread.join(300)


@pytest.fixture
def worker_topic(kafka_broker: Any) -> Iterator[None]:
    kafka_broker.create_topic("worker", PARTITIONS)
    yield
    kafka_broker.delete_topic("worker")


def run_worker(home: Home, run_id: str) -> psutil.Process:
    with open_instance(home.dagster) as instance:
        found = _worker(instance, run_id)
    assert found is not None
    return psutil.Process(found[0])


def gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=600)
    assert not alive


def nothing_left(home: Home) -> None:
    assert not all(processes(home) for _ in looks(300, 0.3))


def exact(home: Home, written: list[int]) -> None:
    """What was not read yet is read; then every id is there once, and Dagster has been told of every commit once."""
    list(small.run(home.path, "tweets"))
    pipeline = home.pipeline("tweets")
    with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT id), sum(id) FROM tweets").fetchall()
    assert found == [(len(written), len(written), sum(written))]
    with open_instance(home.dagster) as instance:
        Publisher(instance, table_key(pipeline), open_destination(pipeline, home), home, "tweets").publish()
        all_published(home, instance, pipeline)


def statuses(home: Home) -> dict[str, str]:
    with open_instance(home.dagster) as instance:
        return {run.run_id: run.status.value for run in instance.get_runs()}


@pytest.mark.chaos
@pytest.mark.spark
def test_a_run_worker_that_is_killed_is_followed_by_the_next_and_ctrl_c_leaves_nothing(
    worker_topic: None, brokers: str, java: JavaHome, free_port: Callable[[], int], tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").make()
    with writing(brokers) as written, dev(home, brokers, free_port()) as server:
        server.switch_on("tweets_ingest")
        (first,) = server.until(server.committed_by)
        victim = run_worker(home, first)
        family = [victim, *victim.children(recursive=True)]
        assert any("java" in process.name() for process in family), "Spark is at work"
        victim.kill()
        server.until(lambda: len(server.committed_by()) == 2)
        assert statuses(home)[first] == "FAILURE"
        gone(family[1:])
        server.signal(signal.SIGINT)
        nothing_left(home)
    exact(home, written)


#: As in a project of Dagster's, whose runs give each step a process of its own.
A_PROCESS_FOR_EACH_STEP = """
import dagster as dg
from kpipe_assets.component import catalog
from kpipe_assets.example.downstream import demos, downstream
from resources.home import Home


@dg.definitions
def defs() -> dg.Definitions:
    home = Home.from_env()
    return dg.Definitions.merge(catalog(home), *(downstream(home, demo) for demo in demos(home)))
"""


@pytest.mark.chaos
@pytest.mark.spark
def test_a_step_that_outlives_its_run_worker_ends_by_itself_and_what_is_built_on_the_table_is_computed_all_the_while(
    worker_topic: None, brokers: str, java: JavaHome, free_port: Callable[[], int], tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").make()
    (tmp_path / "steps.py").write_text(A_PROCESS_FOR_EACH_STEP)
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text("load_from: [{python_file: {relative_path: steps.py, location_name: kpipe}}]")
    with writing(brokers) as written, dev(home, brokers, free_port(), str(workspace)) as server:
        server.switch_on("tweets_ingest")
        server.switch_on("default_automation_condition_sensor")
        (first,) = server.until(server.committed_by)
        victim = run_worker(home, first)
        family = victim.children(recursive=True)
        assert any("spawn_main" in " ".join(process.cmdline()) for process in family), "a step of its own process"
        victim.kill()
        gone(family)
        server.until(lambda: len(server.committed_by()) == 2)
        assert statuses(home)[first] == "FAILURE"

        def computed() -> list[Any]:
            with open_instance(home.dagster) as instance:
                return list(instance.fetch_materializations(dg.AssetKey("tweets_by_language"), limit=1).records)

        (record,) = server.until(computed)
        assert record.asset_materialization.metadata["tweets"].value > 0
        assert "STARTED" in statuses(home).values(), "ingest goes on"
        server.signal(signal.SIGINT)
        nothing_left(home)
    exact(home, written)


@pytest.mark.chaos
@pytest.mark.spark
def test_when_all_of_dagster_was_killed_the_next_start_notices_and_goes_on(
    worker_topic: None, brokers: str, java: JavaHome, free_port: Callable[[], int], tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").make()
    with writing(brokers) as written, dev(home, brokers, free_port()) as server:
        server.switch_on("tweets_ingest")
        (first,) = server.until(server.committed_by)
        server.signal(signal.SIGKILL)
        nothing_left(home)
        assert statuses(home)[first] == "STARTED", "nobody could say that it is dead"
        server.start()
        server.until(lambda: len(server.committed_by()) == 2)
        assert statuses(home)[first] == "FAILURE"
        server.signal(signal.SIGINT)
        nothing_left(home)
    exact(home, written)
