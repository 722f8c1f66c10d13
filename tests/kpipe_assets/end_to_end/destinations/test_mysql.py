"""Kafka, Spark and MariaDB together: the command line, and a run of Dagster. All of them are real."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pymysql
import pytest

from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import real
from resources.home import Home
from tests.commandline import contents
from tests.servers.mariadb import PASSWORD, ROLE, MariaServer

pytestmark = pytest.mark.spark


def records(start: int, end: int, **more: Any) -> list[str]:
    return [json.dumps({"id": n, "text": f"tweet {n} 🎉", "user": {"name": "n", "tags": [n]}, **more}) for n in range(start, end)]


@pytest.fixture
def table(mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Callable[[str], list[Any]]]:
    """A pipeline's `into` without its table, and a question to the database."""
    monkeypatch.setenv("MY_PASSWORD", PASSWORD)
    database = mariadb.database()

    def ask(query: str) -> list[Any]:
        told = {"host": "127.0.0.1", "port": mariadb.port, "user": ROLE, "password": PASSWORD, "database": database}
        with closing(pymysql.connect(**told, charset="utf8mb4", autocommit=True)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    credentials = {"password": "{{ env('MY_PASSWORD') }}"}
    return {"type": "mysql", "database": mariadb.address(database), "credentials": credentials}, ask


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
    tag = "CAST(json_value(`user`, '$.tags[0]') AS SIGNED)"
    assert ask(f"SELECT count(*), count(DISTINCT id), max({tag}), sum(brand_new) FROM plain") == [(650, 650, 9049, 75.0)]
    assert ask("SELECT text FROM plain WHERE id = 7") == [("tweet 7 🎉",)]
    assert ask("SELECT id, _kafka_partition FROM plain WHERE _kafka_offset = 7 ORDER BY 1") == [(7, 0), (1007, 1), (2007, 2)]

    proof = kpipe.json("verify", "plain")[0]
    assert proof["ok"] and (proof["span"], proof["rows"], proof["dead_letters"], proof["filtered"]) == (652, 650, 1, 1)
    state = kpipe.json("status", "plain")[0]
    assert (state["state"], state["lag"], state["last_error"]) == ("stopped", 0, None)
    error = kpipe.json("errors", "plain")[0]
    assert (error["load_data_line"], error["offset"]) == ("not json", 200)
    assert len(kpipe.json("batches", "plain")) == 3
    assert "plain" in kpipe("batches", "plain").stdout + kpipe("status", "plain").stdout
    told = ask("SELECT config_json FROM kpipe_pipelines")
    assert PASSWORD not in str(told) and '"***"' in str(told)
    for path, data in contents(kpipe.home):
        assert PASSWORD.encode() not in data, path
    # Rows that somebody else takes away are noticed.
    ask("DELETE FROM plain WHERE id = 7")
    assert any("found 199 in the table" in problem for problem in kpipe.json("verify", "plain", status=1)[0]["problems"])


@pytest.mark.chaos  # in each run, without a JVM: tests/survival/test_everywhere.py
def test_killed_before_the_commit_lands_nothing_and_the_next_run_all(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    into, ask = table
    name = topic(1)
    write(name, records(0, 40))
    kpipe.define("plain", name, into={**into, "table": "plain"}, batch={"max_offsets_per_partition": 20})
    killed = kpipe.outside("run", "plain", status=None, KPIPE_FAULT="commit.before:3:kill", MY_PASSWORD=PASSWORD)
    assert killed.returncode == -signal.SIGKILL
    assert ask("SELECT count(*) FROM plain") == [(20,)]  # the first is that of the ledger's beginning
    assert kpipe.json("run", "plain")[-1]["positions"] == {"0": 40}
    assert ask("SELECT count(*), count(DISTINCT id) FROM plain") == [(40, 40)]
    assert kpipe.json("verify", "plain")[0]["ok"]


def test_rows_with_a_key_from_several_topics(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    """The same offsets of two topics are not each other's; a later record of a key changes the row."""
    into, ask = table
    first, second = topic(2), topic(1)
    write(first, records(0, 50), 0)
    write(first, records(50, 80), 1)
    write(second, records(1000, 1050, only_here=True), 0)
    write(second, ["not json"], 0)
    source = {"topic": None, "topics": [first, second]}
    kpipe.define("both", "", source=source, into={**into, "table": "both", "key": ["id"], "on_conflict": "update"})
    assert kpipe.json("run", "both")[-1]["rows"] == 130
    write(second, records(1040, 1060, text="changed"), 0)
    assert kpipe.json("run", "both")[-1]["positions"] == {f"{first}:0": 50, f"{first}:1": 30, f"{second}:0": 71}
    by_topic = "SELECT _kafka_topic, count(*), sum(only_here), sum(text = 'changed') FROM `both` GROUP BY 1 ORDER BY 2"
    assert ask(by_topic) == [(second, 60, 40, 20), (first, 80, None, 0)]
    assert kpipe.json("verify", "both")[0]["ok"]
    assert [(row["topic"], row["offset"]) for row in kpipe.json("errors", "both")] == [(second, 50)]


def test_a_table_that_counts(kpipe: Any, topic: Any, write: Any, table: Any) -> None:
    """ON DUPLICATE KEY UPDATE n = n + VALUES(n): each record counts once, however often its key is in a batch."""
    into, ask = table
    name = topic(2)
    rule = {
        "key": ["id"],
        "on_conflict": "update",
        "update": {"n": "mysql: n + VALUES(n)", "most": "GREATEST(most, excluded.most)"},
    }
    kpipe.define("counts", name, into={**into, "table": "counts", **rule})
    for number in (50, 31):
        for partition in range(2):
            write(name, [json.dumps({"id": at % 7, "n": 1, "most": at}) for at in range(number)], partition)
        assert kpipe.json("run", "counts")[-1]["rows"] == 2 * number
    counted = [(at, 2 * sum(len(range(at, number, 7)) for number in (50, 31)), max(range(at, 50, 7))) for at in range(7)]
    assert ask("SELECT id, n, most FROM counts ORDER BY id") == counted
    assert kpipe.json("verify", "counts")[0]["ok"]


def test_without_the_variable_the_message_names_it(kpipe: Any, topic: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    into, _ = table
    kpipe.define("plain", topic(1), into={**into, "table": "plain"})
    monkeypatch.delenv("MY_PASSWORD")
    assert "MY_PASSWORD" in kpipe("run", "plain", status=2).stderr


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
