"""Records with names that the destination's columns cannot have, through real decoders into real tables: dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import SchemaConflict
from kpipe.schema.column_names import RENAME
from resources.home import Home
from resources.testing.place import Place
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.resources.several import Bench

FIELDS: dict[str, Any] = {"select": None, "also": [], "columns": {}, "into": {"table": "t"}}
PLACES = {"duckdb": DuckDBPlace, "delta": DeltaPlace, "iceberg": IcebergPlace, "parquet": ParquetPlace}
UNFIT = {
    "postgres": ("x" * 64, "é" * 32, "n" * 255, "xmin", "ctid"),
    "mysql": ("x" * 65, "a ", "a\r", "a\U0001f600", "DB_ROW_ID", "fts_doc_id"),
}
# Each as long as can be, or odd in another way, and yet a name there.
FIT = {
    "postgres": ("x" * 63, "é" * 31, "XMIN", "oid", "a ", "\U0001f600", 'a"b', "%s"),
    "mysql": ("x" * 64, "é" * 64, " a", "xmin", "a`b", "%s", "\uffff"),
    "duckdb": ("n" * 255, "xmin", "a ", "\U0001f600", "a,b;{}()\n\t="),
}
FIT |= dict.fromkeys(("delta", "iceberg", "parquet"), FIT["duckdb"])
servers = pytest.mark.parametrize(
    ("place", "name"), [(place, name) for place, names in UNFIT.items() for name in names], indirect=["place"],
    ids=lambda item: ascii(item)[1:20],
)  # fmt: skip
one_name = pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param(place, name, marks=() if name == names[0] else pytest.mark.chaos)
        for place, names in UNFIT.items()
        for name in names
    ],
    indirect=["place"],
    ids=lambda item: ascii(item)[1:20],
)  # the rules themselves are tried with every name below
both = pytest.mark.parametrize("first", [True, False], ids=["a new table", "a table"])


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param in PLACES:
        yield PLACES[request.param](tmp_path)
    else:
        of = {"postgres": (PostgresPlace, "postgres"), "mysql": (MySQLPlace, "mariadb")}[request.param]
        yield of[0](tmp_path, request.getfixturevalue(of[1]))


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Callable[..., Bench]:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **{**FIELDS, **fields})


def reasons(made: Bench) -> dict[int, str]:
    proof = made.proof()
    assert proof.ok, proof.problems
    return {row["offset"]: row["error_message"] for row in made.destination.view("errors")}


def ids(made: Bench) -> list[Any]:
    return sorted(row["id"] for row in made.place.rows("t"))


def names(made: Bench) -> set[str]:
    columns = made.destination.columns()
    assert columns is not None
    return set(columns.names())


@pytest.mark.crossed
@servers
@both
def test_a_record_with_a_name_that_no_column_of_the_destination_has(bench: Callable[..., Bench], name: str, first: bool) -> None:
    made = bench()
    if not first:
        made.topics.produce(1, {"id": -1})
        made.run()
    made.topics.produce(0, {"id": 0, name: 1}, {"id": 1, "o": {name: 1}}, {"id": 2, "more": 1}, {"id": 3, name: None})
    made.run()
    found = reasons(made)
    assert list(found) == [0] and repr(name)[:30] in found[0] and found[0].endswith(RENAME)
    assert "PostgreSQL" in found[0] or "MySQL" in found[0]
    assert [number for number in ids(made) if number >= 0] == [1, 2, 3] and names(made) == {"id", "o", "more"}
    made.topics.produce(0, {"id": 4}, {"id": 5, name: {"a": 1}, "another": 1})
    made.run()
    assert list(reasons(made)) in ([0, 5], [5, 0]) and 4 in ids(made) and "another" not in names(made)


@pytest.mark.crossed
@one_name
@both
def test_ignored_columns_may_have_any_name(bench: Callable[..., Bench], name: str, first: bool) -> None:
    made = bench(schema="ignore")
    if not first:
        made.topics.produce(1, {"id": -1})
        made.run()
    made.topics.produce(0, {"id": 0, name: 1}, {"id": 1})
    made.run()
    assert not reasons(made) and {0, 1} <= set(ids(made)) and names(made) == {"id"}


@pytest.mark.crossed
@one_name
@both
def test_a_closed_table_fails_for_such_a_name_as_for_any(bench: Callable[..., Bench], name: str, first: bool) -> None:
    made = bench(schema="fail")
    if not first:
        made.topics.produce(1, {"id": -1})
        made.run()
    made.topics.produce(0, {"id": 0, name: 1})
    with pytest.raises(SchemaConflict, match="records have columns that the table lacks"):
        made.run()


@pytest.mark.crossed
@pytest.mark.parametrize("place", FIT, indirect=True)
@both
def test_names_at_the_edge_of_the_rules_are_columns(bench: Callable[..., Bench], first: bool) -> None:
    made = bench()
    fit = FIT[made.pipeline.into.type]
    if not first:
        made.topics.produce(0, {"id": -1})
        made.run()
    made.topics.produce(0, {"id": 0, **dict.fromkeys(fit, 1)}, {"id": 1, "o": dict.fromkeys(fit, 1)})
    made.run()
    assert not reasons(made) and names(made) == {"id", "o", *fit}


@servers
def test_a_select_that_names_its_columns_leaves_other_names_alone(bench: Callable[..., Bench], name: str) -> None:
    made = bench(select="SELECT id FROM records")
    made.topics.produce(0, {"id": 0, name: 1}, {"id": 1})
    made.run()
    assert not reasons(made) and ids(made) == [0, 1] and names(made) == {"id"}


CLASHES = {
    "mysql": ({"İ": 1}, {"i": 1}),
    "iceberg": ({"a.b": 1}, {"a": {"b": 1}}),
}


@pytest.mark.crossed
@pytest.mark.parametrize("place", CLASHES, indirect=True)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("split", ["one record", "one batch", "two batches"])
@both
def test_names_that_the_destination_takes_for_one(bench: Callable[..., Bench], first: bool, turned: bool, split: str) -> None:
    made = bench()
    one, other = CLASHES[made.pipeline.into.type]
    one, other = (other, one) if turned else (one, other)
    if not first:
        made.topics.produce(0, {"id": -1})
        made.run()
    if split == "one record":
        made.topics.produce(0, {"id": 0, **one, **other})
    elif split == "one batch":
        made.topics.produce(0, {"id": 0, **one})
        made.topics.produce(1, {"id": 1, **other})
    else:
        made.topics.produce(0, {"id": 0, **one})
        made.run()
        made.topics.produce(1, {"id": 1, **other})
    made.topics.produce(1, {"id": 2})
    made.run()
    (why,) = reasons(made).values()
    assert "takes the two for one" in why and 2 in ids(made)
    made.topics.produce(1, {"id": 3})
    made.run()
    assert 3 in ids(made)


@pytest.mark.parametrize("place", ["iceberg"], indirect=True)
def test_a_field_in_a_list_whose_dotted_name_is_a_columns(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, {"id": 0, "l.element.x": 1, "l": [{"y": 1}]})
    made.run()
    made.topics.produce(0, {"id": 1, "l": [{"x": 1}]}, {"id": 2, "l": [{"z": 1}]})
    made.run()
    (why,) = reasons(made).values()
    assert "takes the two for one" in why and ids(made) == [0, 2]
