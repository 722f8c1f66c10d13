"""Dead letters tried again into a table that refuses some of them: each record for itself, as if it came alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import SchemaConflict
from kpipe_assets.runs import dead_letter_retry
from resources.home import Home
from resources.testing.place import Place
from tests.resources.destinations.databases import database
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import Bench, define

BROKEN = {"v": "CAST(concat('x', id) AS BIGINT)"}
FIELDS: dict[str, Any] = {
    "select": None,
    "also": [],
    "columns": {"id": "BIGINT", "v": "BIGINT"},
    "into": {"table": "t"},
    "errors": {"constraint": "dead_letter"},
}


SLOW = [pytest.param(name, marks=pytest.mark.chaos) for name in ("postgres", "mysql")]
EVERYWHERE = pytest.mark.parametrize("place", ["duckdb", "postgres", "mysql"], indirect=True)


@pytest.fixture(params=["duckdb", *SLOW])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


@pytest.fixture
def dead(place: Place, tmp_path: Path) -> Callable[..., Bench]:
    """Make a pipeline whose records all are dead letters, and whose definition has been corrected since."""

    def make(table: str, *records: dict[str, Any], corrected: dict[str, Any] | None = None, **fields: Any) -> Bench:
        for statement in filter(None, table.split(";")):
            place.sql(statement)
        made = Bench(place, Home.at(tmp_path / "home"), **{**FIELDS, "set": BROKEN, **fields})
        made.topics.produce(0, *records)
        made.run()
        assert len(made.destination.view("errors")) == len(records) and not made.place.rows("t")
        made.pipeline = define(**{**FIELDS, "set": {}, **fields, **(corrected or {})})
        return made

    return make


def records(*values: Any) -> list[dict[str, Any]]:
    return [{"id": at, "v": value} for at, value in enumerate(values)]


def left(made: Bench) -> dict[int, str]:
    """What stays, with the reasons, by offset."""
    proof = made.proof()
    assert proof.ok, proof.problems
    assert proof.span == proof.counts.rows + proof.counts.dead_letters + proof.counts.filtered
    return {row["offset"]: row["error_message"] for row in made.destination.view("errors")}


def rows(made: Bench) -> list[int]:
    return [offset for (offset,) in made.table("t", "_kafka_offset")]


def sums(answered: int, failed: int) -> dict[str, int]:
    return {"tried": answered + failed, "answered": answered, "rows": answered, "filtered": 0, "failed": failed}


@EVERYWHERE
def test_those_that_a_check_refuses_stay_and_are_named(dead: Any) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT CHECK (v > 0))", *records(1, -1, 2, -2, 3))
    assert made.retry() == sums(3, 2)
    assert len(made.replayed) == 1, "the destination names them: one transaction"
    assert rows(made) == [0, 2, 4]
    found = left(made)
    assert sorted(found) == [1, 3] and all("CHECK" in why for why in found.values())
    assert sum(made.replayed[0].reasons.values()) == 2
    words = dead_letter_retry.in_words("t", made.replayed)
    assert "5 dead letters retried: 3 gave 3 rows" in words and "2 × constraint: rejected by the table" in words
    assert made.retry() == sums(0, 2) and rows(made) == [0, 2, 4]


@pytest.mark.parametrize("required", [(), ("v",)])
def test_null_where_the_table_takes_none(dead: Any, required: Sequence[str]) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT NOT NULL)", *records(1, None, 2))
    assert made.retry(required=required) == sums(2, 1)
    assert rows(made) == [0, 2] and "NULL" in left(made)[1]


@EVERYWHERE
def test_of_two_with_one_key_the_first_is_loaded(dead: Any) -> None:
    """A unique index is not among what the destination names: halves are tried, down to the record."""
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT PRIMARY KEY)", *records(1, 2, 1, 3, 2, 4, 5, 6))
    assert made.retry() == sums(6, 2)
    assert rows(made) == [0, 1, 3, 5, 6, 7] and sorted(left(made)) == [2, 4]
    assert all("rejected by the table: " in why and "uplicate" in why for why in left(made).values())
    assert made.retry() == sums(0, 2)
    made.sql("DELETE FROM t WHERE v = 1 AND id = 0")
    made.sql("UPDATE t SET v = 10 WHERE id = 1")
    assert made.retry() == sums(2, 0)


def test_several_causes_pages_and_an_ordinary_batch_behind(dead: Any) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT PRIMARY KEY CHECK (v < 100))", *records(1, 100, 1, 2, 200, 3, 2, 4, None))
    assert made.retry(page=3, required=("v",)) == sums(4, 5)
    assert rows(made) == [0, 3, 5, 7] and sorted(left(made)) == [1, 2, 4, 6, 8]
    made.topics.produce(0, {"id": 9, "v": 9})
    made.run()
    assert rows(made) == [0, 3, 5, 7, 9] and len(left(made)) == 5


@pytest.mark.parametrize("place", SLOW, indirect=True)  # a text has no length in DuckDB
def test_a_value_that_the_column_does_not_hold(dead: Any) -> None:
    text = [{"id": 0, "w": "abc"}, {"id": 1, "w": "abcd"}, {"id": 2, "w": "a"}]
    columns = {"id": "BIGINT", "w": "VARCHAR"}
    made = dead(
        "CREATE TABLE t (id BIGINT, w VARCHAR(3))",
        *text,
        columns=columns,
        set={"w": "CAST(CAST(concat('x', id) AS BIGINT) AS VARCHAR)"},
        corrected={"set": {}},
    )
    assert made.retry() == sums(2, 1)
    assert rows(made) == [0, 2] and sorted(left(made)) == [1]


@pytest.mark.parametrize("table", ["CREATE TABLE t (id BIGINT, v BIGINT)", ""])
def test_a_member_whose_name_no_column_can_have(dead: Any, place: Place, table: str) -> None:
    """Nor does a record that is set aside widen the table."""
    long = "x" * 70
    good, bad, more = {"id": 0, "v": 1}, {"id": 1, "v": 1, long: 1, "other": 1}, {"id": 2, "v": 1, "fine": 1}
    broken = {"select": "SELECT id, CAST(concat('x', id) AS BIGINT) AS v FROM records", "set": {}}
    made = dead(table, good, bad, more, **broken, corrected={"select": None})
    failed = 0 if isinstance(place, DuckDBPlace) else 1
    assert made.retry() == sums(3 - failed, failed)
    names = {name for row in made.place.rows("t") for name in row}
    assert "fine" in names and ("other" in names) == (not failed)
    assert sorted(left(made)) == ([1] if failed else [])


def test_new_columns_where_the_definition_takes_none(dead: Any) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT)", {"id": 0, "v": 1}, {"id": 1, "v": 1, "new": 1}, {"id": 2, "v": 2},
                schema="ignore", corrected={"schema": "fail"})  # fmt: skip
    assert made.retry() == sums(2, 1)
    assert rows(made) == [0, 2] and "new BIGINT" in left(made)[1]


def test_a_record_that_one_table_of_several_refuses_is_in_none(dead: Any) -> None:
    also = [{"table": "u", "select": "SELECT id, v FROM records"}]
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT); CREATE TABLE u (id BIGINT, v BIGINT PRIMARY KEY CHECK (v > 0))",
                *records(1, -1, 1, 2), select="SELECT id, CAST(concat('x', id) AS BIGINT) AS v FROM records", set={}, also=also,
                corrected={"select": "SELECT id, v FROM records"})  # fmt: skip
    assert made.retry() == sums(2, 2)
    assert made.table("t", "id") == made.table("u", "id") == [(0,), (3,)]
    assert {row["offset"] for row in made.destination.view("errors")} == {1, 2} and made.proof().ok


@pytest.mark.parametrize("point", ["commit.data:2", "commit.after:3"])
def test_interrupted_between_parts(dead: Any, point: str) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT PRIMARY KEY)", *records(1, 1, 2, 2, 3, 3, 4, 4))
    failpoints.arm(failpoints.Fault(f"{point}:raise"))
    if point.startswith("commit.after"):
        made.retry()  # the answer is lost, and what has landed is read back
    else:
        with pytest.raises(Exception, match="KPIPE_FAULT"):
            made.retry()
    failpoints.arm(None)
    assert set(left(made)) | set(rows(made)) == set(range(8))
    made.retry()
    assert rows(made) == [0, 2, 4, 6] and sorted(left(made)) == [1, 3, 5, 7]


def test_two_retries_at_once(dead: Any) -> None:
    """The other comes in between, before each transaction of the first: what it has taken is left to it."""
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT PRIMARY KEY)", *records(1, 1, 2, 2, 3, 3))
    others: list[dict[str, int]] = []

    def reached(point: str) -> None:
        if point == "commit.open" and len(others) == 0:
            others.append({})
            others[0] = made.retry()

    failpoints.arm(reached)
    mine = made.retry()
    assert others == [sums(3, 3)] and mine == sums(0, 3)
    assert rows(made) == [0, 2, 4] and sorted(left(made)) == [1, 3, 5]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_rights_that_are_missing_are_no_reason_of_a_record(dead: Any) -> None:
    made = dead("CREATE TABLE t (id BIGINT, v BIGINT)", *records(1, 2, 3))
    before = left(made)
    made.sql("REVOKE INSERT ON t FROM loader")
    with pytest.raises(SchemaConflict, match="permission denied"):
        made.retry()
    assert left(made) == before
