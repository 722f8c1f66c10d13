"""One topic into several tables, and several rows from one record: with the ledger, in one transaction."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import NotAvailable, RecordRejected
from resources.home import Home
from resources.testing.place import Place
from tests.resources.destinations.databases import database
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import ORDERS, Bench, define, order

pytestmark = pytest.mark.drawn(1)

_processes = multiprocessing.get_context("forkserver")  # a fork of a process with DuckDB's threads may crash
_processes.set_forkserver_preload(["tests.resources.several"])
ASIDE = {"constraint": "dead_letter"}
#: What databases do differently: transactions, temporary tables, types.
in_each_database = pytest.mark.parametrize("place", ["duckdb", "postgres", "mysql"], indirect=True)


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return database(request, tmp_path)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Any:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **fields)


def filled(bench: Any, **fields: Any) -> Bench:
    """Three orders with lines, one without, a tombstone, one that is no JSON; all read."""
    made: Bench = bench(**fields)
    made.topics.produce(0, order(1, 5, 6), order(2, 7), None, order(3))
    made.topics.produce(1, order(4, 1, 2, 3))
    made.topics.produce(1, {}, bad=True)
    made.run()
    return made


@in_each_database
def test_orders_and_lines_land_together(bench: Any) -> None:
    made = filled(bench)
    assert made.table("orders", "id", "customer") == [(1, "c1"), (2, "c2"), (3, "c3"), (4, "c4")]
    assert made.table("order_lines", "_kafka_partition", "_kafka_offset", "id", "number", "sku", "quantity") == [
        (0, 0, 1, 1, "s0", 5), (0, 0, 1, 2, "s1", 6), (0, 1, 2, 1, "s0", 7),
        (1, 0, 4, 1, "s0", 1), (1, 0, 4, 2, "s1", 2), (1, 0, 4, 3, "s2", 3),
    ]  # fmt: skip
    found = made.proof()
    assert found.ok, found.problems
    counts = found.counts
    assert (found.span, counts.rows, counts.given, counts.dead_letters, counts.filtered) == (6, 4, 4, 1, 1)
    assert found.to_dict()["targets"] == {"order_lines": {"rows": 6, "rows_found": 6}}
    got = made.sql("SELECT target_table, sum(t.rows) AS n, sum(records) AS m FROM kpipe_targets AS t GROUP BY 1 ORDER BY 1")
    assert [tuple(map(str, row.values() if isinstance(row, dict) else row)) for row in got] == [
        ("order_lines", "6", "3"), ("orders", "4", "4")
    ]  # fmt: skip


def test_a_table_without_rows_of_this_batch_and_a_table_that_is_only_filtered(bench: Any) -> None:
    """A record that gives a row in one table only is no filtered one; one that gives none anywhere is."""
    also = [{"table": "dear", "where": "id > 2", "select": None}, {"table": "cheap", "where": "id <= 1"}]
    made: Bench = bench(select="SELECT id FROM records WHERE id = 0", also=also)
    made.topics.produce(0, *(order(number) for number in range(4)))
    made.run()
    assert made.table("orders", "id") == [(0,)]
    assert made.table("dear", "id", "customer") == [(3, "c3")]
    assert made.table("cheap", "id") == [(0,), (1,)]
    found = made.proof()
    assert found.ok, found.problems
    assert (found.counts.given, found.counts.filtered) == (3, 1)


def test_a_record_that_fails_for_one_table_is_in_none(bench: Any) -> None:
    """The last line of order 2 has a quantity that is no number: the order is a dead letter as a whole."""
    made: Bench = bench(errors=ASIDE)
    made.topics.produce(0, order(1, 5, discount="1"), order(2, 5, 6, discount="x"), order(3, 9))
    made.run()
    assert made.table("orders", "id") == [(1,), (3,)]
    assert made.table("order_lines", "id", "quantity") == [(1, 5), (3, 9)]
    letters = made.destination.view("errors")
    assert [(row["offset"], row["stage"]) for row in letters] == [(1, "constraint")]
    assert "table order_lines: " in letters[0]["error_message"]
    found = made.proof()
    assert found.ok, found.problems
    assert (found.counts.given, found.counts.dead_letters) == (2, 1)


def test_fail_stops_before_any_table_has_a_row(bench: Any) -> None:
    made: Bench = bench()
    made.topics.produce(0, order(1, 5), order(2, 6, discount="x"))
    with pytest.raises(RecordRejected, match="orders/0 offset 1: table order_lines: "):
        made.run()
    assert made.place.rows("orders") == made.place.rows("order_lines") == []


@pytest.mark.crossed
@pytest.mark.parametrize("table", ["orders", "order_lines"])
@pytest.mark.parametrize("what", ["deleted", "doubled", "both"])
def test_verify_notices_a_row_in_any_table(bench: Any, table: str, what: str) -> None:
    made = filled(bench)
    one = "_kafka_partition = 0 AND _kafka_offset = 1"
    if what != "deleted":
        made.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE {one}")
    if what != "doubled":
        made.sql(f"DELETE FROM {table} WHERE _kafka_partition = 0 AND _kafka_offset = 0 AND id = 1" + (
            " AND number = 1" if table == "order_lines" else ""
        ))  # fmt: skip
    problems = made.proof().problems
    assert problems
    assert all(text.startswith("table order_lines: ") == (table == "order_lines") for text in problems), problems


def test_a_table_that_is_gone_is_noticed(bench: Any) -> None:
    made = filled(bench)
    made.sql("DROP TABLE order_lines")
    assert any(
        "table order_lines: partition 0: expected" in text and "found 0 in the table" in text for text in made.proof().problems
    )
    made.topics.produce(0, order(9, 1))
    with pytest.raises(Exception, match=r"table order_lines is missing, the ledger records 6 rows in it"):
        made.run()


def test_both_tables_are_widened(bench: Any) -> None:
    """A new member is a column of each table that takes all members; the batch is staged once more for all."""
    made: Bench = bench(select=None, columns={}, also=[{"table": "copies", "where": "id > 1"}])
    made.topics.produce(0, {"id": 1}, {"id": 2})
    made.run(1)
    made.topics.produce(0, {"id": 3, "colour": "red"})
    made.run()
    assert [row["colour"] for row in sorted(made.place.rows("orders"), key=lambda row: row["id"])] == [None, None, "red"]
    assert sorted((row["id"], row["colour"]) for row in made.place.rows("copies")) == [(2, None), (3, "red")]
    assert made.proof().ok


@in_each_database
def test_tables_that_are_there_are_fitted(bench: Any) -> None:
    made: Bench = bench()
    if isinstance(made.place, DuckDBPlace):
        made.place.path.parent.mkdir(exist_ok=True)
    made.sql("CREATE TABLE order_lines (sku VARCHAR(9), quantity DOUBLE PRECISION, id VARCHAR(9), stock BIGINT, number INTEGER)")
    made.topics.produce(0, order(1, 5))
    made.run()
    assert made.table("order_lines", "id", "quantity", "stock", "number", "discount") == [("1", 5.0, None, 1, None)]
    assert made.proof().ok


@in_each_database
def test_each_table_has_its_own_key(bench: Any) -> None:
    """Orders are replaced by their id, lines are kept as they were; both are counted, and proven by what they hold."""
    lines = {**ORDERS["also"][0], "key": ["id", "number"], "on_conflict": "ignore"}
    made: Bench = bench(into={"table": "orders", "key": ["id"], "on_conflict": "replace"}, also=[lines])
    made.topics.produce(0, order(1, 5, 6), order(2, 7))
    made.run()
    made.topics.produce(0, order(1, 8, 9, 10, customer="new"))
    done = made.run()[-1].commit
    assert made.table("orders", "id", "customer") == [(1, "new"), (2, "c2")]
    assert made.table("order_lines", "id", "number", "quantity") == [(1, 1, 5), (1, 2, 6), (1, 3, 10), (2, 1, 7)]
    assert (done.totals.updated, done.tables[1].totals.inserted, done.tables[1].totals.ignored) == (1, 1, 2)
    found = made.proof()
    assert found.ok, found.problems
    made.sql("UPDATE order_lines SET _kafka_offset = 77 WHERE id = 2")
    assert [text for text in made.proof().problems if "are not those of the commits" in text]


def test_many_batches_extracted_ahead(bench: Any) -> None:
    made: Bench = bench(batch={"max_offsets_per_partition": 3, "interval_ms": 0})
    made.topics.produce(0, *(order(number, *range(number % 4)) for number in range(20)))
    made.topics.produce(1, *(order(number, 1) for number in range(20, 31)))
    assert len(made.run()) == 7
    assert [row[0] for row in made.table("orders", "id")] == list(range(31))
    assert len(made.place.rows("order_lines")) == sum(number % 4 for number in range(20)) + 11
    assert made.proof().ok


def _step(made: Bench, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    made.ingest().step()


@pytest.mark.crossed
@in_each_database
@pytest.mark.parametrize("point", ["commit.table:2", "commit.data:1", "commit.data:2", "commit.before:1", "commit.after:1"])
def test_killed_between_two_tables(bench: Any, point: str) -> None:
    """The process dies between the inserts of two tables: none of them has a row, or both have all."""
    made: Bench = bench()
    made.topics.produce(0, order(1, 5, 6), order(2, 7))
    made.ingest().survey.look()  # the partitions are begun; a batch is the next commit
    process = _processes.Process(target=_step, args=(made, f"{point}:kill"))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    landed = point.startswith("commit.after")
    assert (len(made.place.rows("orders")), len(made.place.rows("order_lines"))) == ((2, 3) if landed else (0, 0))
    made.run()
    assert (len(made.place.rows("orders")), len(made.place.rows("order_lines"))) == (2, 3)
    assert made.proof().ok


@pytest.mark.crossed
@in_each_database
@pytest.mark.parametrize("point", ["commit.table:2", "commit.data:2", "commit.history:1"])
def test_failed_between_two_tables(bench: Any, point: str) -> None:
    made: Bench = bench()
    made.topics.produce(0, order(1, 5, 6), order(2, 7))
    made.ingest().survey.look()
    failpoints.arm(failpoints.Fault(f"{point}:raise"))
    with pytest.raises(Exception, match="failed at"):
        made.run()
    failpoints.arm(None)
    assert made.place.rows("orders") == made.place.rows("order_lines") == []
    made.run()
    assert (len(made.place.rows("orders")), len(made.place.rows("order_lines"))) == (2, 3)
    assert made.proof().ok


def test_dead_letters_that_are_mended_go_into_all_tables(bench: Any) -> None:
    """Order 2 has a discount that is no number; the mended definition makes it NULL. Order 3 has no lines."""
    made: Bench = bench(errors=ASIDE)
    bad = order(2, 5, 6, discount="x")
    made.topics.produce(0, order(1, 5, discount="1"), bad, {**order(3), "customer": "c3"})
    made.run()
    assert made.table("orders", "id") == [(1,), (3,)]
    lines = {**ORDERS["also"][0]}
    lines["select"] = lines["select"].replace("CAST(line.discount AS INTEGER)", "TRY_CAST(line.discount AS INTEGER)")
    made.pipeline = define(errors=ASIDE, also=[lines])
    assert made.retry() == {"tried": 1, "answered": 1, "rows": 1, "filtered": 0, "failed": 0}
    assert made.table("orders", "id") == [(1,), (2,), (3,)]
    assert made.table("order_lines", "id", "number", "quantity") == [(1, 1, 5), (2, 1, 5), (2, 2, 6)]
    found = made.proof()
    assert found.ok, found.problems
    assert (found.counts.given, found.counts.dead_letters, found.counts.rows) == (3, 0, 3)
    assert made.retry() == {}


def test_dead_letters_of_other_tables_than_the_definition_has_now_stay(bench: Any) -> None:
    made: Bench = bench(errors=ASIDE)
    made.topics.produce(0, order(2, 5, discount="x"))
    made.run()
    made.pipeline = define(errors=ASIDE, also=[])
    assert made.retry() == {}
    assert made.place.rows("orders") == []


@pytest.mark.crossed
@pytest.mark.parametrize("into", ["orders", "renamed"])
@pytest.mark.parametrize(
    "also",
    [
        [{"table": "other_lines", "select": None}],  # changed
        [{"table": "order_lines", "select": None}, {"table": "more", "select": None}],  # added
        [],  # taken away
        [{"table": "orders2", "select": None}, {"table": "order_lines", "select": None}],  # in another order
    ],
)
def test_edited_tables_get_what_comes_then_and_the_others_are_still_proven(bench: Any, also: Any, into: str) -> None:
    made = filled(bench, select=None, columns={}, also=[{"table": "order_lines"}])
    before = {name: len(made.place.rows(name)) for name in ("orders", "order_lines")}
    made.pipeline = define(select=None, columns={}, also=also, into={"table": into})
    made.topics.produce(0, order(8), order(9))
    made.run()
    now = {into, *(item["table"] for item in also)}
    expected = Counter({**before}) + Counter(dict.fromkeys(now, 2))
    assert {name: len(made.place.rows(name)) for name in expected} == dict(expected)
    found = made.proof()
    assert found.ok, found.problems
    assert set(found.targets) == set(expected) - {into}
    assert all(item["rows"] == item["rows_found"] == expected[name] for name, item in found.targets.items())
    for name in set(before) - now:
        made.sql(f"DROP TABLE {name}")
        assert any(text.startswith(f"table {name}: ") for text in made.proof().problems)


@pytest.mark.crossed
@pytest.mark.parametrize(
    ("into", "also"),
    [
        ("orders", []),
        ("renamed", []),
        ("orders", [{"table": "order_lines", "select": None}]),
        ("renamed", [{"table": "order_lines", "select": None}]),
        ("renamed", [{"table": "orders", "select": None}]),
        ("order_lines", [{"table": "orders", "select": None}]),
    ],
)
def test_tables_with_offsets_that_were_read_again_are_still_proven_after_an_edit(bench: Any, also: Any, into: str) -> None:
    made = filled(bench, select=None, columns={}, also=[{"table": "order_lines"}])
    made.again()
    assert made.proof().ok
    made.pipeline = define(select=None, columns={}, also=also, into={"table": into})
    made.topics.produce(0, order(8), order(9))
    made.run()
    found = made.proof()
    assert found.ok, found.problems
    gone = made.place.rows("orders")[-1]
    made.sql(f"DELETE FROM orders WHERE id = {gone['id']}")
    assert not made.proof().ok


def test_a_table_that_left_the_definition_is_named_when_the_others_cannot_be_cleared(bench: Any) -> None:
    made = filled(bench)
    made.pipeline = define(also=[])
    for only, hint in (
        (None, "RESET PIPELINE shop clears all tables that its definition names"),
        (["shop"], "add table order_lines to the definition of pipeline shop again, then RESET PIPELINE shop"),
        (["more"], "RESET PIPELINE more, shop reads the rows of all of them again"),
    ):
        with pytest.raises(NotAvailable, match="has written table order_lines from the same records") as refused:
            made.destination.clear(["orders"], "me", only)
        assert refused.value.hint.startswith(hint)
        if only is not None:
            with pytest.raises(NotAvailable, match="has written table order_lines from the same records") as checked:
                made.destination.check_clear(["orders"], only)
            assert checked.value.hint == refused.value.hint
