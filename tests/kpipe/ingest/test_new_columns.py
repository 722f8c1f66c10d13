"""New columns in a batch, and limits on dead letters."""

from __future__ import annotations

import pytest

from kpipe.errors import (
    DeadLettersExceeded,
    SchemaConflict,
)
from kpipe.schema.columns import BIGINT, DOUBLE, VARCHAR, Columns
from kpipe.testing.stager import extra_column
from tests.kpipe.ingest.topics import World


def test_new_columns_are_added_and_the_batch_is_staged_once_more(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2, "text": "hello"})
    calls = world.stager.calls
    world.run()
    assert world.stager.calls - calls == 2
    assert world.table.columns() == Columns((("id", BIGINT), ("text", VARCHAR)))
    assert world.table.rows[-1]["text"] == "hello"
    assert len(world.kinds("restaged")) == 1
    world.prove_exactly_once()


def test_two_pieces_that_see_different_types_in_a_new_column_agree_on_the_wider_one(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2, "x": 1}, {"id": 3, "x": 1.5})
    world.stager.pieces = 2
    world.run()
    assert world.table.columns().get("x") == DOUBLE
    world.prove_exactly_once()


def test_with_ignore_new_columns_are_left_out(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run({"schema": "ignore"})
    world.topics.produce(0, {"id": 2, "text": "hello"})
    world.run({"schema": "ignore"})
    assert world.table.columns() == Columns((("id", BIGINT),))
    assert "text" not in world.table.rows[-1]
    assert world.stager.calls == 2
    world.prove_exactly_once()


def test_with_fail_a_new_column_stops_the_pipeline_and_is_named(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run({"schema": "fail"})
    world.topics.produce(0, {"id": 2, "text": "hello"})
    before = world.state()
    with pytest.raises(SchemaConflict, match="text VARCHAR"):
        world.run({"schema": "fail"})
    assert world.state() == before


def test_columns_that_turn_up_at_every_reading_are_an_error_and_not_a_loop(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    for call in (1, 2, 3):
        world.stager.lie(extra_column(Columns(((f"c{call}", BIGINT),))), call)
    with pytest.raises(SchemaConflict, match="c3"):
        world.run()
    assert world.stager.calls == 3


def test_a_type_that_does_not_fit_the_table_is_a_conflict_that_names_the_column(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2})
    world.stager.lie(extra_column(Columns((("ID", VARCHAR),))))
    with pytest.raises(SchemaConflict, match="column id: incompatible types: expected BIGINT, found VARCHAR in the records"):
        world.run()


def test_declared_columns_come_first_and_win_over_the_sample(world: World) -> None:
    world.topics.produce(0, {"id": 1, "text": "a"})
    world.run({"columns": {"ID": "DOUBLE", "extra": "DATE"}})
    assert world.table.columns().to_dict() == {"ID": "DOUBLE", "extra": "DATE", "text": "VARCHAR"}


def test_a_payload_field_never_shadows_kafkas_coordinates(world: World) -> None:
    world.topics.produce(0, {"id": 1, "_kafka_offset": 99, "_KAFKA_key": "x"})
    world.run()
    assert world.table.columns().names() == ("id",)
    assert world.coordinates() == {(0, 0): 1}


# Dead letters


def test_the_limit_of_dead_letters_stops_before_the_commit_that_would_pass_it(world: World) -> None:
    limited = {"errors": {"max_dead_letters": 2}}
    world.topics.produce(0, {"id": 0}, {"id": 1}, bad=True)
    world.run(limited)
    assert len(world.table.dead) == 2
    world.topics.produce(0, {"id": 2}, bad=True)
    before = world.state()
    with pytest.raises(DeadLettersExceeded, match=r"at most 2 dead letters, found 2 stored and 1 new; the first: not JSON"):
        world.run(limited)
    assert world.state() == before
    world.run()
    world.prove_exactly_once()


def test_no_dead_letters_at_all_is_a_limit_too(world: World) -> None:
    world.topics.numbered(0, 3)
    world.run({"errors": {"max_dead_letters": 0}})
    world.topics.produce(0, {"id": 3}, bad=True)
    with pytest.raises(DeadLettersExceeded):
        world.run({"errors": {"max_dead_letters": 0}})
