"""Commits of a ledger that took the place of another one on the same asset are published, whatever their numbers are."""

from __future__ import annotations

from copy import deepcopy
from itertools import count

import dagster as dg
import pytest

from kpipe.ingest.loop import Ingest
from kpipe.run_events import Decisions
from kpipe.testing.memory_store import MemoryStore
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.publishing.publisher import Publisher
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster


def publish(world: World) -> int:
    return Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish()


def is_published(world: World) -> bool:
    """What the check says."""
    result = dg.materialize(
        [table_checks(world.pipeline, world.home)],
        resources=world.resources,
        instance=world.instance,
        selection=dg.AssetSelection.all_asset_checks(),
        raise_on_error=False,
    )
    return {item.check_name: item.passed for item in result.get_asset_check_evaluations()}["published"]


def test_numbers_begin_again_in_another_ledger(world: World) -> None:
    world.grow()
    for number in range(4):
        world.topics.produce(0, {"id": number})
        list(_ingest_without_dagster(world))
    publish(world)
    before, world.store = len(world.events("0")), MemoryStore()  # a rebuilt table, or a pipeline of another name
    list(_ingest_without_dagster(world))
    assert publish(world) == 3 and not world.destination.unpublished()
    (event,) = world.events("0")[before:]
    newest = world.destination.view("batches")[0]
    assert world.value(event, "kpipe/last_seq") == world.destination.ledger()[1].seq
    assert world.value(event, "kpipe/last_batch") == newest["batch_id"]
    assert is_published(world)
    world.topics.produce(0, {"id": 100})
    world.run()
    assert world.value(world.events("0")[-1], "kpipe/rows") == 1
    assert is_published(world)


def produced(world: World, partition: int, records: int) -> None:
    """As many commits without Dagster."""
    for number in range(records):
        world.topics.produce(partition, {"id": number})
        list(_ingest_without_dagster(world))


def copied(store: MemoryStore) -> MemoryStore:
    """A backup."""
    return MemoryStore(tables=deepcopy(store.tables), pipelines=deepcopy(store.pipelines))


def rows(world: World, key: str) -> int:
    """What the events of a partition say together."""
    return sum(world.value(event, "kpipe/rows") for event in world.events(key))


@pytest.mark.parametrize("later", range(1, 6))
def test_a_restored_backup_has_other_commits_of_the_same_numbers(world: World, later: int) -> None:
    """Fewer, as many, and more than Dagster has seen: each is published once, and whatever was not before the backup."""
    world.grow()
    produced(world, 0, 2)
    publish(world)
    backup = copied(world.store)
    produced(world, 0, 3)
    publish(world)
    shown, world.store = rows(world, "0"), backup
    produced(world, 0, later)  # the first one reads the records again that the backup lacks
    assert publish(world) == 1 and not world.destination.unpublished()
    assert rows(world, "0") == shown + 3 + later
    assert is_published(world)
    assert publish(world) == 0


def test_a_publisher_that_crashed_after_a_backup_was_restored(world: World) -> None:
    world.grow()
    produced(world, 0, 2)
    backup = copied(world.store)  # nothing is published in it
    publish(world)
    world.store = backup
    assert publish(world) == 0, "Dagster has these commits"
    assert not world.destination.unpublished() and is_published(world)


def test_a_partition_of_a_restored_backup_without_new_records(world: World) -> None:
    """Its records after the backup are gone from Kafka, too: Dagster shows a commit that no ledger has, until the next run."""
    world.grow()
    produced(world, 0, 1)
    produced(world, 1, 1)
    publish(world)
    backup, before = copied(world.store), deepcopy(world.topics)
    produced(world, 1, 2)
    publish(world)
    world.store, world.topics, world.stager.topics = backup, before, before
    world.topics.produce(0, {"id": 9})
    assert not is_published(world)
    assert world.run().success
    assert is_published(world)
    event, newest = (
        world.events("1")[-1],
        next(row for row in world.destination.view("batches") if row["batch_source_partition_id"] == 1),
    )
    assert (world.value(event, "kpipe/last_seq"), world.value(event, "kpipe/last_batch")) == (newest["seq"], newest["batch_id"])
    assert (world.value(event, "kpipe/rows"), world.value(event, "kpipe/end_offset")) == (0, newest["batch_latest_offset"])


def test_an_event_without_a_batch_is_of_this_ledger(world: World) -> None:
    world.run()
    seq = world.destination.ledger()[1].seq
    world.topics.produce(0, {"id": 100})
    list(_ingest_without_dagster(world))
    event = dg.AssetMaterialization(KEY, partition="0", metadata={"kpipe/last_seq": seq + 1})  # as an earlier kpipe stored it
    world.instance.report_runless_asset_event(event)
    assert publish(world) == 0


def test_a_partition_of_a_recreated_topic_without_records_has_its_own_offset(world: World) -> None:
    """Lanes of the earlier topic stay open, whatever the order of the ids is."""
    assert world.run().success
    world.topics._numbers = count(0)  # the new id comes before the first one
    world.topics.recreate(3)
    world.topics.produce(0, {"id": 9})
    begin = Decisions(on_new_topic="begin")
    assert list(Ingest(world.pipeline, world.topics, world.stager, world.destination, decisions=begin).run())
    assert world.run().success
    ends = [world.value(world.events(key)[-1], "kpipe/end_offset") for key in ("0", "1", "2")]
    assert ends == [1, 0, 0]
