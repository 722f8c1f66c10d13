"""The next batch is planned and staged while one commits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kpipe.errors import (
    BrokerUnreachable,
    StagingFailed,
)
from kpipe.run_events import Event
from kpipe.schema.columns import Columns
from tests.kpipe.ingest.topics import World, fill


class Slow:
    """A destination whose commits wait until something has happened; at the last of so many batches, not for long."""

    def __init__(self, inner: Any, until: threading.Event, batches: int) -> None:
        self.inner, self.until, self.batches, self.met = inner, until, batches, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, commit: Any) -> Any:
        if commit.kind == "batch":
            self.met.append(self.until.wait(600 if len(self.met) + 1 < self.batches else 0.5))
            self.until.clear()
        return self.inner.commit(commit)


def stages_when(world: World, event: threading.Event) -> None:
    after = world.stager.after

    def staged(batch: Any) -> None:
        after(batch)
        if world.stager.calls > 1:
            event.set()

    world.stager.after = staged


def test_the_next_batch_is_staged_while_one_commits(world: World) -> None:
    fill(world)
    event = threading.Event()
    stages_when(world, event)
    slow = Slow(world.table, event, 6)
    batches = list(world.ingest({"batch": {"max_offsets_per_partition": 2}}, destination=slow).run())
    assert len(batches) == 6 and world.stager.calls == len(batches), "nothing was staged twice"
    assert slow.met == [True] * (len(batches) - 1) + [False], "but for the last one, another was staged before it committed"
    world.prove_exactly_once()


def test_nothing_is_extracted_ahead_of_the_last_batch_that_is_asked_for(world: World) -> None:
    fill(world)
    list(world.ingest({"batch": {"max_offsets_per_partition": 2}}).run(max_batches=2))
    assert world.stager.calls == 2


@pytest.mark.parametrize("what", ["another run", "a column", "a partition"])
def test_what_was_extracted_ahead_is_left_when_the_world_has_changed_meanwhile(world: World, what: str) -> None:
    fill(world)
    done: list[object] = []

    def meanwhile(event: Event) -> None:
        if event.kind != "committed" or done:
            return
        done.append(event)
        if what == "another run":
            assert world.run({"batch": {"max_offsets_per_partition": 1}}, max_batches=1)
        elif what == "a column":
            table = world.table.store.tables["tweets"]
            table.columns = Columns((*table.columns.items, *Columns.of({"more": "VARCHAR"}).items))
        else:
            world.topics.add_partitions()
            world.topics.numbered(2, 3)

    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}}, on_event=meanwhile)
    committed = list(loop.run())
    assert done
    assert world.stager.calls > len(committed) or what == "a partition"  # it may have been asked after that, and then begins
    world.prove_exactly_once()


def test_an_extraction_ahead_that_fails_is_this_runs_failure_and_the_batch_before_it_has_landed(world: World) -> None:
    fill(world)
    world.stager.fail(StagingFailed("the disk is full"), call=2)
    with pytest.raises(StagingFailed):
        list(world.ingest({"batch": {"max_offsets_per_partition": 2, "max_retries": 0}}).run())
    assert [commit.kind for commit in world.table.commits].count("batch") == 1
    world.run()
    world.prove_exactly_once()


def test_brokers_that_fail_while_looking_ahead_are_asked_again(world: World) -> None:
    fill(world)
    snapshot, refused = world.topics.snapshot, []

    def asked() -> object:
        if threading.current_thread().name == "kpipe-prefetch":
            refused.append(True)
            raise BrokerUnreachable("away")
        return snapshot()

    world.topics.snapshot = asked
    committed = list(world.ingest({"batch": {"max_offsets_per_partition": 2, "max_retries": 0}}).run())
    assert len(refused) == len(committed) - 1
    world.prove_exactly_once()


def test_a_run_that_is_told_to_stop_leaves_what_it_has_extracted_ahead(world: World) -> None:
    fill(world)
    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}})
    loop.stopped = lambda: bool(world.kinds("committed"))
    assert len(list(loop.run())) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "kpipe-prefetch"]
    world.run()
    world.prove_exactly_once()
