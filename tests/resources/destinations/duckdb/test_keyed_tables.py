"""Rows with a key in a user's DuckDB table: how it spells its columns, and how it compares its keys."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.testing.keyed import RULES, Write, begun, commit_of
from resources.testing.state import proof
from tests.resources.destinations.place import DuckDBPlace

COORDINATES = "_kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ"


def load(place: DuckDBPlace, destination: Destination, writes: Sequence[Write], rule: KeyRule) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))


@pytest.mark.parametrize("name", ["replace", "update", "ignore"])
def test_columns_in_another_case_are_filled(place: DuckDBPlace, name: str) -> None:
    """A table may be made again by hand between staging and commit."""
    place.sql(f'CREATE TABLE tweets (ID BIGINT, "Text" VARCHAR, N BIGINT, {COORDINATES})')
    destination = begun(place, RULES[name], 1)
    load(place, destination, [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], RULES[name])
    load(place, destination, [Write(0, 2, 2, "c"), Write(0, 3, 3, "d")], RULES[name])
    found = {row["ID"]: row["Text"] for row in place.rows()}
    assert set(found) == {1, 2, 3} and found[1] == "a" and found[3] == "d" and proof(destination).ok


def test_keys_are_compared_as_by_a_primary_key_whatever_the_collation(place: DuckDBPlace) -> None:
    place.sql(f"CREATE TABLE tweets (id BIGINT, text VARCHAR COLLATE NOCASE PRIMARY KEY, n BIGINT, {COORDINATES})")
    place.sql("CREATE TABLE peer (text VARCHAR COLLATE NOCASE PRIMARY KEY)")
    place.sql("INSERT INTO peer VALUES ('ada'), ('Ada')")  # DuckDB's own rule
    rule = KeyRule(None, "replace")
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "ada"), Write(0, 1, 2, "Ada")], rule)
    load(place, destination, [Write(0, 2, 3, "ADA"), Write(0, 3, 4, "Ada")], rule)
    assert sorted((row["text"], row["id"]) for row in place.rows()) == [("ADA", 3), ("Ada", 4), ("ada", 1)]
    assert proof(destination).problems == []
