"""Reports of tasks that do not add up commit nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kpipe.errors import (
    InvalidPipeline,
    SourceIdentityChanged,
    StagingFailed,
)
from kpipe.testing.stager import miscount, overlapping_piece, without_piece, wrong_piece
from tests.kpipe.ingest.topics import World, fill


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (without_piece, "not staged"),
        (overlapping_piece, "staged twice"),
        (wrong_piece, "reports do not match the plan: expected"),
        (miscount(rows=1), "not accounted for"),
        (miscount(gaps=-1), "not accounted for"),
        (miscount(filtered=1, rows=-1), "found [0-9]+ in the staged files"),
        (miscount(filtered=-1, dead_letters=1), "found [0-9]+ in the staged files"),
        (lambda reports: [], "not staged"),
        (lambda reports: [miscount(gaps=1)(reports[:1])[0], miscount(gaps=-1)(reports[1:2])[0], *reports[2:]], "not accounted"),
    ],
)
def test_reports_that_do_not_add_up_are_refused_and_nothing_is_committed(world: World, lie: Any, words: str) -> None:
    fill(world)
    world.stager.pieces = 3
    world.begin()
    before = world.state()
    world.stager.lie(lie)
    with pytest.raises(StagingFailed, match=words) as raised:
        world.run()
    assert "batch" in str(raised.value)
    assert world.state() == before
    world.run()
    world.prove_exactly_once()


def test_a_partition_that_does_not_exist_is_refused_instead_of_reading_nothing(world: World) -> None:
    fill(world)
    with pytest.raises(InvalidPipeline, match="partition 7 does not exist -> use partitions 0 to 1"):
        world.run(only={0, 7})
    assert world.coordinates() == Counter()


def test_a_topic_made_again_while_it_is_read_is_noticed_before_the_commit(world: World) -> None:
    fill(world)
    world.begin()
    before = world.state()
    world.stager.after = lambda _: world.topics.recreate(2)
    with pytest.raises(SourceIdentityChanged, match="was recreated"):
        world.run()
    assert world.state() == before


def test_a_program_that_drops_every_record_still_moves_the_ledger(world: World) -> None:
    world.topics.produce(0, None, None, None)
    world.run()
    assert world.table.held.positions()[world.topics.source(0)] == 3
    assert world.coordinates() == Counter()
