"""Ticks beside runs in progress, dead run workers, failures, and decisions of an operator."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time

import dagster as dg
import pytest

from kpipe.testing.topics import FakeTopics
from kpipe_assets.assets.table_asset import OP_TAG
from kpipe_assets.sensors.ingest_sensor import CONTINUOUS_TAG, Pace
from tests.kpipe_assets.fakes import World, said, tick


def _pretend_run(world: World, status: dg.DagsterRunStatus, **tags: str) -> dg.DagsterRun:
    from dagster._core.test_utils import create_run_for_test

    return create_run_for_test(world.instance, job_name="job", status=status, tags={OP_TAG: "tweets", **tags})


def _of_process(world: World, run: dg.DagsterRun, pid: int) -> None:
    """What the launcher writes into a run's log."""
    from dagster._core.events import EngineEventData

    world.instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_a_run_in_progress_keeps_the_next_one_away(world: World) -> None:
    world.grow()
    _pretend_run(world, dg.DagsterRunStatus.NOT_STARTED)
    assert said(tick(world)) == "a run is in progress"
    assert tick(world, pace=Pace(launch_s=-1)).run_requests, "what was asked for, and never queued, wedges nothing"


@pytest.mark.parametrize("status", ["STARTING", "STARTED", "CANCELING"])
def test_a_run_whose_process_is_gone_is_reported_at_once_and_followed_by_the_next(world: World, dead: int, status: str) -> None:
    world.grow()
    run = _pretend_run(world, dg.DagsterRunStatus[status])
    _of_process(world, run, dead)
    mark = world.home.state / f"tweets.{run.run_id}.run"
    mark.touch()
    assert len(tick(world).run_requests or ()) == 1
    found = world.instance.get_run_by_id(run.run_id)
    assert found is not None and found.status == dg.DagsterRunStatus.FAILURE
    assert not mark.exists()


def test_a_run_whose_process_lives_or_is_unknown_or_holds_its_mark_is_left_alone(world: World, dead: int) -> None:
    world.grow()
    run = _pretend_run(world, dg.DagsterRunStatus.STARTED)
    assert said(tick(world)) == "a run is in progress", "the log does not say which process it is"
    mark = world.home.state / f"tweets.{run.run_id}.run"
    with mark.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _of_process(world, run, dead)
        assert said(tick(world)) == "a run is in progress", "a process of it, elsewhere, is at work"
    lively = _pretend_run(world, dg.DagsterRunStatus.STARTED)
    _of_process(world, lively, os.getpid())
    tick(world)
    found = world.instance.get_run_by_id(lively.run_id)
    assert found is not None and found.status == dg.DagsterRunStatus.STARTED


def test_a_process_that_is_younger_than_the_run_is_another_one_of_the_same_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.grow()
    run = _pretend_run(world, dg.DagsterRunStatus.STARTED)
    _of_process(world, run, os.getpid())
    monkeypatch.setattr("psutil.Process.create_time", lambda _: time.time() + 60)
    assert tick(world).run_requests


def test_the_successor_of_a_continuous_run_is_started_before_its_end(world: World) -> None:
    world.grow()
    _pretend_run(world, dg.DagsterRunStatus.STARTED, **{CONTINUOUS_TAG: "true"})
    assert len(tick(world, pace=Pace(run_s=60, lead_s=61)).run_requests or ()) == 1
    _pretend_run(world, dg.DagsterRunStatus.NOT_STARTED, **{CONTINUOUS_TAG: "true"})
    assert "and its successor" in said(tick(world, pace=Pace(run_s=60, lead_s=61)))


def test_the_first_failure_is_followed_at_once_and_more_of_them_make_it_wait_longer(world: World) -> None:
    world.grow()
    for _ in range(3):
        assert tick(world, pace=Pace(first_wait_s=0)).run_requests
        world.instance.report_run_failed(_pretend_run(world, dg.DagsterRunStatus.STARTED))
    assert "3 failed in a row; the next run starts in" in said(tick(world))
    assert tick(world, pace=Pace(longest_wait_s=-1)).run_requests, "a run that went well for long begins a new row"


def test_what_needs_an_operator_starts_no_runs_in_a_loop_and_turns_a_check_red_until_it_is_resolved(world: World) -> None:
    world.run()
    before = world.topics
    world.topics = FakeTopics({"tweets": 3})  # brokers of another cluster
    world.topics.produce(0, {"id": 1})
    first = tick(world)
    assert "needs an operator" in said(first)
    evaluations = [event for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert [(item.check_name, item.passed) for item in evaluations if item.check_name == "lag"] == [("lag", False)]
    # The first tick also evaluates the other checks, which passed: test_first_checks.py.
    assert {item.check_name for item in evaluations if item.passed} == {"complete", "published", "schema", "dead_letters"}
    for metadata in (False, True):
        again = tick(world, metadata=metadata)
        assert "needs an operator" in said(again)
        assert not [event for event in again.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    world.topics = before
    (green,) = [event for event in tick(world).asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert green.passed and "0 offsets behind" in str(green.description)


def test_an_operator_is_asked_where_only_a_loss_is_accepted_beforehand(world: World) -> None:
    world.pipeline = world.pipeline.model_copy(
        update={"source": world.pipeline.source.model_copy(update={"on_data_loss": "record"})}
    )
    world.run()
    world.topics.produce(0, *({"id": n} for n in range(9)))
    world.topics.expire(0, 8)
    assert tick(world).run_requests
    world.topics.recreate(3)
    world.topics.produce(0, {"id": 1})
    assert "needs an operator" in said(tick(world))


def test_an_older_ledger_is_found_before_a_run_is_started(world: World) -> None:
    world.run()
    world.topics.produce(0, {"id": 1})
    seen = world.home.seen("tweets")
    seen.note(seen.uid, seen.seq + 5)
    assert "is too old: expected commit" in said(tick(world))


def test_what_only_a_run_can_find_is_tried_again_seldom(world: World) -> None:
    world.grow()
    world.instance.report_run_failed(_pretend_run(world, dg.DagsterRunStatus.STARTED))
    world.home.note("tweets", "needs_operator", "the table is gone")
    looked = tick(world)
    assert "needs an operator: the table is gone; the next run starts in" in said(looked)
    assert lags(looked) == [(False, "the table is gone")]
    assert lags(tick(world)) == [], "told once"
    world.home.note("tweets", "stopped")
    assert [passed for passed, _ in lags(tick(world))] == [True]


def test_a_log_that_was_cut_and_has_grown_again_is_red_until_an_operator_decides(world: World) -> None:
    """Its offsets fit, so only a read finds it. The table's checks keep the results of before."""
    for value in range(5):
        world.topics.produce(0, {"a": value})
    assert world.run().success
    tick(world)
    world.topics.truncate(0, 2)
    for value in range(9):
        world.topics.produce(0, {"a": -value})
    assert not world.run().success
    ((passed, problem),) = lags(tick(world))
    assert not passed and "was cut" in str(problem)
    assert lags(tick(world)) == [], "told once"


def lags(result: dg.SensorResult) -> list[tuple[bool, str | None]]:
    """Results of the check `lag`."""
    evaluations = (event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation))
    return [(found.passed, found.description) for found in evaluations if found.check_name == "lag"]
