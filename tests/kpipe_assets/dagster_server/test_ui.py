"""`kpipe ui` as a client meets it: one UI on a real Kafka and a real Spark, asked through GraphQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from kpipe_assets.dagster_server import daemon
from kpipe_assets.dagster_server.instance import open_instance, prepare
from kpipe_assets.dagster_server.listening import listen
from kpipe_assets.runs.run_locks import runs
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.dagster_ui import PARTITIONS, Ui, processes, running_ui
from tests.patience import looks


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
    with running_ui(home, free_port(), "ui-orders", brokers) as running:
        yield running
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
def test_one_partition_leaves_the_others_where_they_are_in_the_process_that_waits_with_a_spark(ui: Ui) -> None:
    ui.produce(30)
    waiting = ui.until(ui.waiting)
    run = ui.launch("1", "1")
    assert ui.finished(run) == "SUCCESS"
    assert ui.worker(run) == waiting
    assert {key: metadata["kpipe/end_offset"] for key, metadata in ui.latest().items()} == {"0": 10, "1": 20, "2": 10}


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_the_sensor_starts_and_stops_continuous_ingest(ui: Ui) -> None:
    found = ui.ask("Start", sensor="orders_ingest")
    assert found["sensorState"]["status"] == "RUNNING"
    ui.until(lambda: all(metadata["kpipe/end_offset"] == 20 for metadata in ui.latest().values()))
    found = ui.ask("Stop", id=found["id"])
    assert found["instigationState"]["status"] == "STOPPED"


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_statements_turn_the_same_switch_and_end_the_same_runs(ui: Ui) -> None:
    kpipe = Kpipe(ui.home.path, ui.brokers)
    (run,) = [run_id for run_id, _ in runs(ui.home, "orders")]  # it goes on, although the sensor is off
    assert kpipe("sql", "STOP PIPELINE orders CANCEL").stdout == "pipeline orders stopped\n"
    assert list(runs(ui.home, "orders")) == []
    assert ui.finished(run) == "CANCELED"
    assert kpipe("sql", "START PIPELINE orders").stdout == "pipeline orders started\n"
    found = ui.ask("Start", sensor="orders_ingest")
    assert found["sensorState"]["status"] == "RUNNING", "Dagster sees what the statement turned"
    ui.produce(3)
    ui.until(lambda: all(metadata["kpipe/end_offset"] == 21 for metadata in ui.latest().values()))
    ui.ask("Stop", id=found["id"])
    assert kpipe.json("sql", "SHOW PIPELINES") == [{"pipeline": "orders", "state": "running"}], "its run goes on"
    assert kpipe("verify", "orders")


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
            timeout=600,
        )
    assert f"is running already on {ui.address}" in second.value.stderr
    ui.process.kill()
    ui.process.wait()
    assert not all(processes(ui.home) for _ in looks(300, 0.2))


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

    home = Home(tmp_path / "home")
    prepare(home, {})
    with open_instance(home.dagster) as instance:
        (limit,) = instance.get_concurrency_config().run_queue_config.tag_concurrency_limits  # type: ignore[union-attr]
        assert limit["limit"] == 2
        assert not instance.telemetry_enabled


def test_dagster_still_reads_how_often_to_look_for_backfills() -> None:
    from dagster._daemon import controller
    from dagster._daemon.backfill import execute_backfill_iteration_loop as loop

    assert "DEFAULT_DAEMON_INTERVAL_SECONDS" in loop.__code__.co_names  # imported anew each time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
        daemon.look_often()
        assert controller.DEFAULT_DAEMON_INTERVAL_SECONDS == daemon.INTERVAL_S == 5


def test_the_next_free_port_is_taken(free_port: Callable[[], int]) -> None:
    import socket

    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with listen("127.0.0.1", port) as next_one:
            assert next_one.getsockname()[1] > port
    with pytest.raises(KpipeError, match="not an address"):
        listen("192.0.2.1", port)


def test_nobody_who_has_bound_the_port_can_listen_on_it(free_port: Callable[[], int]) -> None:
    """Linux binds two sockets with SO_REUSEADDR to one port, as long as neither listens."""
    import socket

    port = free_port()
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind((address, port))
            with listen("127.0.0.1", port) as ours:
                assert ours.getsockname() == ("127.0.0.1", port)
                with pytest.raises(OSError, match="in use"):
                    thief.listen()
