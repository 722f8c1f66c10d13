"""Test what `SqlDestination` makes of an engine that implements the required methods only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import NotAvailable
from kpipe.tables.upsert import KeyRule
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import Engine, TargetTable
from resources.testing.place import batch, begin
from tests.resources.destinations.place import DuckDBPlace

#: With the number of their arguments.
KEYED = {"primary_key": 2, "merge": 2, "insert_duplicates": 3}
OPTIONAL = ("hurry", "define", "violations", "headers", *KEYED)


def required_only(place: DuckDBPlace) -> Any:
    """DuckDB's engine without the optional methods, which are the Protocol's."""
    body = {name: vars(Engine)[name] for name in (*OPTIONAL, "is_keyed")}
    return type("RequiredOnly", (DuckDBEngine,), body)(place.path, (place.staging,), 5)


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


def test_it_loads_without_the_optional_methods(place: DuckDBPlace) -> None:
    destination = SqlDestination(required_only(place), "tweets", [TargetTable("tweets")])
    destination.hurry(1)
    destination.commit(begin("tweets", [0]))
    assert destination.commit(batch(place, destination.ledger()[1], {0: 3}, dead=[(0, 1)])).seq == 2
    assert len(place.rows()) == 2 and place.dead_letters() == 1 and destination.key() == ()
    (letter,) = destination.letters(0, 10)
    assert letter.offset == 1


def test_it_refuses_a_key(place: DuckDBPlace) -> None:
    engine = required_only(place)
    with pytest.raises(NotAvailable, match=r"pipeline tweets: this database does not support into\.key and into\.on_conflict"):
        SqlDestination(engine, "tweets", [TargetTable("tweets"), TargetTable("other", KeyRule(("id",), "replace"))])
    for name, arguments in KEYED.items():
        with pytest.raises(NotAvailable, match="rows cannot be merged by a key"):
            getattr(engine, name)(*[None] * arguments)


def test_an_engine_without_a_required_method_cannot_be_made() -> None:
    class Incomplete(Engine):
        """Nothing."""

    with pytest.raises(TypeError, match="abstract method"):
        Incomplete()
