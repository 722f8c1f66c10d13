"""Names of tables that differ in case only: one table in DuckDB, two in PostgreSQL and MySQL."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Commit
from kpipe.ledger.ledger import Lane, LaneChange
from kpipe.schema.columns import Columns
from kpipe.topics import TopicId
from resources.testing.place import COLUMNS, Place, batch, begin, source
from resources.testing.state import proof
from tests.resources.destinations.databases import database
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.topic_batches import commit, targets

pytestmark = pytest.mark.drawn(2)

LOWER, UPPER = TopicId("cluster-1", "id-1", "x.y"), TopicId("cluster-1", "id-2", "x.Y")
KNOWN: dict[TopicId, Columns] = {LOWER: COLUMNS, UPPER: COLUMNS}


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return database(request, tmp_path)


def is_exact(place: Place) -> bool:
    return not isinstance(place, DuckDBPlace)


def begun(place: Place, *topics: TopicId) -> Any:
    made = place.open(table="raw_{topic}")
    changes = tuple(LaneChange(None, Lane(source(0, topic), 0, 0)) for topic in topics)
    made.commit(Commit(uuid.uuid4().hex, "tweets", changes, kind="begin", note="begin"))
    return made


def written(place: Place, made: Any, topic: TopicId, end: int) -> None:
    tables = {LOWER: "raw_x_y", UPPER: "raw_x_Y"}
    made.commit(commit(place, made, {topic: end}, columns=KNOWN, tables=tables))


def test_an_edit_of_the_case_alone(place: Place) -> None:
    """The former table is another one where names are exact, and is verified, too."""
    old = place.open(table="Orders")
    old.commit(begin("tweets", (0,)))
    old.commit(batch(place, old.ledger()[1], {0: 4}))
    new = place.open(table="orders")
    new.commit(batch(place, new.ledger()[1], {0: 6}))
    assert proof(new).ok, proof(new).problems
    assert set(new.recount().tables) == ({"orders", "Orders"} if is_exact(place) else {"orders"})
    table = "Orders" if isinstance(place, MySQLPlace) else '"Orders"'  # PostgreSQL folds a name without quotes
    place.sql(f"DELETE FROM {table} WHERE id = 1")
    assert not proof(new).ok


def test_tables_of_two_topics(place: Place) -> None:
    made = begun(place, LOWER, UPPER)
    written(place, made, LOWER, 3)
    made.clear(["raw_x_y"], "me")
    written(place, made, UPPER, 2)
    expected = {"raw_x_y": 0, "raw_x_Y": 2} if is_exact(place) else {"raw_x_Y": 2}
    assert targets(made) == expected
    assert made.rows_of_tables() == expected
