"""Several tables of one pipeline from the outside: real Kafka, real Spark, real DuckDB and PostgreSQL, and the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from kpipe import failpoints
from tests.kpipe_assets.commands.test_run import KEYS
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.survival.small import killed

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SETTLED = {"rows", "inserted", "updated", "deleted", "ignored"}
ORDERS = "SELECT id, customer, positions FROM orders ORDER BY ALL"
LINES = "SELECT _kafka_partition, _kafka_offset, id, number, sku, quantity FROM order_lines ORDER BY ALL"
ASIDE = {"constraint": "dead_letter"}
Q, TRIED = "CAST(line.quantity AS INTEGER)", "TRY_CAST(line.quantity AS INTEGER)"


def order(number: int, *quantities: Any, **more: Any) -> str:
    lines = [{"sku": f"s{at}", "quantity": str(quantity)} for at, quantity in enumerate(quantities)]
    return json.dumps({"id": number, "customer": f"c{number}", "lines": lines, **more})


def shop(quantity: str = Q, **more: Any) -> dict[str, Any]:
    """Orders, and a row for each of their lines."""
    lines = "FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number)"
    unnested = f"SELECT id, number, line.sku AS sku, {quantity} AS quantity {lines}"
    return {
        "columns": {"lines": "STRUCT(sku VARCHAR, quantity VARCHAR)[]"},
        "select": "SELECT id, customer, len(lines) AS positions FROM records",
        "also": [{"table": "order_lines", "select": unnested}],
        "into": {"table": "orders"},
        **more,
    }


def proof(kpipe: Any, name: str = "shop", **expected: int) -> dict[str, Any]:
    """The proof of a pipeline, which holds, with these of its numbers."""
    (found,) = kpipe.json("verify", name)
    assert found["ok"] and not found["problems"]
    assert {key: found[key] for key in expected} == expected
    return dict(found)


def test_orders_and_lines_are_read_reported_and_proven(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, [order(1, 5, 6), order(2, 7), None, order(3)], 0)
    write(name, [order(4, 1, 2, 3), "not json"], 1)
    kpipe.define("shop", name, **shop(batch={"max_offsets_per_partition": 2}))
    *batches, summary = kpipe.json("run", "shop")
    assert [set(line) for line in batches] == [KEYS | {"targets"}] * 2
    assert [set(line["targets"]) for line in batches] == [{"order_lines"}] * 2
    assert [set(line["targets"]["order_lines"]) for line in batches] == [SETTLED] * 2
    assert [(line["rows"], line["targets"]["order_lines"]["rows"]) for line in batches] == [(3, 6), (1, 0)]
    assert [line["ranges"] for line in batches] == [{"0": [0, 2], "1": [0, 2]}, {"0": [2, 4]}]
    numbers = {key: summary[key] for key in ("status", "messages", "rows", "dead_letters", "filtered", "positions")}
    assert numbers == {
        "status": "caught_up", "messages": 6, "rows": 4, "dead_letters": 1, "filtered": 1, "positions": {"0": 4, "1": 2}
    }  # fmt: skip
    assert kpipe.sql(ORDERS) == [(1, "c1", 2), (2, "c2", 1), (3, "c3", 0), (4, "c4", 3)]
    assert kpipe.sql(LINES) == [
        (0, 0, 1, 1, "s0", 5), (0, 0, 1, 2, "s1", 6), (0, 1, 2, 1, "s0", 7),
        (1, 0, 4, 1, "s0", 1), (1, 0, 4, 2, "s1", 2), (1, 0, 4, 3, "s2", 3),
    ]  # fmt: skip
    found = proof(kpipe, span=6, rows=4, dead_letters=1, filtered=1)
    assert found["targets"] == {"order_lines": {"rows": 6, "rows_found": 6}}
    assert kpipe.json("run", "shop")[-1]["batches"] == 0
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("DELETE FROM order_lines WHERE id = 4 AND number = 2")
    problems = kpipe.json("verify", "shop", status=1)[0]["problems"]
    assert problems and all(text.startswith("table order_lines: ") for text in problems)
    assert "order_lines" in kpipe("verify", "shop", status=1).stderr


def test_what_verify_says_adds_up_where_records_gave_rows_in_one_table_only(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, [order(1, 5, 6), order(2, 7), order(3), "not json"])
    also = [{"table": "dear", "where": "id > 1"}]
    kpipe.define("shop", name, select="SELECT id FROM records WHERE id = 2", into={"table": "orders"}, also=also)
    assert kpipe.json("run", "shop")[-1]["filtered"] == 1
    assert kpipe.sql("SELECT id FROM orders") == [(2,)]
    assert kpipe.sql("SELECT id FROM dear ORDER BY 1") == [(2,), (3,)]
    proof(kpipe, span=4, rows=1, dead_letters=1, filtered=1)
    said = kpipe("verify", "shop").stdout
    assert "proven: 4 offsets = 2 records (1 row) + 1 dead letter + 1 filtered + 0 gaps; no offset twice" in said
    assert "; table dear contains its 2 rows" in said


def test_killed_between_two_tables(kpipe: Any, topic: Any, write: Any) -> None:
    """A run in a process of its own dies when the first table has its rows: none is there, then all are."""
    name = topic(1)
    write(name, [order(1, 5, 6), order(2, 7)])
    kpipe.define("shop", name, **shop())
    killed(kpipe.home, "shop", "commit.table:2")
    assert kpipe.sql("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'order%'") == []
    assert kpipe.json("run", "shop")[-1]["rows"] == 2
    assert [row[1:4] for row in kpipe.sql(LINES)] == [(0, 1, 1), (0, 1, 2), (1, 2, 1)]
    proof(kpipe, span=2, rows=2)


def test_an_order_with_a_bad_line_is_a_dead_letter_as_a_whole_and_is_tried_again(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, [order(1, 5), order(2, 6, "x"), order(3)], 0)
    write(name, [order(4, 8), order(5, "y", 9)], 1)
    kpipe.define("shop", name, **shop(errors=ASIDE))
    assert kpipe.json("run", "shop")[-1]["dead_letters"] == 2
    assert [row[0] for row in kpipe.sql(ORDERS)] == [1, 3, 4]
    assert [row[2:4] for row in kpipe.sql(LINES)] == [(1, 1), (4, 1)]
    letters = sorted(kpipe.json("errors", "shop"), key=lambda row: row["partition"])
    assert [(row["partition"], row["offset"], row["stage"]) for row in letters] == [(0, 1, "constraint"), (1, 1, "constraint")]
    assert all("table order_lines: " in row["error_message"] for row in letters)
    assert json.loads(letters[0]["load_data_line"]) == json.loads(order(2, 6, "x"))
    proof(kpipe, span=5, rows=3, dead_letters=2)

    (again,) = kpipe.json("errors", "shop", "--retry")
    assert (again["tried"], again["rows"], again["failed"]) == (2, 0, 2)
    kpipe.define("shop", name, **shop(TRIED, errors=ASIDE))
    kpipe.outside("errors", "shop", "--retry", status=-signal.SIGKILL, KPIPE_FAULT="commit.data:2:kill")
    proof(kpipe, span=5, rows=3, dead_letters=2)
    (done,) = kpipe.json("errors", "shop", "--retry")
    assert (done["tried"], done["answered"], done["rows"], done["failed"]) == (2, 2, 2, 0)
    assert [row[0] for row in kpipe.sql(ORDERS)] == [1, 2, 3, 4, 5]
    assert [row[2:] for row in kpipe.sql(LINES)] == [
        (1, 1, "s0", 5), (2, 1, "s0", 6), (2, 2, "s1", None), (4, 1, "s0", 8), (5, 1, "s0", None), (5, 2, "s1", 9),
    ]  # fmt: skip
    assert kpipe.json("errors", "shop") == [] == kpipe.json("errors", "shop", "--retry")
    assert proof(kpipe, span=5, rows=5, dead_letters=0)["targets"] == {"order_lines": {"rows": 6, "rows_found": 6}}


def test_a_statement_its_test_and_positions_of_all_tables(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    """The lookup is asked for each element of the list, with what the element says."""
    names = tmp_path / "skus.csv"
    names.write_text("sku,title,price\ns0,tea,3\ns1,cup,8\n")
    name = topic(1)
    write(name, [order(1, 5, 6), order(2, 7), order(3), order(4, 1, 2, 3)])
    lines = (
        "SELECT id, number, skus(line.sku).title AS title, skus(line.sku).price * CAST(line.quantity AS INTEGER) AS amount"
        " FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number) WHERE skus(line.sku).price IS NOT NULL OR number = 3"
    )
    options = {"columns": shop()["columns"], "select": shop()["select"]}
    kpipe(
        "sql",
        f"CREATE PIPELINE shop AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' OPTIONS '{json.dumps(options)}'"
        f' LOOKUP skus KEY (sku) FROM \'{names}\' SETTINGS \'{{"columns": {{"price": "BIGINT"}}}}\''
        f" INTO TABLE orders FORMAT JSON ALSO INTO TABLE order_lines SETTINGS '{json.dumps({'select': lines})}'",
    )
    said = kpipe("sql", "TEST PIPELINE shop", "--json")
    rows = [(row["table"], json.loads(row["row"])) for row in map(json.loads, said.stdout.splitlines()) if "table" in row]
    assert [(row["id"], row["positions"]) for table, row in rows if table == "orders"] == [(1, 2), (2, 1), (3, 0), (4, 3)]
    amounts = [("tea", 15), ("cup", 48), ("tea", 21), ("tea", 3), ("cup", 16), (None, None)]
    assert [(row["title"], row["amount"]) for table, row in rows if table == "order_lines"] == amounts
    plain = kpipe("sql", "TEST PIPELINE shop").stdout
    assert "4 offsets of 1 partition: 4 rows of orders, 6 rows of order_lines, 0 dead letters, 0 filtered" in plain
    assert "nothing was written" in plain

    kpipe("sql", """ALTER PIPELINE shop SET OFFSETS '{"0": 2}'; START PIPELINE shop FOREGROUND""")
    found = "SELECT _kafka_offset, title, amount FROM order_lines ORDER BY _kafka_offset, number"
    late = [(3, "tea", 3), (3, "cup", 16), (3, None, None)]
    assert (kpipe.sql("SELECT id FROM orders ORDER BY 1"), kpipe.sql(found)) == ([(3,), (4,)], late)
    proof(kpipe, span=2, rows=2)
    assert "backfill" in kpipe("sql", "BACKFILL PIPELINE shop").stdout
    kpipe("sql", "START PIPELINE shop FOREGROUND")
    early = [(0, "tea", 15), (0, "cup", 48), (1, "tea", 21)]
    assert (kpipe.sql("SELECT id FROM orders ORDER BY 1"), kpipe.sql(found)) == ([(1,), (2,), (3,), (4,)], [*early, *late])
    proof(kpipe, span=4, rows=4)
    kpipe("sql", """ALTER PIPELINE shop SET OFFSETS '{"0": 3}' REREAD; START PIPELINE shop FOREGROUND""")
    assert kpipe.sql("SELECT count(*) FROM orders WHERE id = 4") == [(2,)]
    assert kpipe.sql(found) == [*early, *sorted([*late, *late], key=late.index)]
    again = proof(kpipe, span=5, rows=5)
    assert again["targets"] == {"order_lines": {"rows": 9, "rows_found": 9}}


def test_two_topics_with_two_tables(kpipe: Any, topic: Any, write: Any) -> None:
    a, b = topic(2), topic(1)
    write(a, [order(1, 5, 6)], 0)
    write(a, [order(2, 7)], 1)
    write(b, [order(3, 1, 2), "not json", order(4, "x"), order(5)])
    kpipe.define("shop", "", source={"topic": None, "topics": [a, b]}, **shop(errors=ASIDE))
    *batches, summary = kpipe.json("run", "shop")
    assert (summary["rows"], summary["dead_letters"]) == (4, 2)
    assert summary["positions"] == {f"{a}:0": 1, f"{a}:1": 1, f"{b}:0": 4}
    assert sum(line["targets"]["order_lines"]["rows"] for line in batches) == 5
    assert kpipe.sql("SELECT _kafka_topic, _kafka_partition, id, number, quantity FROM order_lines ORDER BY 3, 4") == [
        (a, 0, 1, 1, 5), (a, 0, 1, 2, 6), (a, 1, 2, 1, 7), (b, 0, 3, 1, 1), (b, 0, 3, 2, 2)
    ]  # fmt: skip
    proof(kpipe, span=6, rows=4, dead_letters=2)
    kpipe.define("shop", "", source={"topic": None, "topics": [a, b]}, **shop(TRIED, errors=ASIDE))
    (done,) = kpipe.json("errors", "shop", "--retry")
    assert (done["answered"], done["failed"]) == (1, 1)
    assert kpipe.sql("SELECT _kafka_topic, _kafka_offset, quantity FROM order_lines WHERE id = 4") == [(b, 2, None)]
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("UPDATE order_lines SET _kafka_topic = $1 WHERE _kafka_topic = $2", [a, b])
    problems = kpipe.json("verify", "shop", status=1)[0]["problems"]
    assert f"table order_lines: partition {b}:0: expected 3 rows, found 0 in the table" in problems


@pytest.fixture
def table(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Callable[[str], list[Any]]]:
    """A pipeline's `into` without its table, and a question to the database."""
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    schema = postgres.schema()

    def ask(query: str) -> list[Any]:
        with psycopg.connect(postgres.address(schema), password=PASSWORD) as connection:
            return connection.execute(query).fetchall()

    credentials = {"password": "{{ env('PG_PASSWORD') }}"}
    return {"type": "postgres", "database": postgres.address(schema), "credentials": credentials}, ask


def test_postgresql_with_a_key_of_the_lines(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    """Orders are appended, their lines have a key: what is written again replaces them."""
    into, ask = table
    name = topic(1)
    write(name, [order(1, 5, 6), order(2, 7), "not json", None])
    fields = shop(errors=ASIDE, into={**into, "table": "orders"})
    fields["also"][0] |= {"key": ["id", "number"], "on_conflict": "replace"}
    kpipe.define("shop", name, **fields)
    first = kpipe.json("run", "shop")
    assert [line["targets"]["order_lines"]["inserted"] for line in first[:-1]] == [3]
    write(name, [order(2, 70, 71), order(3, "x")])
    batch, summary = kpipe.json("run", "shop")
    assert (summary["rows"], summary["dead_letters"]) == (1, 1)
    settled = batch["targets"]["order_lines"]
    assert (settled["rows"], settled["inserted"], settled["updated"]) == (2, 1, 1)
    assert [row[0] for row in ask(ORDERS.replace("ALL", "1"))] == [1, 2, 2]
    assert [row[1:] for row in ask(LINES.replace("ALL", "3, 4"))] == [
        (0, 1, 1, "s0", 5), (0, 1, 2, "s1", 6), (4, 2, 1, "s0", 70), (4, 2, 2, "s1", 71)
    ]  # fmt: skip
    proof(kpipe, span=6, rows=3, dead_letters=2, filtered=1)


def test_what_fails_is_skipped_in_all_tables_and_read_later(kpipe: Any, topic: Any, write: Any) -> None:
    """`errors.batch: skip`: the order that fails for one table is left out by its offset, in both; then read once."""
    name = topic(1)
    write(name, [order(1, 5), order(2, 6, "x"), order(3, 7)])
    policy = {"errors": {"batch": "skip"}, "batch": {"max_retries": 0}}
    kpipe.define("shop", name, **shop(**policy))
    assert kpipe.json("run", "shop")[-1]["positions"] == {"0": 3}
    assert ([row[0] for row in kpipe.sql(ORDERS)], [row[2] for row in kpipe.sql(LINES)]) == ([1, 3], [1, 3])
    assert proof(kpipe, span=2, rows=2)["skipped"] == [f"{name}/0 [1, 2)"]
    kpipe.define("shop", name, **shop(TRIED, **policy))
    kpipe("sql", "BACKFILL PIPELINE shop")
    assert kpipe.json("run", "shop")[-1]["rows"] == 1
    assert [row[2:4] for row in kpipe.sql(LINES)] == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert not proof(kpipe, span=3, rows=3)["skipped"]


def test_rows_first_and_the_ledger_afterwards(kpipe: Any, topic: Any, write: Any) -> None:
    """`delivery: at_least_once`: a stop between rows and ledger doubles the batch, in both tables, and verify counts it so."""
    name = topic(1)
    write(name, [order(1, 5, 6), order(2, 7)])
    kpipe.define("shop", name, **shop(delivery="at_least_once", batch={"max_retries": 0}))
    failpoints.arm(failpoints.Fault("commit.before:3:raise"))  # begin, the rows, the ledger
    try:
        kpipe("run", "shop", status=1)
    finally:
        failpoints.arm(None)
    assert [row[0] for row in kpipe.sql(ORDERS)] == [1, 2]
    assert proof(kpipe)["repeated"] == [f"{name}/0 [0, 2)"]
    kpipe("run", "shop")
    assert [row[0] for row in kpipe.sql(ORDERS)] == [1, 1, 2, 2]
    assert [row[2:4] for row in kpipe.sql(LINES)] == [(1, 1), (1, 1), (1, 2), (1, 2), (2, 1), (2, 1)]
    assert proof(kpipe)["repeated"] == [f"{name}/0 [0, 2)"]
    assert proof(kpipe)["targets"] == {"order_lines": {"rows": 6, "rows_found": 6}}
