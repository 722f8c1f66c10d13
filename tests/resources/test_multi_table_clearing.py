"""Several tables, or several rows of a record, cleared on purpose: all tables of the same records together, and proven."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import Fenced, NotAvailable
from resources.home import Home
from resources.testing.place import Place
from tests.resources.destinations.databases import database
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import LINES, Bench, order

pytestmark = pytest.mark.drawn(1)

BOTH = ["orders", "order_lines"]
PARTS = "SELECT id, line.quantity AS quantity FROM records, UNNEST(lines) AS t(line)"
RULES = [{}, {"into": {"table": "orders", "key": ["id"], "on_conflict": "replace"}}]


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made = database(request, tmp_path)
    if isinstance(made, DuckDBPlace) and "beside_another" in request.node.name:
        made.lock_timeout_s = 300
    return made


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Any:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **fields)


def filled(bench: Any, **fields: Any) -> Bench:
    made: Bench = bench(**fields)
    made.topics.produce(0, order(1, 5, 6), order(2, 7), None, order(3))
    made.topics.produce(1, order(4, 1, 2, 3))
    made.topics.produce(1, {}, bad=True)
    made.run()
    return made


def proven(made: Bench) -> dict[str, Any]:
    found = made.proof()
    assert found.ok, found.problems
    return found.to_dict()


@pytest.mark.parametrize("rule", RULES)
def test_all_tables_are_cleared_and_loaded_again_and_proven_each_time(bench: Any, rule: dict[str, Any]) -> None:
    made = filled(bench, **rule)
    before = proven(made)
    for _ in range(2):
        done = made.destination.clear(BOTH, "me")
        assert done.rows == {"orders": 4, "order_lines": 6}
        assert done.pipelines == {"shop": ["orders/0 [0, 4)", "orders/1 [0, 2)"]}
        assert not made.place.rows("orders") and not made.place.rows("order_lines")
        cleared = proven(made)
        assert (cleared["span"], cleared["rows"], cleared["dead_letters"]) == (0, 0, 0)
        assert cleared["targets"] == {"order_lines": {"rows": 0, "rows_found": 0}}
        assert made.destination.clear(BOTH, "me").pipelines == {}
        made.again()
        after = proven(made)
        names = ("span", "rows", "dead_letters", "filtered", "targets")
        assert [after[name] for name in names] == [before[name] for name in names]


def test_one_of_them_alone_is_refused_whichever_it_is(bench: Any) -> None:
    made = filled(bench)
    for table, other in (BOTH, BOTH[::-1]):
        with pytest.raises(NotAvailable, match=f"has written table {other} from the same records") as raised:
            made.destination.clear([table], "me")
        assert raised.value.hint.startswith("RESET PIPELINE shop clears all tables")
    assert proven(made)["rows"] == 4


def test_so_it_is_where_the_other_one_has_no_rows(bench: Any) -> None:
    """Its range is the first table's: to take it back would take back rows of other batches, too."""
    made = filled(bench, select="SELECT id, customer FROM records WHERE id = 0")
    with pytest.raises(NotAvailable, match="has written table orders from the same records"):
        made.destination.clear(["order_lines"], "me")
    made.destination.clear(BOTH, "me")
    made.again()
    assert len(made.place.rows("order_lines")) == 6
    proven(made)


@pytest.mark.parametrize("rule", RULES)
def test_what_goes_wrong_behind_a_clear_is_noticed_in_each_table(bench: Any, rule: dict[str, Any]) -> None:
    made = filled(bench, **rule)
    made.destination.clear(BOTH, "me")
    made.again()
    for table in BOTH:
        proven(made)
        kept = made.place.rows(table)[0]["id"]
        made.place.sql(f"UPDATE {made.place.name(table)} SET _kafka_offset = _kafka_offset + 1 WHERE id = {kept}")
        assert not made.proof().ok
        made.place.sql(f"UPDATE {made.place.name(table)} SET _kafka_offset = _kafka_offset - 1 WHERE id = {kept}")


def test_dead_letters_that_were_replayed_are_taken_back_with_the_rest(bench: Any) -> None:
    also = [
        {
            "table": "order_lines",
            "select": "SELECT id, CAST(line.discount AS INTEGER) AS d FROM records, UNNEST(lines) AS t(line)",
        }
    ]
    made: Bench = bench(also=also, errors={"constraint": "dead_letter"})
    made.topics.produce(0, order(1, 5), order(2, 6, 7, discount="9x"))
    made.run()
    assert made.proof().counts.dead_letters == 1
    made.pipeline = made.pipeline.model_copy(update={"also": [
        part.model_copy(update={"select": PARTS}) for part in made.pipeline.also
    ]})  # fmt: skip
    assert made.retry()["answered"] == 1
    assert proven(made)["targets"]["order_lines"]["rows"] == 3
    assert made.destination.clear(BOTH, "me").rows == {"orders": 2, "order_lines": 3}
    assert proven(made)["targets"]["order_lines"] == {"rows": 0, "rows_found": 0}
    made.again()
    assert proven(made)["targets"]["order_lines"]["rows"] == 3


def edited(made: Bench, first: str, *more: str) -> None:
    """The definition names other tables from now on, which take orders."""
    into = made.pipeline.into.model_copy(update={"table": first})
    also = [part.model_copy(update={"table": name}) for name in more for part in made.pipeline.also[:1]]
    made.pipeline = made.pipeline.model_copy(update={"into": into, "also": also})


def test_tables_of_an_edited_definition(bench: Any) -> None:
    """First orders and lines, then others and lines, then lines as the first: each offset once, whatever was cleared."""
    made = filled(bench)
    edited(made, "others", "order_lines")
    made.topics.produce(0, order(5, 1), order(6))
    made.run()
    with pytest.raises(NotAvailable, match="has written table orders from the same records"):
        made.destination.clear(["others", "order_lines"], "me")
    edited(made, "order_lines", "others")
    made.topics.produce(0, order(7, 1))
    made.run()
    proven(made)
    three = ["orders", "others", "order_lines"]
    for number in (7, 2):
        done = made.destination.clear(three, "me")
        assert done.pipelines and done.rows["orders"] == (4 if number == 7 else 0)
        assert proven(made)["span"] == 0
        made.again()
        assert proven(made)["span"] == 9
    with pytest.raises(NotAvailable, match="table others "):
        made.destination.clear(["order_lines"], "me")
    assert made.destination.clear(["orders"], "me").pipelines == {}, "nothing of it is left there"


def test_a_table_that_was_alone_before_it_had_another_beside_it(bench: Any) -> None:
    made = filled(bench, also=[])
    made.pipeline = bench().pipeline
    made.topics.produce(0, order(5, 1, 2))
    made.run()
    with pytest.raises(NotAvailable):
        made.destination.clear(["orders"], "me")
    assert made.destination.clear(BOTH, "me").rows == {"orders": 5, "order_lines": 2}
    assert proven(made)["span"] == 0
    made.again()
    assert proven(made)["targets"]["order_lines"]["rows"] == 8
    # The other way round: what it got alone after a clear is no other table's.
    made.destination.clear(BOTH, "me")
    made.pipeline = made.pipeline.model_copy(update={"also": []})
    made.again()
    assert made.destination.clear(["orders"], "me").rows == {"orders": 5}
    proven(made)


@pytest.mark.parametrize("place", ["duckdb", "postgres", "mysql"], indirect=True)
def test_several_rows_of_a_record_in_one_table(bench: Any) -> None:
    made = filled(bench, select=PARTS, also=[], columns={"lines": LINES})
    assert made.destination.clear(["orders"], "me").rows == {"orders": 6}
    assert proven(made)["span"] == 0
    made.again()
    found = proven(made)
    assert (found["rows"], len(made.place.rows("orders"))) == (6, 6)
    made.place.sql(f"DELETE FROM {made.place.name('orders')} WHERE id = 2")
    assert not made.proof().ok


def test_a_clear_that_is_killed_is_none(bench: Any) -> None:
    made = filled(bench)
    for point in ("ledger", "data", "before"):
        failpoints.arm(failpoints.Fault(f"commit.{point}:1:raise"))
        with pytest.raises(Exception, match=rf"commit\.{point}"):
            made.destination.clear(BOTH, "me")
        failpoints.arm(None)
        assert proven(made)["rows"] == 4 and len(made.place.rows("order_lines")) == 6


@pytest.mark.crossed
@pytest.mark.parametrize("place", ["duckdb", "postgres", "mysql"], indirect=True)
@pytest.mark.parametrize("rival", ["clear", "batch"])
@pytest.mark.parametrize("rule", RULES)
def test_beside_another_clear_or_a_batch_each_offset_is_counted_once(bench: Any, rival: str, rule: dict[str, Any]) -> None:
    """Both are at it at once, again and again: one is fenced, or comes after the other; the proof holds whichever it was."""
    made = filled(bench, **{"select": PARTS, "also": [], "columns": {"lines": LINES}, **({} if not rule else
        {**rule, "select": None, "columns": {"id": "BIGINT", "lines": LINES}})})  # fmt: skip
    for number in range(2):
        made.topics.produce(0, order(10 + number, 1, 2))
        made.topics.produce(1, order(20 + number, 1))
        start, failed = threading.Barrier(2), []

        def work(what: str, start: threading.Barrier = start, failed: list[BaseException] = failed) -> None:
            destination, ingest = made.destination, made.ingest()
            start.wait()
            try:
                if what == "clear":
                    destination.clear(["orders"], "me")
                else:
                    list(ingest.run(1))
            except Fenced:
                pass
            except BaseException as error:
                failed.append(error)

        both = [threading.Thread(target=work, args=(what,)) for what in ("clear", rival)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert not failed, failed
        proven(made)
    made.run()
    made.again()
    proven(made)
    assert {row["id"] for row in made.place.rows("orders")} >= {10, 11, 20, 21}
