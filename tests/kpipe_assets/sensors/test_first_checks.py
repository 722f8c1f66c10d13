"""A table's checks are evaluated by a sensor once, after its first commits are published."""

from __future__ import annotations

import json
import time
from copy import deepcopy

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.utils import make_new_run_id

from kpipe.errors import BrokerUnreachable, CredentialsRefused, DestinationBusy, KpipeError, LedgerMismatch
from kpipe_assets.assets import first_checks, lag_verdict, table_checks
from kpipe_assets.assets.table_checks import Bounds
from kpipe_assets.runs.run_locks import SERVED, at_work, marked
from kpipe_assets.sensors import tick as tick_module
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster, said, tick

NAMES = {"complete", "published", "lag", "schema", "dead_letters"}


def results(world: World) -> dict[str, dg.AssetCheckEvaluation]:
    found = {}
    for name in NAMES:
        record = world.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(KEY, name))
        if record is not None and isinstance(record.evaluation, dg.AssetCheckEvaluation):
            found[name] = record.evaluation
    return found


def evaluated(result: dg.SensorResult) -> set[str]:
    return {event.check_name for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)}


def lag_events(result: dg.SensorResult) -> list[bool]:
    """The new results of `lag`."""
    events = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    return [event.passed for event in events if event.check_name == "lag"]


def planned(world: World, status: dg.DagsterRunStatus, *names: str) -> None:
    """What Dagster stores when a run that contains these checks is created, which has this status now."""
    run_id = world.instance.add_run(dg.DagsterRun("tweets", status=status)).run_id
    for name in names:
        event = dg.DagsterEvent(
            dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
            "tweets",
            event_specific_data=AssetCheckEvaluationPlanned(asset_key=KEY, check_name=name),
        )
        world.instance.report_dagster_event(event, run_id)


@pytest.fixture
def loaded(world: World) -> World:
    assert list(_ingest_without_dagster(world))
    return world


def test_the_first_tick_after_a_load_evaluates_every_check(loaded: World) -> None:
    assert evaluated(tick(loaded, metadata=True)) == NAMES
    found = results(loaded)
    assert {name: event.passed for name, event in found.items()} == dict.fromkeys(NAMES, True)
    assert found["complete"].description == "12 offsets accounted for"
    assert found["published"].description == "3 partitions agree"


def test_later_ticks_read_neither_table_nor_results(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = tick(loaded, metadata=True).cursor
    loaded.topics.produce(0, {"id": 99})
    assert list(_ingest_without_dagster(loaded))
    monkeypatch.setattr("kpipe_assets.sensors.tick.first_results", lambda *_: pytest.fail("evaluated again"))
    assert not evaluated(tick(loaded, cursor, metadata=True))


def test_a_tick_with_a_lost_cursor_or_of_the_other_sensor_evaluates_nothing_again(loaded: World) -> None:
    tick(loaded, metadata=True)
    assert not evaluated(tick(loaded, metadata=True))
    assert not evaluated(tick(loaded))


def test_a_table_without_commits_waits_for_them(world: World) -> None:
    first = tick(world, metadata=True)
    assert not evaluated(first)
    assert list(_ingest_without_dagster(world))
    assert evaluated(tick(world, first.cursor, metadata=True)) == NAMES


def test_results_of_a_run_are_kept(loaded: World) -> None:
    loaded.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(asset_key=KEY, check_name="schema", passed=False, metadata={}, description="of a run")
    )
    assert evaluated(tick(loaded, metadata=True)) == NAMES - {"schema"}
    assert results(loaded)["schema"].description == "of a run"


def test_checks_that_a_run_will_evaluate_are_left_to_it(loaded: World) -> None:
    """Dagster shows the record that was stored last: a result of the sensor would hide that of a run that was created before."""
    planned(loaded, dg.DagsterRunStatus.STARTED, *NAMES - {"schema"})
    assert evaluated(tick(loaded, metadata=True)) == {"schema"}


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE, None])
def test_checks_that_a_run_has_planned_and_not_evaluated_are_evaluated(loaded: World, status: dg.DagsterRunStatus | None) -> None:
    """It was cancelled, has failed before them, or was deleted."""
    planned(loaded, status or dg.DagsterRunStatus.CANCELED, *NAMES)
    if status is None:
        (run,) = loaded.instance.get_runs()
        loaded.instance.run_storage.delete_run(run.run_id)
    assert evaluated(tick(loaded, metadata=True)) == NAMES
    assert not evaluated(tick(loaded, metadata=True))


@pytest.mark.parametrize("metadata", [True, False])
def test_checks_that_a_later_run_has_planned_and_not_evaluated_are_evaluated(
    loaded: World, metadata: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the sensor has evaluated them once; `lag` is red above its bound then."""
    cursor = tick(loaded, metadata=metadata).cursor
    planned(loaded, dg.DagsterRunStatus.CANCELED, *NAMES)
    monkeypatch.setattr(lag_verdict, "Bounds", lambda: Bounds(lag=5))
    loaded.topics.produce(2, *({"id": n} for n in range(9)))
    again = tick(loaded, cursor, metadata=metadata)
    assert evaluated(again) == NAMES
    assert lag_events(tick(loaded, again.cursor, metadata=metadata)) == [False]


def test_checks_of_a_run_that_is_created_during_the_evaluation_are_left_to_it(
    loaded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = table_checks._schema

    def racing(*arguments: object) -> table_checks.Result:
        planned(loaded, dg.DagsterRunStatus.STARTED, "complete", "lag")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(table_checks, "_schema", racing)
    assert evaluated(tick(loaded, metadata=True)) == NAMES - {"complete", "lag"}


def test_while_a_run_is_at_work_a_tick_evaluates_nothing(loaded: World) -> None:
    with at_work(loaded.home, "tweets"):
        first = tick(loaded, metadata=True)
        assert not evaluated(first)
    assert evaluated(tick(loaded, first.cursor, metadata=True)) == NAMES


def test_a_large_table_is_not_read(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_checks, "_MOST_ROWS", 11)
    first = tick(loaded, metadata=True)
    assert evaluated(first) == {"lag", "schema"}
    assert not evaluated(tick(loaded, first.cursor, metadata=True))


def test_a_commit_during_the_evaluation_postpones_it(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = table_checks._schema

    def racing(*arguments: object) -> table_checks.Result:
        loaded.topics.produce(0, {"id": 99})
        assert list(_ingest_without_dagster(loaded))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(table_checks, "_schema", racing)
    first = tick(loaded, metadata=True)
    assert not evaluated(first)
    monkeypatch.setattr(table_checks, "_schema", real)
    assert evaluated(tick(loaded, first.cursor, metadata=True)) == NAMES


def test_an_error_is_the_result_unless_it_passes(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    error: Exception = DestinationBusy("locked", "wait")

    def failing(*_: object) -> table_checks.Result:
        raise error

    monkeypatch.setattr(table_checks, "_complete", failing)
    first = tick(loaded, metadata=True)
    assert not evaluated(first)
    error = LedgerMismatch("the table is missing")
    assert evaluated(tick(loaded, first.cursor, metadata=True)) == NAMES
    assert not results(loaded)["complete"].passed and "the table is missing" in str(results(loaded)["complete"].description)


def lag_of(world: World) -> tuple[bool, dg.AssetCheckSeverity, str]:
    found = results(world)["lag"]
    return found.passed, found.severity, str(found.description)


def test_lag_is_red_after_an_error_and_above_its_bound(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run in Dagster, only the sensor evaluates it."""
    cursor = tick(loaded, metadata=True).cursor
    monkeypatch.setattr(lag_verdict, "Bounds", lambda: Bounds(lag=5))
    loaded.topics.produce(2, *({"id": n} for n in range(9)))
    with marked(loaded.home, "tweets", make_new_run_id()):
        assert not evaluated(tick(loaded, cursor, metadata=True)), "a run of Dagster evaluates the bound at its end"
    with marked(loaded.home, "tweets", f"{SERVED}1-1"):
        assert evaluated(tick(loaded, cursor, metadata=True)) == {"lag"}
        assert lag_of(loaded) == (False, dg.AssetCheckSeverity.WARN, "9 offsets behind, most of them in tweets/2: 9 (bound 5)")
    loaded.home.note("tweets", "error", "batch 1 failed")
    assert evaluated(tick(loaded, cursor, metadata=True)) == {"lag"}
    loaded.home.note("tweets", "error", "batch 2 failed")
    assert not evaluated(tick(loaded, cursor, metadata=True)), "each run of the service ends with it"
    assert lag_of(loaded) == (False, dg.AssetCheckSeverity.ERROR, "batch 1 failed")
    loaded.home.note("tweets", "running")
    with marked(loaded.home, "tweets", f"{SERVED}1-2"):
        assert not evaluated(tick(loaded, cursor, metadata=True)), "it has committed nothing yet"
        assert list(_ingest_without_dagster(loaded))
        assert evaluated(tick(loaded, cursor, metadata=True)) == {"lag"}
    assert lag_of(loaded)[0]


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("error", [None, CredentialsRefused("refused")])
def test_lag_is_red_when_a_tick_ends_with_an_error(loaded: World, error: KpipeError | None, metadata: bool) -> None:
    """No run begins then that could report it."""
    assert lag_events(tick(loaded, metadata=metadata)) == [True]
    before = deepcopy(loaded.topics)
    loaded.topics.fail(*[error] * 2 if error else ())
    if error is None:
        loaded.topics.delete()
    found = tick(loaded, metadata=metadata)
    assert lag_events(found) == [False] and (str(error) if error else "the cluster has no topic tweets") in said(found)
    assert lag_of(loaded) == (False, dg.AssetCheckSeverity.ERROR, said(found))
    assert not evaluated(tick(loaded, found.cursor, metadata=metadata))
    loaded.topics = before
    assert lag_events(tick(loaded, found.cursor, metadata=metadata)) == [True]


def test_lag_is_red_when_brokers_do_not_answer_for_long(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or when the last run has failed. A tick alone may find them, or a lock, unavailable for a moment."""
    cursor = tick(loaded, metadata=True).cursor
    loaded.topics.fail(BrokerUnreachable("b"))
    failed = tick(loaded, cursor, metadata=True)
    assert not evaluated(failed) and "b" in said(failed)
    answered = tick(loaded, failed.cursor, metadata=True)
    monkeypatch.setattr(tick_module, "_LASTING_S", -1.0)
    assert not evaluated(answered)
    loaded.topics.fail(BrokerUnreachable("b"), DestinationBusy("locked"))
    failed = tick(loaded, answered.cursor, metadata=True)
    assert lag_events(failed) == [False] and lag_of(loaded)[2] == "b"
    assert not evaluated(tick(loaded, failed.cursor, metadata=True)), "nor of another error that may pass"
    assert lag_events(tick(loaded, failed.cursor, metadata=True)) == [True]
    monkeypatch.undo()
    loaded.home.note("tweets", "error", "no broker answered")
    loaded.topics.fail(BrokerUnreachable("b"))
    assert lag_events(tick(loaded, answered.cursor, metadata=True)) == [False]
    assert lag_of(loaded)[2] == "no broker answered"
    assert not evaluated(tick(loaded, answered.cursor, metadata=True))


def later(cursor: str | None, seconds: float) -> str:
    """The cursor of failed ticks, as it is after this time without a tick."""
    fields = json.loads(cursor or "")
    return json.dumps({name: value - seconds if name in ("failing", "failed") else value for name, value in fields.items()})


def test_time_without_ticks_is_no_time_of_failed_ticks(loaded: World) -> None:
    """The sensor was stopped, or nothing evaluated it. Ticks that are rare for another reason make `lag` red, too."""
    tick(loaded, metadata=True)
    loaded.topics.fail(*[BrokerUnreachable("b")] * 7)
    cursor, found = tick(loaded, metadata=True).cursor, []
    for _ in range(6):
        failed = tick(loaded, later(cursor, 3600.0), metadata=True)
        cursor = failed.cursor
        found.append(lag_events(failed))
    assert not any(found[:4]) and [False] in found[4:]


def test_the_cursor_of_an_earlier_version_is_read(loaded: World) -> None:
    """It has no time of the last failed tick."""
    fields = json.loads(tick(loaded, metadata=True).cursor or "")
    fields.pop("failed", None)
    loaded.topics.fail(BrokerUnreachable("b"))
    failed = tick(loaded, json.dumps(fields | {"failing": time.time() - 3600.0}), metadata=True)
    assert not evaluated(failed)
    assert json.loads(failed.cursor or "")["checked"] == fields["checked"]


def test_a_tick_after_one_that_failed_checks_everything(loaded: World) -> None:
    tick(loaded)
    done = tick(loaded).cursor
    assert not tick(loaded, done).asset_events
    loaded.topics.fail(CredentialsRefused("refused"))
    failed = tick(loaded, done)
    assert lag_events(failed) == [False]
    assert lag_events(tick(loaded, failed.cursor)) == [True], "although ledger and brokers are as before"


def test_checks_are_evaluated_beside_a_run_of_the_service(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the sensor has published its commits."""
    monkeypatch.setattr("kpipe_assets.sensors.tick._REPAIR_S", -1.0)
    with marked(loaded.home, "tweets", f"{SERVED}1-1"):
        assert evaluated(tick(loaded, metadata=True)) == NAMES


def test_old_results_are_evaluated_again_after_new_commits(loaded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = tick(loaded, metadata=True).cursor
    for module in ("assets.first_checks", "sensors.tick"):
        monkeypatch.setattr(f"kpipe_assets.{module}.AGAIN_S", -1.0)
    loaded.store.tables["tweets"].rows.pop()
    assert not evaluated(tick(loaded, cursor, metadata=True)), "nothing was committed"
    loaded.topics.produce(0, {"id": 99})
    assert list(_ingest_without_dagster(loaded))
    assert evaluated(tick(loaded, cursor, metadata=True)) == {"complete"}, "only what has changed is published"
    assert not results(loaded)["complete"].passed
