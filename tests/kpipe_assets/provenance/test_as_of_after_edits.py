"""`kpipe as-of` prints queries that return the right rows, whatever earlier definitions wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.definition.pipeline import Pipeline
from kpipe.tables.upsert import KeyRule
from kpipe_assets.provenance import tables_as_of
from kpipe_assets.provenance.tables_as_of import TableState, as_of
from resources.home import Home
from resources.testing.place import Place, batch, begin
from tests.resources.destinations.databases import database
from tests.resources.destinations.lake_place import DeltaPlace

FIELDS: dict[str, Any] = {
    "name": "tweets", "source": {"brokers": "localhost:1", "topic": "tweets"}, "columns": {"id": "BIGINT", "text": "VARCHAR"},
    "into": {"table": "tweets"},
}  # fmt: skip
TWO = {**FIELDS, "source": {"brokers": "localhost:1", "topics": ["tweets", "more"]}}


RULE = KeyRule(("id",), "replace")
State = Callable[..., TableState]


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield DeltaPlace(tmp_path) if request.param == "delta" else database(request, tmp_path)
    failpoints.arm(None)


@pytest.fixture
def table(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """The state of the table at an offset, by a definition."""
    monkeypatch.setattr(tables_as_of, "open_destination", lambda *_: place.open())
    home = Home.at(tmp_path / "home")
    return lambda fields, at=5: as_of(Pipeline.model_validate(fields), home, f"tweets:0={at}", None).tables[0]


def filled(place: Place) -> None:
    made = place.open()
    made.commit(begin("tweets", (0,)))
    for end in (5, 8):
        made.commit(batch(place, made.ledger()[1], {0: end}))


def offsets(place: Place, state: TableState) -> list[int]:
    (query,) = state.queries
    rows = place.sql(query.text.replace("SELECT *", "SELECT _kafka_offset"))
    return sorted(row["_kafka_offset"] if isinstance(row, dict) else row[0] for row in rows)


def test_a_topic_was_added(place: Place, table: State) -> None:
    filled(place)
    assert offsets(place, table(TWO)) == [0, 1, 2, 3, 4], "nothing is committed by the new definition"
    place.sql("ALTER TABLE tweets ADD COLUMN _kafka_topic VARCHAR")
    assert offsets(place, table(TWO)) == [0, 1, 2, 3, 4]
    place.sql("INSERT INTO tweets (_kafka_partition, _kafka_offset) VALUES (0, 0)")
    state = table(TWO)
    assert not state.queries and "name no topic, and several topics may have given them" in state.statement


def with_a_key(place: Place) -> None:
    made: Any = place.open(rule=RULE)
    made.commit(begin("tweets", (0,)))
    for end in (5, 8):
        commit = batch(place, made.ledger()[1], {0: end})
        made.commit(commit.stored({key: replace(item, inserted=0) for key, item in commit.counts.items()}))


def test_a_key_was_removed(place: Place, table: State) -> None:
    with_a_key(place)
    for into in ({"table": "tweets", "key": ["id"], "on_conflict": "replace"}, {"table": "tweets"}):
        state = table({**FIELDS, "into": into})
        assert not state.queries and "replaced and deleted rows" in state.statement


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_key_was_removed_in_a_lake(place: Place, table: State) -> None:
    """A condition on a later snapshot would miss rows that it has replaced. The snapshot itself has them."""
    into = {"type": "delta", "table": "tweets"}
    with_a_key(place)
    for more in ({"key": ["id"], "on_conflict": "replace"}, {}):
        assert table({**FIELDS, "into": {**into, **more}}).queries
        assert not table({**FIELDS, "into": {**into, **more}}, 7).narrowed


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_topic_was_added_in_a_lake(place: Place, table: State) -> None:
    filled(place)
    state = table({**TWO, "into": {"type": "delta", "table": "tweets"}}, 7)
    assert state.narrowed and "_kafka_topic" not in state.narrowed[0].text, "no row names its topic"
