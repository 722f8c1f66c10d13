"""Very many partitions: what Dagster is told and asked for does not grow with them, and means the same as one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.events import DagsterEventType
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage

from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import FakeTopics
from kpipe_assets.dagster_server import storage
from kpipe_assets.publishing import events
from kpipe_assets.publishing.publisher import Publisher
from resources.home import Home
from tests.kpipe_assets.dagster_ui import sqlite_instance
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster

FEW, MANY = 3, 20


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of kpipe's."""
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")


@contextmanager
def world_of(folder: Path, partitions: int) -> Iterator[World]:
    """A topic of so many partitions with one record each, and an instance in SQLite files, as `kpipe ui` has it."""
    folder.mkdir()
    topics = FakeTopics({"tweets": partitions})
    for partition in range(partitions):
        topics.produce(partition, {"id": partition})
    with sqlite_instance(folder) as instance:
        made = World(Home(folder / "home").make(), instance, topics, FakeStager(topics, folder))
        made.grow()
        yield made


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Connections to databases, and statements that are no row of something: what costs milliseconds, not microseconds."""
    numbers = {"connections": 0, "questions": 0}

    def connected(*_: Any) -> None:
        numbers["connections"] += 1

    def asked(_: Any, __: Any, statement: str, *___: Any) -> None:
        numbers["questions"] += not statement.startswith("INSERT")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", connected)
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", asked)
    try:
        yield numbers
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "connect", connected)
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", asked)


@pytest.mark.usefixtures("batches")
def test_a_run_over_ten_times_the_partitions_asks_dagsters_databases_no_more_often(tmp_path: Path) -> None:
    spent = {}
    for partitions in (FEW, MANY):
        with world_of(tmp_path / str(partitions), partitions) as world:
            world.run(last="0")  # tables that are made once
            with counted() as numbers:
                assert world.run().success
            spent[partitions] = numbers
            assert len(world.events()) == partitions + 1
            world.all_published()
    assert spent[MANY] == spent[FEW]


@pytest.mark.usefixtures("batches")
def test_so_does_a_tick_that_shows_what_was_committed_without_dagster(tmp_path: Path) -> None:
    spent = {}
    for partitions in (FEW, MANY):
        with world_of(tmp_path / str(partitions), partitions) as world:
            publisher = Publisher(world.instance, KEY, world.destination, world.home, "tweets")
            list(_ingest_without_dagster(world))
            assert publisher.publish() == partitions  # tables that are made once
            for partition in range(partitions):
                world.topics.produce(partition, {"id": partition})
            list(_ingest_without_dagster(world))
            with counted() as numbers:
                assert publisher.publish() == partitions
            spent[partitions] = numbers
            world.all_published()
    assert spent[MANY] == spent[FEW]


def test_what_is_stored_at_once_is_what_is_stored_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "all"):
        with monkeypatch.context() as patch:
            if name == "all":
                patch.setenv("DAGSTER_EVENT_BATCH_SIZE", "3")  # the last batch is not full
            with world_of(tmp_path / name, FEW) as world:
                assert world.run().success
                world.topics.produce(0, {"id": 9})
                list(_ingest_without_dagster(world))
                Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish()
                found.append(_stored(tmp_path / name / "history" / "runs", world.instance))
    one, everything = found
    assert one == everything
    assert len(one["index.db"]["event_logs"]) > 2 * FEW


def _stored(folder: Path, instance: dg.DagsterInstance) -> dict[str, Any]:
    """All that the files hold, but for times and numbers that differ from run to run."""
    runs = {run.run_id: f"run{at}.db" for at, run in enumerate(instance.get_runs())}
    content: dict[str, Any] = {}
    for file in sorted(folder.glob("*.db")):
        with sqlite3.connect(file) as database:
            logs = database.execute("SELECT id, dagster_event_type, step_key, asset_key, partition FROM event_logs ORDER BY id")
            name = runs.get(file.stem, file.name)
            content[name] = {"event_logs": logs.fetchall()}
            if name == "index.db":
                tags = database.execute("SELECT event_id, asset_key, key FROM asset_event_tags ORDER BY id")
                newest = "SELECT asset_key, last_run_id IS NULL, last_materialization_timestamp IS NULL FROM asset_keys"
                content[name] |= {"tags": tags.fetchall(), "assets": database.execute(newest).fetchall()}
    for asset in instance.all_asset_keys():
        last = instance.get_latest_materialization_event(asset)
        content[asset.to_user_string()] = last.asset_materialization.partition if last and last.asset_materialization else None
    return content


def test_each_of_dagsters_files_has_one_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    really = sqlalchemy.create_engine

    def counted(address: str, **options: Any) -> sqlalchemy.Engine:
        made.append(address)
        return really(address, **options)

    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        monkeypatch.setattr(module, "create_engine", counted)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        made.clear()
        _ask(instance)
        assert len(made) > len(set(made)), "Dagster makes one for each question"
    monkeypatch.setattr(sqlalchemy, "create_engine", counted)
    storage._engine.cache_clear()
    for _ in range(2):  # a tick opens the files anew
        with sqlite_instance(tmp_path) as instance:
            _ask(instance)
            made.clear()
            _ask(instance)
            assert not made
    other = tmp_path / "other"
    other.mkdir()
    with sqlite_instance(other) as instance:
        assert instance.get_dynamic_partitions("p") == [], "of another home"


def _ask(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("p", ["0"])
    for _ in range(2):
        assert instance.get_runs() == [] and list(instance.get_dynamic_partitions("p")) == ["0"]
        assert not instance.all_instigator_state()


def test_a_batch_that_cannot_be_stored_leaves_none_of_it_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster then stores the events one by one; what fails then, the next publisher repairs."""
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
    with world_of(tmp_path / "w", FEW) as world:
        list(_ingest_without_dagster(world))
        publisher = Publisher(world.instance, KEY, world.destination, world.home, "tweets")

        def full(*_: Any) -> None:
            raise OSError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(storage.EventLogStorage, "_store_asset_event", full)  # the last thing that is written
            with pytest.raises(OSError, match="no space left"):
                publisher.publish()
        assert not world.events() and world.destination.unpublished()
        assert publisher.publish() == FEW
        world.all_published()


def test_the_newest_event_of_each_partition_is_found_however_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_AT_ONCE", 2)  # so that there are several lists of ids
    with dg.DagsterInstance.ephemeral() as instance:
        keys = [str(number) for number in range(7)]
        told = [*keys[:6], *["0"] * 9, "1", "0"]
        events.publish_events(
            instance, [dg.AssetMaterialization(KEY, partition=key, metadata={"at": at}) for at, key in enumerate(told)]
        )
        events.publish_events(instance, [dg.AssetObservation(KEY, partition="6")])
        found = events.newest(instance, KEY, keys)
        values = {key: record.asset_materialization.metadata["at"].value for key, record in found.items()}  # type: ignore[union-attr]
        assert values == {"0": 16, "1": 15, "2": 2, "3": 3, "4": 4, "5": 5}
        assert events.newest(instance, KEY, []) == {} == events.newest_values(instance, KEY, [], ("at",))
        assert events.newest_values(instance, KEY, keys, ("at",)) == {key: {"at": at} for key, at in values.items()}
        assert events.newest_values(instance, KEY, keys, ("of another",)) == {key: {} for key in values}
        events.publish_events(instance, [dg.AssetMaterialization(KEY, partition="2", metadata={"at": "a text", "more": 1})])
        assert events.newest_values(instance, KEY, ["2"], ("at", "more")) == {"2": {"at": "a text", "more": 1}}
        assert set(events.newest(instance, KEY, keys, observed=True)) == {"6"}
        kinds = (DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_OBSERVATION)
        assert [len(instance.get_latest_storage_id_by_partition(KEY, kind)) for kind in kinds] == [6, 1]


def test_events_with_tags_are_stored(tmp_path: Path) -> None:
    """Dagster asks inside of its transaction whether the table of tags exists: a lock taken there would never be free."""
    with sqlite_instance(tmp_path) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("x", tags={"k": "v"}))
        stored = instance.get_latest_materialization_event(dg.AssetKey("x"))
        assert stored is not None and stored.asset_materialization is not None
        assert stored.asset_materialization.tags == {"k": "v"}
