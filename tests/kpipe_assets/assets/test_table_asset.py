"""Runs of a table's asset over the public fakes: real Dagster instances and runs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.testing.memory import MemoryDestination
from kpipe_assets.assets import table_asset as tables
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.dead_letter_topic import DeadLetterTopic
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.runs.stop_requests import ask
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster


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
    world.all_published()


def test_commits_have_the_version_of_the_stager(world: World) -> None:
    """It has read the program; another hash of the file could be of a later one."""
    world.stager.version = "v7"
    assert world.run().success
    assert {done.commit.version for done, _ in world.store.pipelines["tweets"].commits.values()} == {"v7"}


def test_a_selection_ingests_only_its_partitions(world: World) -> None:
    assert world.run("1", "1").success
    assert [event.partition for event in world.events()] == ["1"]
    assert {source.partition: at for source, at in world.destination.ledger()[1].positions().items()} == {0: 0, 1: 4, 2: 0}


def test_a_partition_without_news_gets_its_closing_event(world: World) -> None:
    world.run()
    assert world.run().success
    assert [world.value(event, "kpipe/rows") for event in world.events("2")] == [4, 0]
    assert world.value(world.events("2")[-1], "kpipe/end_offset") == 4
    world.all_published()


def test_events_of_many_batches_are_one_for_each_partition(world: World) -> None:
    world.pipeline = world.pipeline.model_copy(
        update={"batch": world.pipeline.batch.model_copy(update={"max_offsets_per_partition": 1})}
    )
    assert world.run().success
    assert len(world.events()) == 3
    event = world.events("0")[0]
    assert (world.value(event, "kpipe/batches"), world.value(event, "kpipe/rows")) == (4, 4)
    world.all_published()


def test_while_a_run_goes_on_events_come_at_intervals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_EVENT_EVERY_S", 0.0)
    world.pipeline = world.pipeline.model_copy(
        update={"batch": world.pipeline.batch.model_copy(update={"max_offsets_per_partition": 2})}
    )
    assert world.run().success
    assert [world.value(event, "kpipe/rows") for event in world.events("0")] == [2, 2]
    world.all_published()


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


@pytest.mark.parametrize("config", [{"idle_seconds": 0.2}, {}])
def test_a_continuous_run_does_not_begin_with_a_definition_that_was_changed_since_it_was_loaded(
    world: World, config: dict[str, Any]
) -> None:
    """The request to start again came before the run looked for requests. A bounded run has the definition it was given."""
    world.home.save(Pipeline.model_validate(world.pipeline.to_dict()))
    world.home.save(world.pipeline.model_copy(update={"where": "id > 1"}))
    ask(world.home, "tweets", "restart")
    assert world.run(**config).success
    assert bool(world.destination.history()) == (not config)
    assert world.home.noted("tweets")["state"] == "stopped"


def test_a_continuous_run_that_is_fenced_plans_anew_and_a_bounded_one_fails(world: World) -> None:
    def intrude(_: Any) -> None:
        world.stager.before = lambda _: None
        list(_ingest_without_dagster(world))

    world.stager.before = intrude
    assert world.run(idle_seconds=0.2).success
    world.all_published()
    world.topics.produce(0, {"id": 77})
    world.stager.before = intrude
    assert not world.run().success
    assert world.run().success
    world.all_published()


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
    world.all_published()


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
    """After the commit, some events are stored, then death; the next run and a tick publish the rest."""
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
    world.all_published()
    assert world.run().success
    world.all_published()


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
    world.all_published()


def test_events_show_the_cost_of_their_batches_and_of_the_run(world: World) -> None:
    """Seconds of cores are those that the tasks report; rates are for each of them."""
    world.stager.lie(lambda reports: [replace(report, seconds=0.5) for report in reports])
    assert world.run().success
    event = world.events("1")[0]
    size = world.value(event, "kpipe/bytes")
    assert world.value(event, "kpipe/core_seconds") == 0.5
    assert world.value(event, "kpipe/rows_per_core_second") == 8.0
    assert world.value(event, "kpipe/mb_per_core_second") == round(size / 1e6 / 0.5, 3)
    assert world.value(event, "kpipe/run_core_seconds") == 1.5
    assert world.value(event, "kpipe/run_rows_per_core_second") == 8.0
    assert world.run().success
    again = world.events("1")[-1]
    assert (world.value(again, "kpipe/core_seconds"), world.value(again, "kpipe/run_rows_per_core_second")) == (0.0, 0.0)


def test_the_closing_event_counts_the_dead_letters_in_their_topic(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"kpipe/dead_letter_topic", "kpipe/dead_letter_topic_records"}
    monkeypatch.setattr(DeadLetterTopic, "publish", lambda step: step._note({"records": 3, "error": ""}))
    assert world.run().success
    assert not names & set(world.events("1")[-1].metadata), "the definition has no such topic"
    errors = world.pipeline.errors.model_copy(update={"topic": "tweets.dead"})
    world.pipeline = world.pipeline.model_copy(update={"errors": errors})
    assert world.run().success
    event = world.events("1")[-1]
    assert {world.value(event, name) for name in names} == {"tweets.dead", 3}


def test_a_sensor_shows_the_cost_of_batches_of_a_run_outside_of_dagster(world: World) -> None:
    world.stager.lie(lambda reports: [replace(report, seconds=0.25) for report in reports])
    assert list(_ingest_without_dagster(world))
    world.grow()
    Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish()
    assert [world.value(event, "kpipe/core_seconds") for event in world.events()] == [0.25] * 3
