"""Dagster's face over the public fakes: real instances and runs, no Kafka, no Spark, no database."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager, Topics
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import FakeTopics
from kpipe_assets.assets import table_asset as tables
from kpipe_assets.assets.proof_checks import Bounds, table_checks
from kpipe_assets.assets.table_asset import OP_TAG, table_asset
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.publishing.metadata import rarer
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.run_locks import at_work, is_running
from kpipe_assets.sensors import tick as look
from kpipe_assets.sensors.ingest_sensor import CONTINUOUS_TAG, Pace, ingest_sensor
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from resources.home import Home
from tests.kpipe_assets.dagster_ui import sqlite_instance

KEY = dg.AssetKey(["tweets"])
PIPELINE = Pipeline.model_validate(
    {
        "name": "tweets",
        "source": {"brokers": "b", "topic": "tweets"},
        "into": {"table": "tweets"},
        "batch": {"interval_ms": 20},
    }
)


@dataclass
class World:
    """A pipeline over fakes, in a home and an instance of its own."""

    home: Home
    instance: dg.DagsterInstance
    topics: FakeTopics
    stager: FakeStager
    warmed: int = 0
    store: MemoryStore = field(default_factory=MemoryStore)
    pipeline: Pipeline = field(default_factory=lambda: PIPELINE)

    @property
    def destination(self) -> MemoryDestination:
        return MemoryDestination(self.store, "tweets", "tweets")

    @property
    def resources(self) -> dict[str, Any]:
        world = self

        class Kafka:
            def topics(self, _: Pipeline) -> Topics:
                return world.topics

        class Spark:
            def stager(self, _: Pipeline) -> Stager:
                return world.stager

            def version(self, _: Pipeline) -> str:
                return "v1"

            def warm(self) -> None:
                world.warmed += 1

        class Destinations:
            def open(self, _: Pipeline) -> Destination:
                return world.destination

        return {"kafka": Kafka(), "spark": Spark(), "destinations": Destinations()}

    @property
    def table(self) -> dg.AssetsDefinition:
        return table_asset(self.pipeline, self.home, "v1")

    def grow(self) -> None:
        keys = [str(source.partition) for source in sorted(self.topics.snapshot().partitions)]
        self.instance.add_dynamic_partitions("kafka/tweets", keys)

    def run(self, first: str = "0", last: str | None = None, **config: Any) -> dg.ExecuteInProcessResult:
        self.grow()
        last = last or str(len(self.topics.snapshot().partitions) - 1)
        return dg.materialize(
            [topic_spec(self.pipeline), self.table],
            resources=self.resources,
            instance=self.instance,
            run_config={"ops": {"tweets": {"config": config}}} if config else None,
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
            raise_on_error=False,
        )

    def events(self, key: str | None = None) -> list[dg.AssetMaterialization]:
        """All materializations, oldest first."""
        asked = dg.AssetRecordsFilter(asset_key=KEY, asset_partitions=[key] if key else None)
        found = self.instance.fetch_materializations(asked, limit=1000).records
        return [record.asset_materialization for record in reversed(found) if record.asset_materialization]

    def value(self, event: dg.AssetMaterialization, name: str) -> Any:
        return event.metadata[name].value

    def mirrored(self) -> None:
        """Every commit is told of by exactly one event of each of its partitions."""
        told: dict[str, list[int]] = {}
        for event in self.events():
            records = event.metadata["kpipe/ranges"].value.records if "kpipe/ranges" in event.metadata else ()
            told.setdefault(str(event.partition), []).extend(int(record.data["commit"]) for record in records)
        committed: dict[str, list[int]] = {}
        for row in self.destination.view("batches"):
            committed.setdefault(str(row["batch_source_partition_id"]), []).append(int(row["seq"]))
        assert {key: sorted(value) for key, value in told.items() if value} == {key: sorted(v) for key, v in committed.items()}
        assert not self.destination.unpublished()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    topics = FakeTopics({"tweets": 3})
    staged = tmp_path / "staged"
    staged.mkdir()
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(Home(tmp_path / "home").make(), instance, topics, FakeStager(topics, staged))
        for partition in range(3):
            topics.produce(partition, *({"id": 10 * partition + n} for n in range(4)))
        yield made


def test_one_run_ingests_all_partitions_and_ends_with_one_event_for_each(world: World) -> None:
    result = world.run()
    assert result.success
    assert [event.partition for event in sorted(world.events(), key=lambda e: str(e.partition))] == ["0", "1", "2"]
    event = world.events("1")[0]
    names = ("start_offset", "end_offset", "rows", "dead_letters", "filtered", "gaps", "lag", "batches", "bytes")
    assert {name: world.value(event, f"kpipe/{name}") for name in names} == {
        "start_offset": 0, "end_offset": 4, "rows": 4, "dead_letters": 0, "filtered": 0, "gaps": 0, "lag": 0, "batches": 1,
        "bytes": world.value(event, "kpipe/bytes"),
    }  # fmt: skip
    assert world.value(event, "dagster/row_count") == 12
    assert [column.name for column in world.value(event, "dagster/column_schema").columns] == ["id"]
    (source,) = world.value(event, "dagster/column_lineage").deps_by_column["id"]
    assert (source.asset_key, source.column_name) == (dg.AssetKey(["kafka", "tweets"]), "value")
    world.mirrored()


def test_a_selection_ingests_only_its_partitions(world: World) -> None:
    assert world.run("1", "1").success
    assert [event.partition for event in world.events()] == ["1"]
    assert {source.partition: at for source, at in world.destination.ledger()[1].positions().items()} == {0: 0, 1: 4, 2: 0}


def test_a_partition_without_news_gets_its_closing_event(world: World) -> None:
    world.run()
    assert world.run().success
    assert [world.value(event, "kpipe/rows") for event in world.events("2")] == [4, 0]
    assert world.value(world.events("2")[-1], "kpipe/end_offset") == 4
    world.mirrored()


def test_events_of_many_batches_are_one_for_each_partition(world: World) -> None:
    world.pipeline = world.pipeline.model_copy(
        update={"batch": world.pipeline.batch.model_copy(update={"max_offsets_per_partition": 1})}
    )
    assert world.run().success
    assert len(world.events()) == 3
    event = world.events("0")[0]
    assert (world.value(event, "kpipe/batches"), world.value(event, "kpipe/rows")) == (4, 4)
    world.mirrored()


def test_while_a_run_goes_on_events_come_at_intervals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_EVENT_EVERY_S", 0.0)
    world.pipeline = world.pipeline.model_copy(
        update={"batch": world.pipeline.batch.model_copy(update={"max_offsets_per_partition": 2})}
    )
    assert world.run().success
    assert [world.value(event, "kpipe/rows") for event in world.events("0")] == [2, 2]
    world.mirrored()


def test_a_continuous_run_ends_when_idle(world: World) -> None:
    assert world.run(idle_seconds=0.2).success
    assert world.warmed == 1
    assert len(world.destination.history()) == 3


def test_a_continuous_run_ends_after_its_time_and_when_another_takes_its_turn(world: World) -> None:
    from kpipe_assets.runs.handover import Turn

    assert world.run(max_seconds=0.3).success, "it would have gone on for ever"
    first, second = Turn(world.home, "tweets", "a" * 12), Turn(world.home, "tweets", "b" * 12)
    first.take()
    assert not first.is_over()
    second.take()
    assert first.is_over() and not second.is_over()


def test_a_continuous_run_that_is_fenced_plans_anew_and_a_bounded_one_fails(world: World) -> None:
    def intrude(_: Any) -> None:
        world.stager.before = lambda _: None
        list(_ingest_without_dagster(world))

    world.stager.before = intrude
    assert world.run(idle_seconds=0.2).success
    world.mirrored()
    world.topics.produce(0, {"id": 77})
    world.stager.before = intrude
    assert not world.run().success
    assert world.run().success
    world.mirrored()


def test_an_eager_asset_downstream_fires_while_a_continuous_run_goes_on_and_a_partition_rests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(
        deps=[dg.AssetDep(KEY, partition_mapping=dg.AllPartitionMapping())],
        automation_condition=dg.AutomationCondition.eager(),
    )
    def report() -> None: ...

    world.grow()
    for partition in range(3):
        world.topics.expire(partition, 4)
    world.topics.produce(0, {"id": 100}, {"id": 101})  # the others rest
    defs = dg.Definitions([topic_spec(world.pipeline), world.table, report], resources=world.resources)
    first = dg.evaluate_automation_conditions(defs, world.instance)
    requested: list[int] = []

    def later(batch: Any) -> None:
        """While the second batch is read, and the first one is told: the second is read ahead, in a thread of its own."""
        deadline = time.monotonic() + 300
        while world.stager.calls == 2 and not world.events():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if world.stager.calls == 2:
            requested.append(dg.evaluate_automation_conditions(defs, world.instance, cursor=first.cursor).total_requested)

    monkeypatch.setattr(tables, "_EVENT_EVERY_S", 0.0)
    world.stager.before = later
    world.pipeline = world.pipeline.model_copy(
        update={"batch": world.pipeline.batch.model_copy(update={"max_offsets_per_partition": 1})}
    )
    assert world.run(idle_seconds=0.1).success
    assert requested == [1]
    world.mirrored()


def test_an_error_fails_the_run_with_what_to_do(world: World) -> None:
    world.run()
    world.topics.recreate(3)
    result = world.run()
    assert not result.success
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data.user_failure_data
    assert failure is not None and "--on-new-topic begin" in str(failure.metadata["what to do"].value)


def test_what_is_published_without_a_run_tells_of_the_whole_table_once(world: World) -> None:
    assert list(_ingest_without_dagster(world))
    topic = dg.AssetKey(["kafka", "tweets"])
    assert Publisher(world.instance, KEY, world.destination, world.home, "tweets", [topic]).publish() == 3
    *others, newest = world.events()
    assert [world.value(event, "dagster/row_count") for event in (*others, newest)] == [12, 12, 12]
    assert [column.name for column in world.value(newest, "dagster/column_schema").columns] == ["id"]
    assert not any("dagster/column_schema" in event.metadata for event in others)


def test_a_run_is_at_work_until_its_last_event_is_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor that found nobody at work would publish the run's commits before the run does."""
    closing, seen = tables._closing, []

    def closed(*arguments: Any) -> Any:
        seen.append(is_running(world.home, "tweets"))
        yield from closing(*arguments)
        seen.append(is_running(world.home, "tweets"))

    monkeypatch.setattr(tables, "_closing", closed)
    assert world.run().success
    assert seen == [True, True]
    assert not is_running(world.home, "tweets")


class Death(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_crash_between_commit_and_events_loses_and_doubles_no_event(world: World, stored: int) -> None:
    """After the commit, some events are stored, then death; the next run and a tick complete the mirror."""
    publisher = Publisher(world.instance, KEY, world.destination, world.home, "tweets")
    loop = list(_ingest_without_dagster(world))
    assert loop
    with pytest.raises(Death), publisher.waiting() as assets:
        events = assets[KEY]
        for key in sorted(events)[:stored]:
            world.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=key, metadata=events[key]))
        raise Death
    assert world.destination.unpublished()
    assert Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish() == 3 - stored
    world.mirrored()
    assert world.run().success
    world.mirrored()


def test_a_crash_after_the_events_and_before_the_mark_publishes_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDestination, "published", die)
        assert not world.run().success
    assert len(world.events()) == 3 and world.destination.unpublished()
    assert Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish() == 0
    world.mirrored()


def _ingest_without_dagster(world: World) -> Any:
    from kpipe.ingest.loop import Ingest

    return Ingest(world.pipeline, world.topics, world.stager, world.destination).run()


# The sensor


def tick(world: World, cursor: str | None = None, pace: Pace = Pace(), metadata: bool = False) -> dg.SensorResult:  # noqa: B008
    """One tick as the daemon does it: what is to be told is told, and partitions are added."""
    table = world.table
    sensor = metadata_sensor(world.pipeline, world.home) if metadata else ingest_sensor(world.pipeline, world.home, table, pace)
    defs = dg.Definitions([topic_spec(world.pipeline), table], sensors=[sensor], resources=world.resources)
    context = dg.build_sensor_context(
        instance=world.instance,
        cursor=cursor,
        definitions=defs,
        resources={k: world.resources[k] for k in ("kafka", "destinations")},
    )
    result = sensor(context)
    assert isinstance(result, dg.SensorResult), result
    for event in result.asset_events:
        world.instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests or ():
        world.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return result


def said(result: dg.SensorResult) -> str:
    """Why no run was started."""
    assert not result.run_requests
    return str(result.skip_reason.skip_message) if isinstance(result.skip_reason, dg.SkipReason) else str(result.skip_reason)


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
    assert [event.partition for event in result.asset_events] == ["0", "1", "2"]
    world.topics.produce(1, {"id": 99})
    soon = tick(world)
    assert soon.run_requests and not soon.asset_events, "of a partition that grows, at most one observation a minute"
    monkeypatch.setattr(look, "_OBSERVE_S", 0.0)
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
    monkeypatch.setattr(look, "_REST_S", 0.0)
    assert not rests(done), "now and then it looks at everything"
    monkeypatch.undo()
    world.topics.produce(1, {"id": 99})
    assert not rests(done) and tick(world, done).run_requests
    list(_ingest_without_dagster(world))
    shown = tick(world, done)
    assert said(shown) == "caught up" and not rests(shown.cursor), "a commit was shown"
    world.mirrored()
    assert rests(tick(world, shown.cursor).cursor)
    world.topics.recreate(3)
    assert said(tick(world, done)).startswith("needs an operator")


def test_a_tick_tells_of_some_partitions_and_the_next_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_MOST_TOLD", 2)
    world.run()
    first = tick(world)
    assert [event.partition for event in first.asset_events] == ["0", "1"]
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
    monkeypatch.setattr(look, "_OBSERVE_S", 0.0)
    world.grow()
    list(_ingest_without_dagster(world))
    assert len(tick(world, metadata=True).asset_events) == 3
    assert not tick(world).asset_events
    world.topics.produce(2, {"id": 1})
    assert len(tick(world).asset_events) == 1
    again = tick(world, metadata=True)
    assert not again.asset_events and said(again) == "1 offsets behind"
    world.mirrored()


def test_a_partition_that_rests_among_busy_ones_is_not_told_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_OBSERVE_S", 0.0)
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
    world.mirrored()


@pytest.mark.parametrize("metadata", [False, True])
def test_while_somebody_is_at_work_a_tick_leaves_the_mirror_to_them(
    world: World, monkeypatch: pytest.MonkeyPatch, metadata: bool
) -> None:
    world.grow()
    list(_ingest_without_dagster(world))
    with at_work(world.home, "tweets"):
        first = tick(world, metadata=metadata)
        assert world.events() == []
        monkeypatch.setattr(look, "_REPAIR_S", 0.0)
        tick(world, first.cursor, metadata=metadata)  # who is at work is no run of Dagster's, or hangs
        world.mirrored()


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
    assert [(item.check_name, item.passed) for item in evaluations] == [("lag", False)]
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
    assert "stands at commit" in said(tick(world))


def test_what_only_a_run_can_find_is_tried_again_seldom(world: World) -> None:
    world.grow()
    world.instance.report_run_failed(_pretend_run(world, dg.DagsterRunStatus.STARTED))
    world.home.note("tweets", "needs_operator", "the table is gone")
    assert "needs an operator: the table is gone; the next run starts in" in said(tick(world))
    world.home.note("tweets", "stopped")
    assert tick(world).run_requests


def test_new_partitions_of_the_topic_appear_in_numeric_order(world: World) -> None:
    world.run()
    world.topics.add_partitions(12)
    (request,) = tick(world).dynamic_partitions_requests or ()
    assert list(request.partition_keys) == [str(n) for n in range(3, 15)]


# Checks


def check(world: World, bounds: Bounds = Bounds()) -> dict[str, dg.AssetCheckEvaluation]:  # noqa: B008
    checks = table_checks(world.pipeline, world.home, bounds)
    result = dg.materialize(
        [checks],
        resources=world.resources,
        instance=world.instance,
        raise_on_error=False,
        selection=dg.AssetSelection.all_asset_checks(),
    )
    return {item.check_name: item for item in result.get_asset_check_evaluations()}


def test_all_checks_pass_on_a_good_table(world: World) -> None:
    world.run()
    found = check(world)
    assert set(found) == {"complete", "mirror", "lag", "schema", "dead_letters"}
    assert all(item.passed for item in found.values()), {name: item.description for name, item in found.items()}
    table = found["complete"].metadata["kpipe/partitions"].value
    assert [record.data["rows_found"] for record in table.records] == [4, 4, 4]


def test_complete_fails_when_a_row_is_gone(world: World) -> None:
    world.run()
    world.store.tables["tweets"].rows.pop()
    item = check(world)["complete"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.ERROR
    assert "the table holds 3 rows, the ledger says 4" in (item.description or "")


def test_mirror_fails_when_dagster_lacks_what_was_marked_as_shown(world: World) -> None:
    list(_ingest_without_dagster(world))
    assert check(world)["mirror"].passed, "what waits is no fault"
    world.destination.published([item.batch for item in world.destination.unpublished()])
    item = check(world)["mirror"]
    assert not item.passed and "is marked as shown" in (item.description or "")


def test_lag_fails_above_its_bound_and_when_an_operator_is_needed(world: World) -> None:
    world.run()
    world.topics.produce(2, *({"id": n} for n in range(9)))
    item = check(world, Bounds(lag=5))["lag"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.WARN and "9 offsets behind" in (item.description or "")
    world.topics.recreate(3)
    item = check(world)["lag"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.ERROR and "made again" in (item.description or "")


def test_schema_fails_when_a_declared_column_is_missing(world: World) -> None:
    world.run()
    world.pipeline = world.pipeline.model_copy(update={"columns": {"id": "BIGINT", "extra": "DATE"}})
    item = check(world)["schema"]
    assert not item.passed and "column extra is missing, declared as DATE" in (item.description or "")


def test_dead_letters_fail_above_their_share(world: World) -> None:
    world.run()
    item = check(world, Bounds(dead_letters=-1.0))["dead_letters"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.WARN
