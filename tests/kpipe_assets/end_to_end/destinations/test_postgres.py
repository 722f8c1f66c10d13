"""Kafka, Spark and PostgreSQL together: the command line, and a run of Dagster. All of them are real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import real
from resources.home import Home
from tests.commandline import contents
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.survival.small import killed


def records(start: int, end: int, **more: Any) -> list[str]:
    return [json.dumps({"id": n, "text": f"tweet {n} 🎉", "user": {"name": "n", "tags": [n]}, **more}) for n in range(start, end)]


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


def test_the_command_line(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    into, ask = table
    name = topic(3)
    for partition in range(3):
        write(name, records(partition * 1000, partition * 1000 + 200), partition)
    write(name, ["not json", None], 0)
    kpipe.define("plain", name, into={**into, "table": "plain"}, batch={"max_offsets_per_partition": 150})
    assert kpipe.json("run", "plain")[-1]["rows"] == 600
    write(name, records(9000, 9050, brand_new=1.5), 1)
    assert kpipe.json("run", "plain")[-1]["rows"] == 50
    assert kpipe.json("run", "plain")[-1]["batches"] == 0
    assert ask("SELECT count(*), count(DISTINCT id), max((\"user\"->'tags'->>0)::int), sum(brand_new) FROM plain") == [
        (650, 650, 9049, 75.0)
    ]
    assert ask("SELECT id, _kafka_partition FROM plain WHERE _kafka_offset = 7 ORDER BY 1") == [(7, 0), (1007, 1), (2007, 2)]

    proof = kpipe.json("verify", "plain")[0]
    assert proof["ok"] and (proof["span"], proof["rows"], proof["dead_letters"], proof["filtered"]) == (652, 650, 1, 1)
    state = kpipe.json("status", "plain")[0]
    assert (state["state"], state["lag"], state["last_error"]) == ("stopped", 0, None)
    error = kpipe.json("errors", "plain")[0]
    assert (error["load_data_line"], error["offset"]) == ("not json", 200)
    assert len(kpipe.json("batches", "plain")) == 3
    assert "plain" in kpipe("batches", "plain").stdout + kpipe("status", "plain").stdout
    ask_rows = ask("SELECT config_json FROM kpipe_pipelines")
    assert PASSWORD not in str(ask_rows) and '"***"' in str(ask_rows)
    for path, data in contents(kpipe.home):
        assert PASSWORD.encode() not in data, path
    # Rows that somebody else takes away are noticed.
    with psycopg.connect(into["database"], password=PASSWORD) as connection:
        connection.execute("DELETE FROM plain WHERE id = 7")
    assert any("found 199 in the table" in problem for problem in kpipe.json("verify", "plain", status=1)[0]["problems"])


@pytest.mark.parametrize(("delivery", "rows", "said"), [("at_least_once", 60, "repeated"), ("at_most_once", 20, "lost")])
def test_other_deliveries_show_when_they_are_killed(
    kpipe: Any, topic: Any, write: Any, table: Any, delivery: str, rows: int, said: str
) -> None:
    """Killed before the second commit of the first batch: the ledger's, or the rows'."""
    into, ask = table
    name = topic(1)
    write(name, records(0, 40))
    kpipe.define("plain", name, into={**into, "table": "plain"}, delivery=delivery, batch={"max_offsets_per_partition": 20})
    killed(kpipe.home, "plain", "commit.before:3", PG_PASSWORD=PASSWORD)
    assert kpipe.json("run", "plain")[-1]["positions"] == {"0": 40}
    assert ask("SELECT count(*), count(DISTINCT id) FROM plain") == [(rows, min(rows, 40))]
    proof = kpipe.json("verify", "plain")[0]
    assert proof["ok"] and proof[said] == [f"{name}/0 [0, 20)"]
    assert "[0, 20)" in kpipe("verify", "plain").stderr


def test_dead_letters_become_rows_by_a_statement(
    kpipe: Any, topic: Any, write: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, ask = table
    name = topic(1)
    write(name, ['{"id": 1, "at": "24.12.2026"}', '{"id": 2, "at": "2026-12-25"}', "{broken"])
    fields = {"into": {**into, "table": "days"}, "errors": {"constraint": "dead_letter"}}
    kpipe.define("days", name, set={"day": 'CAST("at" AS DATE)'}, **fields)
    assert kpipe.json("run", "days")[-1]["dead_letters"] == 2
    kpipe.define(
        "days", name, set={"day": 'CAST(coalesce(try_strptime("at", \'%d.%m.%Y\'), CAST("at" AS TIMESTAMP)) AS DATE)'}, **fields
    )
    said = kpipe("sql", "REPLAY PIPELINE days").stdout
    assert "2 dead letters retried: 1 gave 1 row, 0 filtered, 1 failed again" in said
    assert ask("SELECT id, day::text, _kafka_offset FROM days ORDER BY 1") == [(1, "2026-12-24", 0), (2, "2026-12-25", 1)]
    assert ask("SELECT kind FROM kpipe_commits ORDER BY seq DESC LIMIT 1") == [("replay",)]
    assert kpipe.json("verify", "days")[0]["ok"]


def test_what_postgresql_cannot_hold_fails_or_is_set_aside(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    into, ask = table
    name = topic(1)
    write(name, records(0, 30))
    write(name, ['{"id": 30, "text": "a\\u0000b"}', '{"id": 31, "user": {"name": "\\u0000", "tags": []}}'])
    write(name, ['{"id": 32, "text": "\\\\u0000", "user": {"name": "a", "tags": [1]}}'])
    kpipe.define("plain", name, into={**into, "table": "plain"})
    failed = kpipe("run", "plain", status=1).stderr
    assert "partition 0, offset 30 contains the character NUL" in failed and "constraint: dead_letter" in failed
    kpipe.define("plain", name, into={**into, "table": "plain"}, errors={"constraint": "dead_letter"})
    summary = kpipe.json("run", "plain")[-1]
    assert (summary["rows"], summary["dead_letters"]) == (31, 2)
    assert ask("SELECT text FROM plain WHERE id > 29") == [("\\u0000",)]
    assert {row["offset"]: row["error_message"] for row in kpipe.json("errors", "plain") if row["dead_letter"]} == {
        30: "text: the character NUL, which the table cannot store", 31: "user: the character NUL, which the table cannot store"
    }  # fmt: skip
    assert kpipe.json("verify", "plain")[0]["ok"]


def test_without_the_variable_the_message_names_it(kpipe: Any, topic: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    into, _ = table
    kpipe.define("plain", topic(1), into={**into, "table": "plain"})
    monkeypatch.delenv("PG_PASSWORD")
    assert "into.credentials: password: PG_PASSWORD" in kpipe("run", "plain", status=2).stderr.replace(
        "environment variable ", ""
    )


def test_in_dagster(kpipe: Any, topic: Any, write: Any, table: Any, tmp_path: Path) -> None:
    into, ask = table
    name = topic(2)
    for partition in range(2):
        write(name, records(partition * 100, partition * 100 + 40), partition)
    kpipe.define("plain", name, into={**into, "table": "plain"})
    home = Home.at(kpipe.home)
    pipeline = home.pipeline("plain")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(f"kafka/{name}", ["0", "1"])
        done = dg.materialize(
            [topic_spec(pipeline), table_asset(pipeline, home, "v1")],
            resources=real(home),
            instance=instance,
            tags={"dagster/asset_partition_range_start": "0", "dagster/asset_partition_range_end": "1"},
        )
        assert done.success
        rows = {event.partition: event.metadata["kpipe/rows"].value for event in done.asset_materializations_for_node("plain")}
        checks = dg.AssetSelection.all_asset_checks()
        checked = dg.materialize([table_checks(pipeline, home)], resources=real(home), instance=instance, selection=checks)
        assert {item.check_name for item in checked.get_asset_check_evaluations() if item.passed} >= {"complete", "published"}
    assert rows == {"0": 40, "1": 40} and ask("SELECT count(*) FROM plain") == [(80,)]
