"""Programs with `stdin: arrow` beside statements, edits, other deliveries, one offset a batch, and database servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from kpipe.definition.yaml_codec import from_yaml
from kpipe.sql.renderer import to_sql
from tests.kpipe_assets.end_to_end.test_arrow_programs import LATEST, SEVERAL, program, proven
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.mariadb import ROLE, MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.spark

#: The JSON of each record as typed columns.
PARSED = """
schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
def batches():
    for batch in reader:
        orders = [json.loads(value) for value in batch["value"].to_pylist()]
        yield [[order["id"] for order in orders], [order["name"] for order in orders]]
write(schema, batches())
"""


def orders(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n, "name": f"name {n}"}) for n in range(start, end)]


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_one_offset_a_batch_in_every_delivery(kpipe: Any, topic: Any, write: Any, tmp_path: Path, delivery: str) -> None:
    name = topic(2)
    write(name, orders(0, 4), 0)
    write(name, orders(4, 6), 1)
    kpipe.define(
        "few", name, delivery=delivery, batch={"max_offsets_per_partition": 1},
        transform={"program": program(tmp_path, SEVERAL), "stdin": "arrow", "mode": "flatmap"},
    )  # fmt: skip
    summary = kpipe.json("run", "few")[-1]
    assert (summary["messages"], summary["rows"], summary["filtered"]) == (6, 6, 2)
    assert kpipe.sql("SELECT id, n FROM few ORDER BY ALL") == [(1, 0), (2, 0), (2, 1), (4, 0), (5, 0), (5, 1)]
    proven(kpipe, "few")


def test_a_statement_is_tried_created_shown_and_replaced(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, orders(0, 3))
    create = (
        f"CREATE PIPELINE shop AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'"
        f" WITH TRANSFORM ('{program(tmp_path, PARSED)}') STDIN ARROW MODE MAP INTO TABLE shop"
    )
    seen = kpipe(
        "sql", f"{create.replace('CREATE PIPELINE shop', 'INFER PIPELINE')}; {create}; TEST PIPELINE shop LIMIT 2;"
    ).stdout
    assert '"id" BIGINT' in seen and "name 1" in seen and "2 rows" in seen
    file = kpipe.home / "pipelines" / "shop.yaml"
    before = file.read_text()
    statement = to_sql(from_yaml(before)).rstrip().rstrip(";")
    assert "STDIN ARROW" in statement
    kpipe("sql", statement.replace("CREATE PIPELINE", "CREATE OR REPLACE PIPELINE", 1) + ";")
    assert file.read_text() == before
    assert kpipe.json("run", "shop")[-1]["rows"] == 3
    proven(kpipe, "shop")


def test_a_pipeline_of_json_goes_on_with_a_program(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, orders(0, 3))
    kpipe.define("edited", name)
    assert kpipe.json("run", "edited")[-1]["rows"] == 3
    write(name, orders(3, 5))
    kpipe.define("edited", name, transform={"program": program(tmp_path, PARSED), "stdin": "arrow"})
    assert kpipe.json("run", "edited")[-1]["rows"] == 2
    assert kpipe.sql("SELECT id, name, _kafka_offset FROM edited ORDER BY id") == [(n, f"name {n}", n) for n in range(5)]
    proven(kpipe, "edited")


@pytest.fixture(params=["postgres", "mariadb"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Callable[[str], list[Any]]]:
    """A pipeline's `into` without its table, and a question to the database."""
    server = request.getfixturevalue(request.param)
    monkeypatch.setenv("SERVER_PASSWORD", PASSWORD if request.param == "postgres" else MARIADB_PASSWORD)
    credentials = {"password": "{{ env('SERVER_PASSWORD') }}"}
    if isinstance(server, PostgresServer):
        address = server.address(server.schema())

        def postgres(query: str) -> list[Any]:
            with psycopg.connect(address, password=PASSWORD) as connection:
                return connection.execute(query).fetchall()

        return {"type": "postgres", "database": address, "credentials": credentials}, postgres
    assert isinstance(server, MariaServer)
    database = server.database()

    def mariadb(query: str) -> list[Any]:
        login = {"host": "127.0.0.1", "port": server.port, "user": ROLE, "password": MARIADB_PASSWORD, "database": database}
        with closing(pymysql.connect(**login)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    return {"type": "mysql", "database": server.address(database), "credentials": credentials}, mariadb


def test_a_server_stores_the_latest_row_of_each_key(kpipe: Any, topic: Any, write: Any, table: Any, tmp_path: Path) -> None:
    into, ask = table
    name = topic(1)
    write(name, [json.dumps({"id": n % 5, "name": f"name {n}"}) for n in range(40)])
    kpipe.define(
        "latest", name, transform={"program": program(tmp_path, LATEST), "stdin": "arrow", "mode": "filter"},
        columns={"k": "BIGINT", "name": "VARCHAR"}, batch={"max_offsets_per_partition": 7},
        into={**into, "table": "latest", "key": ["k"], "on_conflict": "replace"},
    )  # fmt: skip
    summary = kpipe.json("run", "latest")[-1]
    assert (summary["messages"], summary["filtered"]) == (40, 20)
    assert ask("SELECT k, name FROM latest ORDER BY k") == [(k, f"name {n}") for k, n in enumerate((30, 36, 32, 38, 34))]
    proven(kpipe, "latest")
