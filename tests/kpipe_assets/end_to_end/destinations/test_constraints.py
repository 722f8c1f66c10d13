"""A table with constraints of its own: records that it refuses are set aside one by one, and the others are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.servers import mariadb
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_TYPES = {
    "duckdb": ("BIGINT", "TIMESTAMP WITH TIME ZONE"), "postgres": ("BIGINT", "TIMESTAMPTZ"), "mysql": ("BIGINT", "DATETIME(6)"),
}  # fmt: skip
_TABLE = (
    "CREATE TABLE orders (id {0}{key}, n {0} CHECK (n > 0), note VARCHAR(9) NOT NULL, CHECK (id <> 7 OR n < 100),"
    " _kafka_partition INTEGER, _kafka_offset {0}, _kafka_timestamp {1})"
)
Ask = Callable[[str], list[Any]]


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, kpipe: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any], Ask]:
    """A pipeline's `into`, and a statement to the database."""
    if request.param == "duckdb":
        return "duckdb", {"table": "orders"}, lambda text: kpipe.sql(text) if text.startswith("SELECT") else kpipe("sql", text)
    if request.param == "mysql":
        server: mariadb.MariaServer = request.getfixturevalue("mariadb")
        database = server.database()
        monkeypatch.setenv("MY_PASSWORD", mariadb.PASSWORD)
        secrets = {"password": "{{ env('MY_PASSWORD') }}"}
        into = {"type": "mysql", "database": server.address(database), "credentials": secrets, "table": "orders"}
        return "mysql", into, lambda text: list(server.sql(text, database=database))
    postgres: PostgresServer = request.getfixturevalue("postgres")
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    address = postgres.address(postgres.schema())

    def ask(text: str) -> list[Any]:
        with psycopg.connect(address, password=PASSWORD, autocommit=True) as connection:
            done = connection.execute(text)
            return done.fetchall() if done.description else []

    credentials = {"password": "{{ env('PG_PASSWORD') }}"}
    return "postgres", {"type": "postgres", "database": address, "credentials": credentials, "table": "orders"}, ask


@pytest.mark.crossed
@pytest.mark.parametrize("keyed", [False, True], ids=["", "keyed"])
def test_records_that_the_table_refuses(kpipe: Any, topic: Any, write: Any, place: Any, keyed: bool) -> None:
    kind, into, ask = place
    ask(_TABLE.format(*_TYPES[kind], key=" PRIMARY KEY" if keyed else ""))
    into = {**into, "key": ["id"], "on_conflict": "replace"} if keyed else into
    name = topic(1)
    records = [{"id": at, "n": 5, "note": "x"} for at in range(12)]
    records[3]["n"], records[7]["n"], records[9]["note"] = 0, 200, None
    write(name, [json.dumps(record) for record in records])
    kpipe.define("orders", name, into=into)
    failed = kpipe("run", "orders", status=1)
    assert "SchemaConflict" in failed.stderr or "constraint" in failed.stderr.lower()
    assert f"{name}/0 offset 3: rejected by the table: " in failed.stderr and "2 more records" in failed.stderr
    assert "errors.constraint: dead_letter" in failed.stderr
    assert ask("SELECT count(*) FROM orders") == [(0,)]
    kpipe.define("orders", name, into=into, errors={"constraint": "dead_letter"})
    done = kpipe.json("run", "orders")[-1]
    assert (done["rows"], done["dead_letters"]) == (9, 3)
    assert ask("SELECT count(*), min(n) FROM orders") == [(9, 5)]
    letters = {row["offset"]: row for row in kpipe.json("errors", "orders") if row["dead_letter"]}
    assert set(letters) == {3, 7, 9} and {row["stage"] for row in letters.values()} == {"constraint"}
    assert "CHECK" in letters[3]["error_message"] and "NULL" in letters[9]["error_message"]
    assert json.loads(letters[7]["load_data_line"])["id"] == 7
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] and proof["span"] == 12
    # The stream goes on, and `skip` counts.
    write(name, ['{"id": 20, "n": -1, "note": "x"}', '{"id": 21, "n": 1, "note": "x"}'])
    kpipe.define("orders", name, into=into, errors={"constraint": "skip"})
    done = kpipe.json("run", "orders")[-1]
    assert (done["rows"], done["dead_letters"], done["filtered"]) == (1, 0, 1)
    assert kpipe.json("verify", "orders")[0]["ok"]
