"""Ticks of the sensors: which runs they start, and which events they publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kpipe.errors import KpipeError
from kpipe_assets.assets.table_asset import OP_TAG
from kpipe_assets.publishing.metadata import rarer
from kpipe_assets.runs import service_lock
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.runs.service_lock import Service, only_service
from kpipe_assets.sensors import tick as tick_module
from kpipe_assets.sensors.ingest_sensor import CONTINUOUS_TAG, Pace, ingest_sensor
from tests.kpipe_assets.dagster_ui import sqlite_instance
from tests.kpipe_assets.fakes import World, _ingest_without_dagster, observed, said, tick


def test_the_first_tick_finds_the_partitions_and_starts_a_run_over_all_of_them(world: World) -> None:
    result = tick(world)
    (request,) = result.dynamic_partitions_requests or ()
    assert list(request.partition_keys) == ["0", "1", "2"]
    (run,) = result.run_requests or ()
    assert run.run_key is None and run.tags[OP_TAG] == "tweets" and run.tags[CONTINUOUS_TAG] == "true"
    assert (run.tags["dagster/asset_partition_range_start"], run.tags["dagster/asset_partition_range_end"]) == ("0", "2")
    assert run.run_config["ops"]["tweets"]["config"] == {"max_seconds": 900, "idle_seconds": 300}


def test_a_tick_without_work_starts_nothing_and_observes_only_what_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    result = tick(world)
    assert said(result) == "caught up"
    assert observed(result) == ["0", "1", "2"]
    world.topics.produce(1, {"id": 99})
    soon = tick(world)
    assert soon.run_requests and not soon.asset_events, "of a partition that grows, at most one observation a minute"
    monkeypatch.setattr(tick_module, "_OBSERVE_S", 0.0)
    later = tick(world)
    (seen,) = later.asset_events
    assert (seen.partition, seen.metadata["kpipe/high_watermark"].value, seen.metadata["kpipe/lag"].value) == ("1", 5, 1)
    world.run()
    assert said(tick(world)) == "caught up" and not tick(world).asset_events


def test_a_tick_rests_where_ledger_and_brokers_say_what_they_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it does not open Dagster's databases: a context without an instance is enough."""

    def rests(cursor: str | None) -> bool:
        sensor = ingest_sensor(world.pipeline, world.home, world.table)
        context = dg.build_sensor_context(cursor=cursor, resources={k: world.resources[k] for k in ("kafka", "destinations")})
        try:
            result = sensor(context)
        except dg.DagsterInvariantViolationError:  # it has asked for the instance
            return False
        assert isinstance(result, dg.SensorResult) and said(result) == "caught up" and result.cursor == cursor
        return True

    world.run()
    first = tick(world)
    assert said(first) == "caught up" and not rests(first.cursor), "it had something to tell"
    done = tick(world, first.cursor).cursor
    assert rests(done) and rests(done)
    with at_work(world.home, "tweets"):
        assert not rests(done), "somebody is at work"
    monkeypatch.setattr(tick_module, "_REST_S", 0.0)
    assert not rests(done), "now and then it looks at everything"
    monkeypatch.undo()
    world.topics.produce(1, {"id": 99})
    assert not rests(done) and tick(world, done).run_requests
    list(_ingest_without_dagster(world))
    shown = tick(world, done)
    assert said(shown) == "caught up" and not rests(shown.cursor), "a commit was shown"
    world.all_published()
    assert rests(tick(world, shown.cursor).cursor)
    world.topics.recreate(3)
    assert said(tick(world, done)).startswith("needs an operator")


def test_a_tick_leaves_the_pipeline_to_a_service_that_obeys_its_switch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with only_service(world.home) as (_, record):
        record(Service(4242, "", str(world.home.dagster)))
        assert said(tick(world)) == "kpipe serve (pid 4242) runs this pipeline"
        record(Service(4242, "", "/another/dagster"))
        assert tick(world).run_requests, "it reads other switches"
    assert tick(world).run_requests
    monkeypatch.setattr(service_lock, "_ORPHAN_S", 0.0)
    with only_service(world.home) as (_, record):
        record(Service(4242, "", str(world.home.dagster)))
        with pytest.raises(KpipeError, match="is running already: kpipe serve"), only_service(world.home):
            pass


def test_a_tick_tells_of_some_partitions_and_the_next_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_module, "_MAX_OBSERVATIONS", 2)
    world.run()
    first = tick(world)
    assert observed(first) == ["0", "1"]
    second = tick(world, first.cursor)
    assert [event.partition for event in second.asset_events] == ["2"]
    assert not tick(world, second.cursor).asset_events
    assert [rarer(partitions) for partitions in (1, 100, 1000)] == [1, 1, 10]


def test_dagsters_migrations_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic.script import Script

    read: list[str] = []
    really = Script._from_path.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, directory: Any, path: Any) -> Any:
        read.append(str(path))
        return really(cls, directory, path)

    def opened() -> int:
        before = len(read)
        with sqlite_instance(tmp_path) as instance:
            assert instance.get_runs_count() == 0
        return len(read) - before

    monkeypatch.setattr(Script, "_from_path", classmethod(counted))
    with dg.DagsterInstance.local_temp(str(tmp_path)):
        pass
    found = len(read)
    with dg.DagsterInstance.local_temp(str(tmp_path)):
        pass
    assert len(read) > found, "Dagster reads them with each instance"
    opened()
    assert opened() == 0


def test_many_pipelines_tick_less_often() -> None:
    assert Pace().of_many(1) == Pace().of_many(25) == Pace()
    hundred = Pace().of_many(100)
    assert (hundred.interval_s, hundred.metadata_s) == (20, 100)


def test_the_two_sensors_repeat_nothing_of_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_module, "_OBSERVE_S", 0.0)
    world.grow()
    list(_ingest_without_dagster(world))
    assert observed(tick(world, metadata=True)) == ["0", "1", "2"]
    assert not tick(world).asset_events
    world.topics.produce(2, {"id": 1})
    assert len(tick(world).asset_events) == 1
    again = tick(world, metadata=True)
    assert not again.asset_events and said(again) == "1 offsets behind"
    world.all_published()


def test_a_partition_that_rests_among_busy_ones_is_not_told_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_module, "_OBSERVE_S", 0.0)
    world.grow()
    tick(world)
    for number in range(5):  # its last observation lies further back than one query goes
        world.topics.produce(0, {"id": number})
        world.topics.produce(1, {"id": number})
        assert [event.partition for event in tick(world).asset_events] == ["0", "1"]


def test_a_tick_publishes_what_a_run_outside_of_dagster_committed(world: World) -> None:
    world.grow()
    list(_ingest_without_dagster(world))
    assert tick(world)
    world.all_published()


@pytest.mark.parametrize("metadata", [False, True])
def test_while_somebody_is_at_work_a_tick_leaves_publishing_to_them(
    world: World, monkeypatch: pytest.MonkeyPatch, metadata: bool
) -> None:
    world.grow()
    list(_ingest_without_dagster(world))
    with at_work(world.home, "tweets"):
        first = tick(world, metadata=metadata)
        assert world.events() == []
        monkeypatch.setattr(tick_module, "_REPAIR_S", 0.0)
        tick(world, first.cursor, metadata=metadata)  # who is at work is no run of Dagster's, or hangs
        world.all_published()


def test_new_partitions_of_the_topic_appear_in_numeric_order(world: World) -> None:
    world.run()
    world.topics.add_partitions(12)
    (request,) = tick(world).dynamic_partitions_requests or ()
    assert list(request.partition_keys) == [str(n) for n in range(3, 15)]
