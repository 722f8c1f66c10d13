"""TRUNCATE, DELETE and RESET PIPELINE as a person types them: the documented reset of SingleStore, and the proof behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kpipe.errors import BrokerUnreachable
from kpipe_assets.runs.run_locks import at_work
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements import clearing
from resources.destinations.sql.destination import SqlDestination
from resources.home import Home
from tests.commandline import Kpipe
from tests.servers.mariadb import PASSWORD as MARIA
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer

SMALL = "CREATE PIPELINE orders AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE orders FORMAT JSON"


def sql(kpipe: Kpipe, text: str, status: int = 0) -> str:
    done = kpipe("sql", text, status=status)
    return done.stdout if status == 0 else done.stderr


def verified(kpipe: Kpipe, name: str = "orders") -> dict[str, Any]:
    (found,) = kpipe.json("verify", name)
    assert found["ok"], found["problems"]
    return found


def numbers(kpipe: Kpipe, table: str = "orders") -> list[int]:
    return [row["id"] for row in kpipe.json("sql", f"SELECT id FROM {table} ORDER BY id")]


def on(kpipe: Kpipe) -> set[str]:
    with SensorStates(Home(kpipe.home)) as sensor_states:
        return set(sensor_states.on())


def load(kpipe: Kpipe, name: str, topic: str, rest: str = "INTO TABLE orders FORMAT JSON") -> None:
    sql(kpipe, f"CREATE PIPELINE {name} AS LOAD DATA KAFKA '{kpipe.brokers}/{topic}' {rest}; START PIPELINE {name} FOREGROUND")


def records(ids: range) -> list[str]:
    return [json.dumps({"id": at}) for at in ids]


@pytest.mark.parametrize("clear", ["DELETE FROM orders", "TRUNCATE TABLE `Orders`"])
def test_the_documented_reset_statement_by_statement(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], clear: str
) -> None:
    name = topic()
    write(name, [*records(range(4)), "no object"])
    load(kpipe, "orders", name)
    assert verified(kpipe)["rows"] == 4
    sql(kpipe, "START PIPELINE orders; STOP PIPELINE orders")
    said = sql(kpipe, clear)
    assert f"orders: 4 rows deleted; pipeline orders: skipped now: {name}/0 [0, 5); ALTER PIPELINE orders" in said
    cleared = verified(kpipe)
    assert (cleared["rows"], cleared["dead_letters"], cleared["skipped"]) == (0, 0, [f"{name}/0 [0, 5)"])
    assert numbers(kpipe) == []
    assert "rewind: " in sql(kpipe, "ALTER PIPELINE orders SET OFFSETS EARLIEST")
    write(name, records(range(4, 6)))
    sql(kpipe, "START PIPELINE orders FOREGROUND")
    again = verified(kpipe)
    assert (again["span"], again["rows"], again["dead_letters"], again["skipped"]) == (7, 6, 1, [])
    assert numbers(kpipe) == list(range(6))
    kinds = [row["kind"] for row in kpipe.json("sql", "SELECT kind FROM kpipe_commits ORDER BY seq")]
    assert kinds == ["begin", "batch", "clear", "rewind", "batch"]
    assert "1 error cleared;" in sql(kpipe, "CLEAR PIPELINE ERRORS"), "what was a dead letter before"


def test_without_going_back_only_what_is_new_comes(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    """As in SingleStore; and a backfill brings the others, once."""
    name = topic()
    write(name, records(range(3)))
    load(kpipe, "orders", name)
    sql(kpipe, "TRUNCATE TABLE orders")
    write(name, records(range(3, 5)))
    sql(kpipe, "START PIPELINE orders FOREGROUND")
    assert numbers(kpipe) == [3, 4] and verified(kpipe)["rows"] == 2
    sql(kpipe, "BACKFILL PIPELINE orders; START PIPELINE orders FOREGROUND")
    assert numbers(kpipe) == list(range(5)) and verified(kpipe)["rows"] == 5


def test_one_statement_does_all_of_it(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = topic()
    write(name, records(range(4)))
    load(kpipe, "orders", name)
    sql(kpipe, f"CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE orders FORMAT JSON"
        " WHERE id > 1; START PIPELINE orders")  # fmt: skip
    said = sql(kpipe, "RESET PIPELINE orders")
    assert "table orders: 4 rows deleted; pipeline orders reads from the earliest offsets; pipeline orders started" in said
    assert verified(kpipe)["span"] == 0
    sql(kpipe, "STOP PIPELINE orders; START PIPELINE orders FOREGROUND")
    found = verified(kpipe)
    assert numbers(kpipe) == [2, 3] and (found["rows"], found["filtered"]) == (2, 2)
    assert "0 rows deleted" not in sql(kpipe, "RESET PIPELINE orders")
    assert "is on" not in sql(kpipe, "RESET PIPELINE orders"), "it was stopped before, and stays so"


def test_a_second_pipeline_of_the_table(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    one, two = topic(), topic()
    write(one, records(range(3)))
    write(two, records(range(10, 12)))
    load(kpipe, "orders", one)
    load(kpipe, "more", two)
    sql(kpipe, "START PIPELINE orders")
    refused = sql(kpipe, "RESET PIPELINE orders", 2)
    assert on(kpipe) == {"orders"}, "it was not stopped"
    sql(kpipe, "STOP PIPELINE orders")
    assert "table orders also contains rows of pipeline more -> RESET PIPELINE orders, more reads the rows of all" in refused
    assert len(numbers(kpipe)) == 5 and verified(kpipe)["rows"] + verified(kpipe, "more")["rows"] == 5
    said = sql(kpipe, "TRUNCATE TABLE orders")
    assert "5 rows deleted" in said and "RESET PIPELINE more, orders reads them again" in said
    for name in ("orders", "more"):
        assert verified(kpipe, name)["rows"] == 0 and len(verified(kpipe, name)["skipped"]) == 1
    sql(kpipe, "ALTER PIPELINE orders SET OFFSETS EARLIEST; START PIPELINE orders FOREGROUND")
    assert numbers(kpipe) == [0, 1, 2]
    assert verified(kpipe)["rows"] == 3 and verified(kpipe, "more")["rows"] == 0
    sql(kpipe, "RESET PIPELINE orders, more; START PIPELINE more FOREGROUND; START PIPELINE orders FOREGROUND")
    assert len(numbers(kpipe)) == 5 and verified(kpipe)["rows"] == 3 and verified(kpipe, "more")["rows"] == 2


def test_a_reset_that_fails_starts_again_or_says_what_is_left(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    write(name, records(range(3)))
    load(kpipe, "orders", name)
    sql(kpipe, "START PIPELINE orders")

    def away(*_: Any) -> Any:
        raise BrokerUnreachable("no broker answered", "start the brokers")

    with monkeypatch.context() as patch:
        patch.setattr(clearing, "decide", away)
        failed = sql(kpipe, "RESET PIPELINE orders", 1)
    assert "no broker answered; table orders was cleared; pipeline orders is stopped -> start the brokers" in failed
    assert ", then repeat RESET PIPELINE orders, then START PIPELINE orders" in failed
    assert numbers(kpipe) == [] and on(kpipe) == set()
    sql(kpipe, "RESET PIPELINE orders; START PIPELINE orders FOREGROUND; START PIPELINE orders")
    with monkeypatch.context() as patch:
        patch.setattr(SqlDestination, "clear", away)
        failed = sql(kpipe, "RESET PIPELINE orders", 1)
    assert "no broker answered; nothing was cleared; pipeline orders is started again -> start the brokers" in failed
    assert numbers(kpipe) == [0, 1, 2] and on(kpipe) == {"orders"} and verified(kpipe)["rows"] == 3


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A pipeline's `into` without its table."""
    if request.param == "duckdb":
        return {}
    monkeypatch.setenv("SERVER_PASSWORD", PASSWORD if request.param == "postgres" else MARIA)
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        database = postgres.address(postgres.schema())
    else:
        mariadb: MariaServer = request.getfixturevalue("mariadb")
        database = mariadb.address(mariadb.database())
    return {"type": request.param, "database": database, "credentials": {"password": "{{ env('SERVER_PASSWORD') }}"}}


def test_several_tables_and_several_rows_of_a_record(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], place: dict[str, Any]
) -> None:
    """RESET clears all tables of the records together; one of them alone cannot be loaded again, so TRUNCATE is refused."""
    name = topic()
    write(name, ['{"id": 1, "parts": [1, 2, 3]}', '{"id": 2, "parts": []}', "no object"])
    parts, columns = "SELECT id, p FROM records, UNNEST(parts) AS p", {"id": "BIGINT", "parts": "BIGINT[]"}
    if place.get("type") == "mysql":  # one table there
        kpipe.define("orders", name, into={**place, "table": "orders"}, select=parts, columns=columns)
        rows = 3
    else:
        also = [{"table": "parts", "select": parts}]
        kpipe.define("orders", name, into={**place, "table": "orders"}, also=also, columns=columns)
        rows = 2
    kpipe.json("run", "orders")
    if place.get("type") != "mysql":
        for table, other in (("orders", "parts"), ("parts", "orders")):
            said = sql(kpipe, f"TRUNCATE TABLE {table}", 2)
            assert f"pipeline orders has written table {other} from the same records: they cannot be read again for" in said
            assert "-> RESET PIPELINE orders clears all tables that its definition names, and reads them again" in said
    kept = verified(kpipe)
    assert (kept["span"], kept["rows"], kept["dead_letters"]) == (3, rows, 1)
    assert f"table orders: {rows} rows deleted" in sql(kpipe, "RESET PIPELINE orders")
    assert verified(kpipe)["span"] == 0
    kpipe.json("run", "orders")
    again = verified(kpipe)
    assert {key: again[key] for key in ("span", "rows", "dead_letters")} == {
        key: kept[key] for key in ("span", "rows", "dead_letters")
    }
    assert again.get("targets") == kept.get("targets")


def test_a_table_that_the_definition_no_longer_names(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    """Its rows are known to the ledger; they are read again into the table that the definition names now."""
    name = topic()
    write(name, records(range(3)))
    load(kpipe, "orders", name)
    sql(kpipe, f"CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE later FORMAT JSON")
    write(name, records(range(3, 5)))
    sql(kpipe, "START PIPELINE orders FOREGROUND")
    assert (numbers(kpipe), numbers(kpipe, "later")) == ([0, 1, 2], [3, 4])
    said = sql(kpipe, "TRUNCATE TABLE orders")
    assert f"table orders: 3 rows deleted; pipeline orders: skipped now: {name}/0 [0, 3)" in said
    assert "; BACKFILL PIPELINE orders reads them again, into table later" in said
    assert verified(kpipe)["rows"] == 2
    sql(kpipe, "BACKFILL PIPELINE orders; START PIPELINE orders FOREGROUND")
    assert (numbers(kpipe), numbers(kpipe, "later")) == ([], list(range(5)))
    assert verified(kpipe)["span"] == 5


def test_a_pipeline_that_delivers_at_least_once_is_not_cleared(offline: Kpipe) -> None:
    offline.define("orders", "orders", into={"table": "orders"}, delivery="at_least_once")
    for text in ("TRUNCATE TABLE orders", "RESET PIPELINE orders"):
        assert "pipeline orders: delivery: at_least_once does not support this" in sql(offline, text, 2)


def test_a_table_with_deletes_is_loaded_again_in_order(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """A backfill is refused there; from the earliest offset on everything is read in order."""
    name = topic()
    for value in ('{"id": 1}', '{"id": 2}'):
        write(name, [value], 0, json.dumps({"id": json.loads(value)["id"]}).encode())
    write(name, [None], 0, b'{"id": 1}')
    options = json.dumps({"key_format": {"type": "json"}, "into": {"on_null": "delete"}})
    rest = f"REPLACE OPTIONS '{options}' INTO TABLE orders KEY (id) FORMAT JSON"
    load(kpipe, "orders", name, rest)
    assert numbers(kpipe) == [2]
    before = verified(kpipe)
    sql(kpipe, "TRUNCATE TABLE orders; ALTER PIPELINE orders SET OFFSETS EARLIEST")
    assert verified(kpipe)["rows"] == 0
    sql(kpipe, "START PIPELINE orders FOREGROUND")
    assert numbers(kpipe) == [2]
    assert {key: verified(kpipe)[key] for key in ("span", "rows", "deletes")} == {
        key: before[key] for key in ("span", "rows", "deletes")
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DELETE FROM orders WHERE id = 1", "could not distinguish deleted rows from lost ones -> filter them with WHERE in"),
        ("DELETE FROM shop.orders", "unexpected database name: a home has one database"),
        ("DELETE FROM orders USING more", "the end, found USING"),
        (
            "TRUNCATE TABLE kpipe_batches",
            "table kpipe_batches: no pipeline of this home has written it -> use a client of the database",
        ),
        ("RESET PIPELINE nothing", "no pipeline 'nothing' in"),
        (
            "RESET PIPELINE far",
            "this type of destination cannot clear rows and record it in the ledger -> load into another table",
        ),
        ("TRUNCATE TABLE far", "this type of destination cannot clear rows"),
        ("TRUNCATE TABLE both", "table both is in several destinations: "),
    ],
)
def test_what_cannot_be_cleared_is_refused_in_one_sentence(offline: Kpipe, text: str, words: str) -> None:
    load = "AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE"
    sql(offline, f"{SMALL}; CREATE PIPELINE far {load} far IN delta FORMAT JSON; CREATE PIPELINE one {load} both FORMAT JSON;"
        f" CREATE PIPELINE two {load} both IN duckdb 'other.duckdb' FORMAT JSON")  # fmt: skip
    assert words in sql(offline, text, 2)


def test_an_invalid_definition_keeps_only_its_own_table(offline: Kpipe) -> None:
    sql(offline, SMALL)
    broken = Home(offline.home).pipelines / "broken.yaml"
    broken.write_text("type: kpipe_assets.KafkaPipeline\nattributes: {name: broken, nonsense: 1}\n")
    assert "table orders: 0 rows deleted" in sql(offline, "TRUNCATE TABLE orders")
    assert "broken.yaml:2: unknown field nonsense" in sql(offline, "TRUNCATE TABLE others", 2)


def test_a_pipeline_at_work_keeps_its_table(offline: Kpipe) -> None:
    sql(offline, SMALL)
    assert "table orders: 0 rows deleted" in sql(offline, "TRUNCATE TABLE orders")
    with at_work(Home(offline.home).make(), "orders"):
        assert "pipeline orders is running, and writes table orders -> STOP PIPELINE orders" in sql(
            offline, "DELETE FROM orders", 2
        )
    assert "no broker" in sql(offline, "RESET PIPELINE orders", 1), "said before anything is changed"
