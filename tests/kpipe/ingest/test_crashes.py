"""Runs that die at any call: the next run finishes with every row exactly once."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

from tests.kpipe.ingest.topics import World, fill


class Crash(BaseException):
    """The process dies here."""


class Crashing:
    """An edge whose every call is an effect; the n-th one of all edges never begins, or never returns, in any thread."""

    lock = threading.Lock()

    def __init__(self, inner: Any, count: list[int], at: int | None, after: bool) -> None:
        self.inner, self.count, self.at, self.after = inner, count, at, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def effect(*args: Any, **kwargs: Any) -> Any:
            with self.lock:
                if self.count[0] == self.at:
                    raise Crash(name)  # dead already
                self.count[0] += 1
                mine = self.count[0] == self.at
            if mine and not self.after:
                raise Crash(name)
            result = method(*args, **kwargs)
            if mine:
                raise Crash(name)
            return result

        return effect


def crash(world: World, at: int | None, after: bool) -> int:
    """A run that dies at its n-th effect; gives the number of effects."""
    count = [0]
    edges = {name: Crashing(getattr(world, name), count, at, after) for name in ("topics", "stager")}
    edges["destination"] = Crashing(world.table, count, at, after)
    loop = world.ingest({"batch": {"max_offsets_per_partition": 5}, "source": {"on_data_loss": "record"}}, **edges)
    if at is None:
        list(loop.run())
    else:
        with contextlib.suppress(Crash):
            list(loop.run())
    return count[0]


def scene(world: World) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 3}}, max_batches=1)
    world.topics.produce(1, {"id": 1, "text": "a new column"})
    world.topics.add_partitions()
    world.topics.numbered(2, 4)


def test_wherever_a_run_dies_the_next_one_finishes_with_every_row_exactly_once(worlds: Callable[..., World]) -> None:
    whole = worlds()
    scene(whole)
    effects = crash(whole, None, after=False)
    whole.prove_exactly_once()
    assert effects >= 15
    for at, after in itertools.product(range(1, effects + 1), (False, True)):
        world = worlds()
        scene(world)
        assert crash(world, at, after) == at, "it died where it should"
        world.run()
        world.prove_exactly_once()
        assert world.audit().counts == whole.audit().counts


def test_two_crashes_in_a_row_do_no_more_harm_than_one(worlds: Callable[..., World]) -> None:
    for first, second in itertools.product(range(1, 12, 2), repeat=2):
        world = worlds()
        scene(world)
        crash(world, first, after=True)
        crash(world, second, after=True)
        world.run()
        world.prove_exactly_once()
