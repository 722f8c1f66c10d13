"""`kpipe sql`: START and STOP PIPELINE, and what stops a run."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from kpipe.definition.pipeline import Into
from kpipe.errors import InvalidStatement
from kpipe.sql.statements import Detach, Stop, StopAll
from kpipe_assets.assets.table_asset import OP_TAG
from kpipe_assets.component import catalog
from kpipe_assets.dagster_server.instance import open_instance
from kpipe_assets.runs.run_locks import SERVED, at_work, marked
from kpipe_assets.runs.service_lock import Service, only_service
from kpipe_assets.runs.status import note_state
from kpipe_assets.runs.stop_requests import StopRequests, ask
from kpipe_assets.sensors import sensor_state
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements import start_stop
from kpipe_assets.statements.result import Result
from kpipe_assets.statements.start_stop import detach, is_stopped, stop, stop_all
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import SMALL, lines, sql, state, wrong
from tests.kpipe_assets.fakes import PIPELINE


def test_start_and_stop_turn_the_switch(offline: Kpipe) -> None:
    sql(offline, SMALL)
    waits = "started, but no service runs it: start `kpipe serve` or `kpipe ui`, or use kpipe run {} --follow instead"
    for statement in ("START PIPELINE orders", "START PIPELINE orders", "START PIPELINE IF NOT RUNNING orders"):
        assert waits.format("orders") in sql(offline, statement)
        assert state(offline) == "waiting", "it is not called running while nothing would run it"
    assert "start `kpipe serve` or `kpipe ui`" in offline("status").stdout
    with served(offline):
        assert state(offline) == "running"
        assert "is running already" in wrong(offline, "START PIPELINE orders")
        assert "is running already" in sql(offline, "START PIPELINE IF NOT RUNNING orders")
    assert sql(offline, "STOP PIPELINE orders") == "pipeline orders stopped\n"
    assert state(offline) == "stopped"
    assert "is not running" in wrong(offline, "STOP PIPELINE orders")
    assert "is not running" in sql(offline, "STOP PIPELINE IF RUNNING orders")
    sql(offline, SMALL.replace("PIPELINE orders", "PIPELINE other"))
    assert lines(offline, "START ALL PIPELINES") == [
        {"pipeline": name, "result": f"pipeline {name} {waits.format(name)}"} for name in ("orders", "other")
    ]
    assert [row["result"] for row in lines(offline, "STOP ALL PIPELINES")] == ["stopped", "stopped"]
    sql(offline, "START PIPELINE other; DROP PIPELINE other")
    sql(offline, SMALL.replace("PIPELINE orders", "PIPELINE other"))
    assert state(offline, "other") == "stopped", "a switch goes with its pipeline"


def test_start_all_goes_on_after_a_pipeline_with_a_problem(offline: Kpipe) -> None:
    for name in ("orders", "other"):
        sql(offline, SMALL.replace("PIPELINE orders", f"PIPELINE {name}"))
    (Home(offline.home).pipelines / "nothing.yaml").write_text("nonsense: 1\n")
    done = offline("sql", "START ALL PIPELINES", "--json", status=1)
    rows = {row["pipeline"]: row["result"] for row in map(json.loads, done.stdout.splitlines())}
    assert [*rows] == ["nothing", "orders", "other"] and "pipeline other started" in rows["other"]
    assert rows["nothing"].startswith("not started: ") and "nothing.yaml:1" in rows["nothing"]
    assert "1 pipeline not started: nothing -> follow the hint of each, and repeat the statement" in done.stderr
    with SensorStates(Home(offline.home)) as sensor_states:
        assert sensor_states.on() == {"orders", "other"}
    assert "nothing.yaml:1" in wrong(offline, "CLEAR PIPELINE ERRORS")


def test_a_pipeline_with_an_invalid_definition_can_be_stopped(offline: Kpipe) -> None:
    file = Home(offline.home).pipelines / "orders.yaml"
    for statement, message in (("STOP", "pipeline orders stopped"), ("DETACH", "pipeline orders detached")):
        sql(offline, f"{SMALL}; START PIPELINE orders")
        file.write_text("nonsense: 1\n")
        assert message in sql(offline, f"{statement} PIPELINE orders")
        with SensorStates(Home(offline.home)) as sensor_states:
            assert sensor_states.on() == frozenset()
        assert "no pipeline 'order'" in wrong(offline, f"{statement} PIPELINE order")
        sql(offline, "DROP PIPELINE orders")


def test_a_pipeline_starts_while_its_destination_is_away(offline: Kpipe) -> None:
    """The destination only displays the state."""
    sql(offline, f"{SMALL}; START PIPELINE orders")
    (Home(offline.home).data / "kpipe.duckdb").write_text("no database")
    home = Home(offline.home)
    note_state(home, "orders", "error")
    assert "pipeline orders started" in sql(offline, "START FAILED PIPELINES") and home.noted("orders")["state"] == "stopped"


def test_stop_all_turns_all_switches_before_it_waits(offline: Kpipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_stop, "_PATIENCE_S", 0.1)
    home = Home(offline.home)
    for name in ("orders", "other"):
        sql(offline, SMALL.replace("PIPELINE orders", f"PIPELINE {name}"))
    sql(offline, "START ALL PIPELINES")
    with at_work(home, "orders"):
        done = offline("sql", "STOP ALL PIPELINES", "--json", status=1)
    rows = {row["pipeline"]: row["result"] for row in map(json.loads, done.stdout.splitlines())}
    assert "its sensor is stopped, but its batch has not ended within 0.1 s -> wait" in rows["orders"]
    assert rows["other"] == "stopped" and "1 pipeline not stopped: orders" in done.stderr
    with SensorStates(home) as sensor_states:
        assert sensor_states.on() == frozenset()


def test_switches_are_read_as_dagster_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its file where its settings are ours, as that takes no import of Dagster; else through Dagster."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.at(tmp_path).make()
    assert sensor_state._read(home) == frozenset(), "no sensor was ever started, so Dagster need not be imported"
    with SensorStates(home) as sensor_states:
        assert sensor_states.on() == frozenset()
        for name, on in (("a", True), ("b", True), ("c_d", True), ("b", False)):
            sensor_states.turn(name, on)
        assert sensor_states.on() == {"a", "c_d"}, "by Dagster, which is loaded now"
    assert sensor_state._read(home) == {"a", "c_d"}
    with (home.dagster / "dagster.yaml").open("a") as file:
        file.write("# edited\n")
    assert sensor_state._read(home) is None
    with SensorStates(home) as sensor_states:
        assert sensor_states.on() == {"a", "c_d"}


def test_states_that_are_closed_in_the_order_of_their_opening_leave_no_closed_instance(tmp_path: Path) -> None:
    """Dagster would ask it for the state of components, in whatever loads definitions next."""
    from dagster._core.storage.defs_state.base import DefsStateStorage

    home = Home.at(tmp_path).make()
    with SensorStates(home) as outer, SensorStates(home) as inner:
        for states in (inner, outer):
            states.turn("orders", on=states is inner)
    assert DefsStateStorage.get() is None


def test_a_run_that_has_waited_for_long_is_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise STOP PIPELINE would say "stopped", and the run would begin after that."""
    import dagster as dg

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.at(tmp_path).make()
    with SensorStates(home) as sensor_states:
        sensor_states.turn("orders", True)
        assert not sensor_states.starting("orders")
    with open_instance(str(home.dagster)) as instance:
        run = dg.DagsterRun("orders", status=dg.DagsterRunStatus.STARTING, tags={OP_TAG: "orders"})
        instance.add_run(run)
    (file,) = home.dagster.glob("**/runs.db")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE runs SET create_timestamp = datetime('now', '-1 hour')")
    with SensorStates(home) as sensor_states:
        assert sensor_states.starting("orders") and not sensor_states.starting("other")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE runs SET update_timestamp = datetime('now', '-1 hour')")
    with SensorStates(home) as sensor_states:
        assert not sensor_states.starting("orders"), "its process died"


def test_a_run_that_was_started_in_the_ui_is_one_of_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no tag of the sensor: its assets name the pipeline."""
    import dagster as dg
    from dagster._core.remote_origin import RemoteJobOrigin

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.at(tmp_path).make()
    for name in ("orders", "orders_pg"):
        home.save(PIPELINE.model_copy(update={"name": name, "into": Into(table="orders")}))
    catalog(home)  # Dagster has not loaded the second one, whose table is the asset of the first
    with SensorStates(home) as sensor_states:
        sensor_states.turn("orders", True)
        sensor_states.turn("orders", False)
    queued, starting = dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING
    with open_instance(str(home.dagster)) as instance:

        def begin(status: dg.DagsterRunStatus) -> str:
            chosen = frozenset({dg.AssetKey(["orders"])})
            origin = RemoteJobOrigin(sensor_state._origin("orders").repository_origin, "__ASSET_JOB")
            run = dg.DagsterRun("__ASSET_JOB", status=status, asset_selection=chosen, remote_job_origin=origin)
            return instance.add_run(run).run_id

        def stopped(statement: Callable[[SensorStates], Result]) -> str:
            with SensorStates(home) as sensor_states:
                return statement(sensor_states).message

        run = begin(queued)
        with pytest.raises(InvalidStatement, match="orders_pg is not running"):
            stopped(lambda states: stop(home, states, Stop("orders_pg"), print))
        with SensorStates(home) as sensor_states:
            assert not is_stopped(home, sensor_states, "orders") and is_stopped(home, sensor_states, "orders_pg")
        statements: list[Callable[[SensorStates], Result]] = [
            lambda states: stop(home, states, Stop("orders"), print),
            lambda states: stop_all(home, states, StopAll(), print),
            lambda states: detach(home, states, Detach("orders"), print),
        ]
        for statement in statements:
            stopped(statement)
            found = instance.get_run_by_id(run)
            assert found is not None and found.status == dg.DagsterRunStatus.CANCELED
            run = begin(queued)
        stopped(lambda states: stop(home, states, Stop("orders"), print))
        with pytest.raises(InvalidStatement, match="orders is not running"):
            stopped(lambda states: stop(home, states, Stop("orders"), print))
        begin(starting)
        with SensorStates(home) as sensor_states:
            assert sensor_states.starting("orders") and not sensor_states.starting("orders_pg")


def test_a_backfill_of_the_ui_is_one_of_the_pipeline_before_it_has_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's daemon creates the run later: it would load a table that was said to be detached."""
    import dagster as dg
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home, table = Home.at(tmp_path).make(), dg.AssetKey(["orders"])
    for name in ("orders", "other"):
        home.save(PIPELINE.model_copy(update={"name": name, "into": Into(table=name)}))
    with SensorStates(home) as sensor_states:
        sensor_states.turn("orders", True)
        sensor_states.turn("orders", False)
    statements: list[Callable[[SensorStates], Result]] = [
        lambda states: stop(home, states, Stop("orders"), print),
        lambda states: stop_all(home, states, StopAll(), print),
        lambda states: detach(home, states, Detach("orders"), print),
    ]
    with open_instance(str(home.dagster)) as instance:

        def request(name: str, chosen: dg.AssetKey) -> None:
            requested = PartitionBackfill(name, BulkActionStatus.REQUESTED, False, {}, time.time(), asset_selection=[chosen])
            instance.add_backfill(requested)

        def status(name: str) -> BulkActionStatus:
            backfill = instance.get_backfill(name)
            assert backfill is not None
            return backfill.status

        request("unrelated", dg.AssetKey(["report"]))
        for number, statement in enumerate(statements):
            request(f"new{number}", table)
            with SensorStates(home) as sensor_states:
                assert not is_stopped(home, sensor_states, "orders") and is_stopped(home, sensor_states, "other")
            with SensorStates(home) as sensor_states:
                statement(sensor_states)
                assert status(f"new{number}") == BulkActionStatus.CANCELED
                assert is_stopped(home, sensor_states, "orders")
        request("begun", table)
        tags = dg.DagsterRun.tags_for_backfill_id("begun")
        instance.add_run(dg.DagsterRun("begun", status=dg.DagsterRunStatus.SUCCESS, tags=tags, asset_selection={table}))
        with SensorStates(home) as sensor_states:
            assert is_stopped(home, sensor_states, "orders"), "its run has ended"
            stop(home, sensor_states, Stop("orders", if_running=True), print)
        assert status("begun") == status("unrelated") == BulkActionStatus.REQUESTED


def test_a_run_that_is_queued_while_stop_waits_is_canceled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dagster as dg
    from dagster._core.remote_origin import RemoteJobOrigin

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.at(tmp_path).make()
    home.save(PIPELINE.model_copy(update={"name": "orders", "into": Into(table="orders")}))
    with ExitStack() as working, SensorStates(home) as sensor_states:
        sensor_states.turn("orders", True)
        working.enter_context(at_work(home, "orders"))
        origin = RemoteJobOrigin(sensor_state._origin("orders").repository_origin, "orders")
        queued = dg.DagsterRun("orders", status=dg.DagsterRunStatus.QUEUED, tags={OP_TAG: "orders"}, remote_job_origin=origin)
        with open_instance(str(home.dagster)) as instance:

            def wait(_: str) -> None:
                instance.add_run(queued)
                working.close()

            stop(home, sensor_states, Stop("orders"), wait)
            found = instance.get_run_by_id(queued.run_id)
            assert found is not None and found.status == dg.DagsterRunStatus.CANCELED


@contextmanager
def served(kpipe: Kpipe) -> Iterator[None]:
    """While inside, `kpipe ui` seems to run on the home."""
    with (Home(kpipe.home).make().state / "ui.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_the_daemon_of_a_dagster_of_ones_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster._daemon.types import DaemonHeartbeat

    (tmp_path / "own").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "own"))
    home = Home.at(tmp_path / "home")
    home.save(PIPELINE)
    with SensorStates(home) as sensor_states:
        assert "tweets" in sensor_states.unserved()
        with open_instance(tmp_path / "own") as instance:
            for age, served in ((3600, False), (5, True)):
                instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, "SENSOR", "1", []))
                assert ("tweets" not in sensor_states.unserved()) == served


def states_of(kpipe: Kpipe) -> dict[str, str]:
    """By SHOW PIPELINES, which must be what `kpipe status` says."""
    shown = {row["pipeline"]: row["state"] for row in lines(kpipe, "SHOW PIPELINES")}
    assert {row["pipeline"]: row["state"] for row in kpipe.json("status")} == shown
    return shown


def test_start_does_not_take_an_ending_run_of_the_service_for_a_running_pipeline(offline: Kpipe) -> None:
    sql(offline, SMALL)
    home = Home(offline.home)
    with served(offline):
        with marked(home, "orders", "4711"):
            assert "is running already" in wrong(offline, "START PIPELINE orders"), "a run of `kpipe run` goes on"
        with marked(home, "orders", f"{SERVED}4711-1"):
            assert sql(offline, "START PIPELINE orders") == "pipeline orders started\n"
            assert "is running already" in wrong(offline, "START PIPELINE orders")


def test_failed_pipelines_are_started_again_by_their_own_statement(offline: Kpipe) -> None:
    quick = SMALL.replace("INTO", """CONFIG '{"operation.timeout.ms": 100}' INTO""")
    for name in ("a", "b", "c", "d"):
        sql(offline, quick.replace("PIPELINE orders", f"PIPELINE {name}"))
    home = Home(offline.home)
    sql(offline, "START PIPELINE a; DETACH PIPELINE b")
    note_state(home, "a", "error")
    note_state(home, "c", "needs_operator")
    assert states_of(offline) == {"a": "error", "b": "detached", "c": "needs_operator", "d": "stopped"}
    assert [row["pipeline"] for row in lines(offline, "START FAILED PIPELINES")] == ["a", "c"]
    assert states_of(offline) == {"a": "waiting", "b": "detached", "c": "needs_operator", "d": "stopped"}
    sql(offline, "START PIPELINE b")
    for name in ("a", "d"):  # as a run leaves it that was killed
        home.note(name, "running")
    assert states_of(offline) == {"a": "waiting", "b": "waiting", "c": "needs_operator", "d": "stopped"}
    with served(offline):
        assert states_of(offline) == {"a": "running", "b": "running", "c": "needs_operator", "d": "stopped"}


def test_a_pipeline_that_dagster_has_not_loaded_waits(offline: Kpipe) -> None:
    """Its sensor does not exist in Dagster, so nothing would read."""
    home = Home(offline.home)
    sql(offline, SMALL)
    sql(offline, SMALL.replace("PIPELINE orders", "PIPELINE orders_pg"))
    catalog(home)
    with served(offline):
        assert sql(offline, "START PIPELINE orders") == "pipeline orders started\n"
        for _ in range(2):
            answer = sql(offline, "START PIPELINE orders_pg")
            assert "started, but Dagster has not loaded it: pipeline orders_pg: its table orders is the asset of" in answer
        assert states_of(offline) == {"orders": "running", "orders_pg": "waiting"}
        assert "orders_pg: started, but Dagster has not loaded it" in offline("status").stdout
        with only_service(home) as (_, record):
            record(Service(os.getpid(), dagster_home=str(home.dagster)))
            assert states_of(offline) == {"orders": "running", "orders_pg": "running"}, "kpipe serve runs it"
        sql(offline, "DROP PIPELINE orders")
        catalog(home)  # as `kpipe ui` does when a definition changes
        assert states_of(offline) == {"orders_pg": "running"}


# What the UI and the statements see of each other: test_ui.py, beside a running UI


def test_a_run_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    home = Home(tmp_path).make()
    follow, continuous = StopRequests(home, "orders", restarts=False), StopRequests(home, "orders", restarts=True)
    assert not follow.asked() and not continuous.asked()
    ask(home, "others", "stop")
    ask(home, "orders", "restart")
    assert (follow.asked(), continuous.asked()) == (False, True), "only runs that somebody starts again"
    assert not StopRequests(home, "orders", restarts=True).asked(), "nor those that begin afterwards"
    naps: list[float] = []
    follow.wait(0.02, naps.append)
    assert all(nap <= 0.02 for nap in naps), "each sleep is short"
    naps.clear()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        ask(home, "orders", "stop")

    follow.wait(1000, nap)
    assert follow.asked() and continuous.asked()
    assert len(naps) == 1 and naps[0] <= 0.5, "the sleep ends at the request"
    follow.wait(1000, nap)
    assert len(naps) == 1, "nor at all afterwards"
