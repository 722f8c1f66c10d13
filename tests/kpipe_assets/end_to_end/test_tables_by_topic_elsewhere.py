"""A table for each topic in lakes, PostgreSQL and MySQL: real Kafka and Spark, and the command line."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import psycopg
import pymysql
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from kpipe_assets.component import catalog
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from tests.kpipe_assets.end_to_end.topic_assets import check, materialize, observe
from tests.kpipe_assets.end_to_end.topics import found_by, records
from tests.servers import mariadb, postgres
from tests.survival.small import killed

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def table(topic: str) -> str:
    return "raw_" + topic.replace(".", "_").replace("-", "_")


def proven(kpipe: Any, **rows: int) -> dict[str, Any]:
    (found,) = kpipe.json("verify", "web")
    assert found["ok"] and not found["problems"], found
    assert found["targets"] == {name: {"rows": n, "rows_found": n} for name, n in rows.items()}
    return dict(found)


def test_iceberg_killed_between_two_tables(kpipe: Any, family: Any, write: Any, kafka_broker: LocalBroker) -> None:
    stem, make = family
    a, b = make("a", 2), make("b")
    write(a, records(0, 5, shade="red"), 0)
    write(a, records(5, 8), 1)
    write(b, ["not json", *[json.dumps({"price": n / 2}) for n in range(7)]])
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"type": "iceberg", "table": "raw_{topic}"})
    # The first time both topics begin; the second time the first table has its rows.
    killed(kpipe.home, "web", "commit.next_table:2")
    lake = SqlCatalog("kpipe", uri=f"sqlite:///{kpipe.home}/data/iceberg/catalog.db")

    def found(topic: str) -> Any:
        return lake.load_table(f"default.{table(topic)}").scan().to_arrow()

    assert (found(a).num_rows, found(b).num_rows) == (8, 0)
    assert proven(kpipe, **{table(a): 8})["span"] == 8
    assert kpipe.json("run", "web")[-1]["rows"] == 7
    assert sorted(found(b)["price"].to_pylist()) == [n / 2 for n in range(7)] and "shade" not in found(b).column_names
    assert proven(kpipe, **{table(a): 8, table(b): 7})["dead_letters"] == 1
    assert [(row["topic"], row["offset"]) for row in kpipe.json("errors", "web")] == [(b, 0)]
    # A member that is new widens its topic's table; a topic that appears gets a table.
    c = make("c-d")
    write(b, [json.dumps({"price": 1, "extra": {"deep": [1]}})])
    write(c, records(0, 4))
    assert kpipe.json("run", "web")[-1]["rows"] == 5
    assert "extra" in found(b).column_names and "extra" not in found(a).column_names and found(c).num_rows == 4
    state = kpipe.json("as-of", "web", "--offsets", f"{a}:0=5,{a}:1=3,{b}:0=8")[0]
    assert state["exact"] and {item["table"] for item in state["tables"]} == {table(a), table(b), table(c)}
    snapshots = {item["table"]: item["snapshot"] for item in state["tables"]}
    assert snapshots[table(c)] is None
    chosen = lake.load_table(f"default.{table(b)}").scan(snapshot_id=int(snapshots[table(b)])).to_arrow()
    assert chosen.num_rows == 7
    assert f"table {table(b)}" in kpipe("trace", "web", f"{b}:0:1").stdout
    # A deleted topic stops the run; retired, its table stays and is proven.
    kafka_broker.delete_topic(c)
    assert f"topic {c} no longer exists" in kpipe("run", "web", status=3).stderr
    assert "retire" in kpipe("sql", "-e", "ALTER PIPELINE web DROP ORPHAN PARTITIONS").stdout
    assert kpipe.json("run", "web")[-1]["rows"] == 0
    proven(kpipe, **{table(a): 8, table(b): 8, table(c): 4})
    lake.load_table(f"default.{table(c)}").delete("id == 2")
    problems = kpipe.json("verify", "web", status=1)[0]["problems"]
    assert {text.split(": ")[0] for text in problems} == {f"table {table(c)}"}


def test_delta_with_keys_and_its_assets(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 10))
    write(b, ["no", *records(5, 15, more=1)])
    into = {"type": "delta", "table": "raw_{topic}", "on_conflict": "replace", "on_null": "delete", "key": ["id"]}
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into=into)
    home = Home.at(kpipe.home)
    with dg.DagsterInstance.ephemeral() as instance:
        observe(home, instance)
        specs = {spec.key.to_user_string() for spec in catalog(home).resolve_all_asset_specs()}
        assert specs == {table(a), table(b), "pipelines/web", f"kafka/{a}", f"kafka/{b}"}
        materialize(home, instance, a, b)
        write(a, records(0, 2, text="new"))
        write(b, records(14, 16))
        last = kpipe.json("run", "web")[-1]
        assert (last["inserted"], last["updated"]) == (1, 3)
        observe(home, instance)
        for name, rows in ((a, 10), (b, 11)):
            events = instance.fetch_materializations(dg.AssetKey(table(name)), limit=10).records
            assert len(events) == 2 and events[0].asset_materialization.metadata["dagster/row_count"].value == rows
        checked = check(home, instance)
        failed = {(item.asset_key.to_user_string(), item.check_name) for item in _evaluations(checked) if not item.passed}
        assert failed == {("pipelines/web", "dead_letters")}
    assert DeltaTable(str(kpipe.home / "data" / "delta" / table(a))).version() >= 2
    proven(kpipe, **{table(a): 10, table(b): 11})


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_server(
    kpipe: Any, family: Any, write: Any, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem, make = family
    a, b = make("a"), make("B-c")
    into, ask = _server(kind, request, monkeypatch)
    write(a, records(0, 6, shade="red"))
    write(b, ["not json", *[json.dumps({"price": n / 2}) for n in range(4)]])
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={**into, "table": "raw_{topic}"})
    password = {"PG_PASSWORD": postgres.PASSWORD, "MY_PASSWORD": mariadb.PASSWORD}
    killed(kpipe.home, "web", "commit.before:2", **password)
    assert kpipe.json("run", "web")[-1]["rows"] == 10
    quoted = [f'"{table(name)}"' if kind == "postgres" else f"`{table(name)}`" for name in (a, b)]
    assert [int(ask(f"SELECT count(*) FROM {name}")[0][0]) for name in quoted] == [6, 4]
    assert float(ask(f"SELECT sum(price) FROM {quoted[1]}")[0][0]) == 3.0
    proven(kpipe, **{table(a): 6, table(b): 4})
    c = make("c")
    write(a, records(6, 8, more=1))
    write(c, records(0, 3))
    assert kpipe.json("run", "web")[-1]["rows"] == 5
    assert int(ask(f"SELECT sum(more) FROM {quoted[0]}")[0][0]) == 2
    proven(kpipe, **{table(a): 8, table(b): 4, table(c): 3})
    ask(f"DELETE FROM {quoted[1]}")
    problems = kpipe.json("verify", "web", status=1)[0]["problems"]
    assert {text.split(": ")[0] for text in problems} == {f"table {table(b)}"}


def _server(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    """A pipeline's `into` without its table, and a way to run statements."""
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        monkeypatch.setenv("PG_PASSWORD", postgres.PASSWORD)
        address = server.address(server.schema())

        def ask(query: str) -> list[Any]:
            with psycopg.connect(address, password=postgres.PASSWORD, autocommit=True) as connection:
                found = connection.execute(query.encode())
                return found.fetchall() if found.description else []

        credentials = {"password": "{{ env('PG_PASSWORD') }}"}
        return {"type": "postgres", "database": address, "credentials": credentials}, ask
    server = request.getfixturevalue("mariadb")
    monkeypatch.setenv("MY_PASSWORD", mariadb.PASSWORD)
    database = server.database()

    def asked(query: str) -> list[Any]:
        told = {"host": "127.0.0.1", "port": server.port, "user": mariadb.ROLE, "password": mariadb.PASSWORD}
        with pymysql.connect(**told, database=database, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    credentials = {"password": "{{ env('MY_PASSWORD') }}"}
    return {"type": "mysql", "database": server.address(database), "credentials": credentials}, asked


def _evaluations(checked: Any) -> list[Any]:
    return list(checked.get_asset_check_evaluations())
