"""Commits of a ledger that took the place of another one on the same asset are published, whatever their numbers are."""

from __future__ import annotations

import dagster as dg

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
    uid, ledger = world.destination.ledger()
    assert (world.value(event, "kpipe/ledger"), world.value(event, "kpipe/last_seq")) == (uid, ledger.seq)
    assert is_published(world)
    world.topics.produce(0, {"id": 100})
    world.run()
    assert world.value(world.events("0")[-1], "kpipe/rows") == 1
    assert is_published(world)


def test_events_of_commits_that_a_restored_ledger_lacks(world: World) -> None:
    world.run()
    uid = world.destination.ledger()[0]
    event = dg.AssetMaterialization(KEY, partition="0", metadata={"kpipe/last_seq": 99, "kpipe/ledger": uid})
    world.instance.report_runless_asset_event(event)
    world.topics.produce(0, {"id": 100})
    list(_ingest_without_dagster(world))
    assert publish(world) == 1
    assert world.value(world.events("0")[-1], "kpipe/rows") == 1
    assert is_published(world)


def test_an_event_without_a_ledger_is_of_this_one(world: World) -> None:
    world.run()
    seq = world.destination.ledger()[1].seq
    world.topics.produce(0, {"id": 100})
    list(_ingest_without_dagster(world))
    event = dg.AssetMaterialization(KEY, partition="0", metadata={"kpipe/last_seq": seq + 1})  # as an earlier kpipe stored it
    world.instance.report_runless_asset_event(event)
    assert publish(world) == 0
