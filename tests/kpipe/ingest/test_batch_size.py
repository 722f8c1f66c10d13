"""A destination bounds the bytes of a batch: batches of large records become smaller, and each record still lands once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.kpipe.conftest import Table, World
from tests.kpipe.ingest.topics import fill


class Bounded(Table):
    """A table whose batches have at most so many bytes, if records are larger than `small`."""

    most, small = 400, 40

    def batch_bytes(self, record_bytes: float) -> int | None:
        return self.most if record_bytes > self.small else None


@pytest.fixture
def bounded(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.table = Bounded()
    return world


def _large(world: World, partition: int, count: int, size: int = 100) -> None:
    for _ in range(count):
        world.topics.produce(partition, {"text": "x" * (size - 12)})


def _bytes(commit: Any) -> int:
    return sum(counts.bytes for counts in commit.records.values())


def test_the_first_batch_is_staged_again_and_later_ones_are_planned_smaller(bounded: World) -> None:
    _large(bounded, 0, 20)
    _large(bounded, 1, 20)
    committed = bounded.run()
    assert [_bytes(item.commit) for item in committed] == [400] * 10
    assert len({batch.id for batch, _ in bounded.stager.given[:2]}) == 1  # the files of both are in one folder
    assert bounded.stager.given[0][0].span == 40 and bounded.stager.given[1][0].span == 4
    assert committed[0].batch.closed_by == "bytes"
    bounded.prove_exactly_once()


def test_small_records_are_not_bounded(bounded: World) -> None:
    fill(bounded)
    assert len(bounded.run()) == 1
    assert len(bounded.stager.given) == 1
    bounded.prove_exactly_once()


def test_a_batch_that_is_a_little_too_large_is_not_staged_again(bounded: World) -> None:
    _large(bounded, 0, 5)
    assert [_bytes(item.commit) for item in bounded.run()] == [500]
    assert len(bounded.stager.given) == 1


def test_a_record_beyond_the_bound_has_a_batch_of_its_own(bounded: World) -> None:
    _large(bounded, 0, 3, size=2000)
    assert [_bytes(item.commit) for item in bounded.run()] == [2000] * 3
    bounded.prove_exactly_once()


def test_more_partitions_than_records_fit_take_turns(worlds: Any) -> None:
    world = worlds(9)
    world.table = Bounded()
    for partition in range(9):
        _large(world, partition, 2)
    committed = world.run()
    assert all(_bytes(item.commit) <= 400 for item in committed)
    world.prove_exactly_once()


def test_a_batch_that_was_staged_during_a_commit_is_staged_again_too(bounded: World) -> None:
    """The records before it were small, so nothing was known of these when it was planned."""
    _large(bounded, 0, 10, size=20)
    _large(bounded, 0, 10)
    sizes = [_bytes(item.commit) for item in bounded.run({"batch": {"max_offsets_per_partition": 10}})]
    assert sizes == [200, 400, 400, 200]
    bounded.prove_exactly_once()


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_modes_with_two_commits_are_bounded_from_the_second_batch_on(bounded: World, delivery: str) -> None:
    """The ranges of the first batch are fixed by a commit before its size is known."""
    _large(bounded, 0, 30)
    sizes = [_bytes(item.commit) for item in bounded.run({"delivery": delivery, "batch": {"max_offsets_per_partition": 10}})]
    assert sizes[0] == 1000 and sizes[1:] == [400] * 5
    assert bounded.coordinates() == bounded.expected()


@pytest.mark.parametrize("seed", range(12))
def test_records_of_any_sizes_land_once(worlds: Any, seed: int) -> None:
    draw = random.Random(seed)
    world = worlds(draw.randrange(1, 5))
    world.table = Bounded()
    for _ in range(draw.randrange(60)):
        _large(world, draw.randrange(len(world.topics.snapshot().partitions)), 1, draw.choice([13, 20, 100, 900]))
    world.stager.pieces = draw.randrange(1, 4)
    world.run({"batch": {"max_partitions": draw.choice([None, 1, 2])}})
    world.prove_exactly_once()
