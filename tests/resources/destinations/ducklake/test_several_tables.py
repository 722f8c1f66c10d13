"""Tables by topic and by a field in a DuckLake: one commit for all of them, by the tests of the databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kpipe import failpoints
from tests.resources import test_tables_by_field as by_field
from tests.resources.destinations.ducklake_place import DuckLakePlace
from tests.resources.destinations.sql import test_tables_by_topic as by_topic
from tests.resources.test_tables_by_field import Site, event

_FEW = ("test_tables_of_a_batch_are_committed_together", "test_tables_appear_with_the_values_of_a_field")
_EVERYWHERE = pytest.mark.parametrize(
    "place",
    ["duckdb", pytest.param("sqlite", marks=pytest.mark.chaos), pytest.param("postgres", marks=pytest.mark.chaos)],
    indirect=True,
)
_SERVER = pytest.mark.parametrize("place", [pytest.param("postgres", marks=pytest.mark.chaos)], indirect=True)
_RESERVED = ("row_id", "Begin_Snapshot", "end_snapshot", "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id")


def _cases(module: ModuleType, *parameters: str) -> list[Any]:
    """Return the tests of a module that take a place and these parameters; `make test` runs a few of them."""
    return [
        pytest.param(test, id=name[5:], marks=() if name in _FEW else pytest.mark.chaos)
        for name, test in vars(module).items()
        if name.startswith("test_") and [*signature(test).parameters][1:] == [*parameters]
    ]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


@_EVERYWHERE
@pytest.mark.parametrize("test", _cases(by_topic))
def test_tables_by_topic(place: DuckLakePlace, test: Any) -> None:
    test(place)


@_EVERYWHERE
@pytest.mark.parametrize("test", _cases(by_field, "tmp_path"))
def test_tables_by_a_field(place: DuckLakePlace, test: Any, tmp_path: Path) -> None:
    test(place, tmp_path)


@_EVERYWHERE
@pytest.mark.chaos
@pytest.mark.parametrize("seed", [4, *range(200, 206)])
def test_killed_at_random(place: DuckLakePlace, tmp_path: Path, seed: int) -> None:
    by_field._search(place, tmp_path, seed, 2 if seed < 200 else 8)


@_SERVER
@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE e_b (id BIGINT, note VARCHAR)", "ALTER TABLE e_a ADD COLUMN note VARCHAR", "DROP TABLE unrelated"],
)
def test_tables_that_another_client_defines_during_a_commit(place: DuckLakePlace, tmp_path: Path, statement: str) -> None:
    site = Site(place, tmp_path)
    site.put(event("a", 1))
    site.run()
    place.sql("CREATE TABLE unrelated (id BIGINT)")
    site.put(event("b", 2), event("a", 3, more=1.5))

    def reached(point: str) -> None:
        if point == "commit.before":  # all is written in the transaction, and COMMIT is not yet sent
            failpoints.arm(None)
            place.sql(statement)

    failpoints.arm(reached)
    assert site.run() == Counter(rows=2)
    assert site.tables() == {"e_a": 2, "e_b": 1}
    assert [(row["id"], row["more"]) for row in place.rows("e_a")] == [(1, None), (3, 1.5)]


@pytest.mark.parametrize("place", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)], indirect=True)
@pytest.mark.parametrize("table", ["t", "e_{field.type}"])
def test_records_with_members_of_names_that_ducklake_reserves(place: DuckLakePlace, tmp_path: Path, table: str) -> None:
    site = Site(place, tmp_path, into={"table": table})
    site.put(event("a", 1, row_id=1), event("a", 2, o={"row_id": 1}), event("a", 3))
    assert site.run() == Counter(rows=2, dead=1)
    site.put(*(event("a", number, **{name: 1}) for number, name in enumerate(_RESERVED, 4)), event("a", 9, rowid=1, table_id=2))
    assert site.run() == Counter(rows=1, dead=5)
    rows = place.rows("t" if table == "t" else "e_a")
    assert [(row["id"], row["rowid"], row["o"]) for row in sorted(rows, key=lambda row: row["id"])] == [
        (2, None, {"row_id": 1}), (3, None, None), (9, 1, None),
    ]  # fmt: skip
    assert "reserved by DuckLake" in site.destination().view("errors")[0]["error_message"]
    site.proof()
