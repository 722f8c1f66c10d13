"""Lookups from the outside: definitions and statements, real Kafka, real Spark, real DuckDB."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import real
from resources.duckdb_engine.expression_checks import checked_selection
from resources.home import Home
from resources.lookups.broadcasts import Broadcasts
from resources.lookups.loader import Lookups
from resources.spark.driver.context_runner import ContextRunner
from tests.fileserver import FileServer

pytestmark = [pytest.mark.broker, pytest.mark.spark]

COUNTRIES = "code,name,people\nDE,Germany,84\nFR,France,68\nNA,Namibia,3\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, where relative paths begin."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A web server."""
    found = FileServer()
    found.body = COUNTRIES.encode()
    yield found
    found.stop()


def records(*codes: str | None) -> list[str]:
    return [json.dumps({"id": at, "code": code}) for at, code in enumerate(codes)]


def versions(kpipe: Any) -> list[dict[str, Any]]:
    """What each batch kept of its lookups, by order of commit; the same for each of its partitions."""
    found = []
    for (text,) in kpipe.sql("SELECT metadata FROM kpipe_commits WHERE kind = 'batch' ORDER BY seq"):
        parts = [part["lookups"] for part in json.loads(text).values()]
        assert all(part == parts[0] for part in parts)
        found.append(parts[0])
    return found


def test_a_file_by_statement_and_the_version_that_each_batch_used(kpipe: Any, topic: Any, write: Any, here: Path) -> None:
    file = here / "countries.csv"
    file.write_text(COUNTRIES)
    name = topic(2)
    write(name, records("DE", "XX", "NA", None), 0)
    write(name, records("FR"), 1)
    made = f"""CREATE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'
        LOOKUP countries KEY (code) FROM 'countries.csv' SETTINGS '{{"columns": {{"people": "BIGINT"}}}}'
        INTO TABLE orders FORMAT JSON SET country = countries(code).name, people = countries(code).people"""
    kpipe("sql", made)
    assert "LOOKUP `countries` KEY (`code`) FROM 'countries.csv'" in kpipe("sql", "SHOW CREATE PIPELINE orders").stdout
    tried = kpipe("sql", "TEST PIPELINE orders").stdout
    assert "5 rows" in tried and "Namibia" in tried
    kpipe("sql", "START PIPELINE orders FOREGROUND")
    rows = "SELECT _kafka_partition, id, country, people FROM orders ORDER BY ALL"
    first = [(0, 0, "Germany", 84), (0, 1, None, None), (0, 2, "Namibia", 3), (0, 3, None, None), (1, 0, "France", 68)]
    assert kpipe.sql(rows) == first

    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text(COUNTRIES.replace("France", "La France") + "XX,Nowhere,0\n")
    write(name, records("FR", "XX"), 1)
    assert kpipe.json("run", "orders")[-1]["rows"] == 2
    assert kpipe.sql(rows) == [*first, (1, 0, "La France", 68), (1, 1, "Nowhere", 0)]
    one, two = (found["countries"] for found in versions(kpipe))
    assert (one["sha256"], one["rows"]) == (before, 3)
    assert (two["sha256"], two["rows"]) == (hashlib.sha256(file.read_bytes()).hexdigest(), 4)
    assert one["read"] < two["read"]
    assert kpipe.json("verify", "orders")[0]["ok"]


def test_a_key_without_a_row_is_set_aside_and_retried_when_the_row_is_there(
    kpipe: Any, topic: Any, write: Any, here: Path
) -> None:
    (here / "countries.csv").write_text(COUNTRIES)
    name = topic(1)
    write(name, records("DE", "XX", None, "FR"))
    kpipe.define(
        "strict", name,
        lookups={"countries": {"path": "countries.csv", "key": "code", "required": True}},
        set={"country": "countries(code).name"}, errors={"constraint": "dead_letter"},
    )  # fmt: skip
    done = kpipe.json("run", "strict")[-1]
    assert (done["rows"], done["dead_letters"]) == (2, 2)
    dead = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "strict")}
    assert "no row for 'XX'" in dead[1] and "no row for NULL" in dead[2]
    (here / "countries.csv").write_text(COUNTRIES + "XX,Nowhere,0\n")
    (again,) = kpipe.json("errors", "strict", "--retry")
    assert (again["tried"], again["rows"], again["failed"]) == (2, 1, 1)
    assert kpipe.sql("SELECT country FROM strict ORDER BY id") == [("Germany",), ("Nowhere",), ("France",)]
    ((note,),) = kpipe.sql("SELECT note FROM kpipe_commits WHERE kind = 'replay'")
    assert "lookup countries: sha256 " in note and "4 rows" in note
    assert kpipe.json("verify", "strict")[0]["ok"]


def test_parquet_a_table_and_a_query_in_one_select(kpipe: Any, topic: Any, write: Any, here: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"]}), here / "items.parquet")
    kpipe("sql", "CREATE TABLE dims AS SELECT n AS k, 'dim' || n AS v FROM range(5) AS t(n)")
    kpipe("sql", "CREATE TABLE sales AS SELECT n % 3 AS k, n AS amount FROM range(9) AS t(n)")
    name = topic(2)
    for partition in range(2):
        write(name, [json.dumps({"id": n, "p": partition}) for n in range(5)], partition)
    kpipe.define(
        "mixed", name,
        lookups={
            "items": {"path": str(here / "items.parquet"), "key": "id"},
            "dims": {"table": "dims", "key": "k"},
            "sums": {"query": "SELECT k, sum(amount) AS total FROM sales GROUP BY k;", "key": "k"},
        },
        select="""SELECT id, items(id).name AS item, dims(id).v AS dim, sums(id).total AS total, dims(sums(id).total - 9).v AS far
                  FROM records WHERE dims(id).k IS NOT NULL AND p = '1'""",
    )  # fmt: skip
    assert kpipe.json("run", "mixed")[-1]["rows"] == 5
    assert kpipe.sql("SELECT id, item, dim, total, far FROM mixed ORDER BY id") == [
        (0, None, "dim0", 9, "dim0"), (1, "a", "dim1", 12, "dim3"), (2, "b", "dim2", 15, None),
        (3, "c", "dim3", None, None), (4, None, "dim4", None, None),
    ]  # fmt: skip
    assert {key: item["rows"] for key, item in versions(kpipe)[0].items()} == {"items": 3, "dims": 5, "sums": 3}


def test_an_address_that_fails_is_tried_again_and_its_token_is_shown_nowhere(
    kpipe: Any, topic: Any, write: Any, server: FileServer, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setenv("TOKEN", "canary-71c2")
    server.wanted = "Bearer canary-71c2"
    name = topic(2)
    write(name, records("DE", "FR"), 0)
    write(name, records("NA"), 1)
    lookup = (
        f"""LOOKUP countries KEY (code) FROM URL '{server.url}' SETTINGS '{{"credentials": {{"token": "${{env:TOKEN}}"}}}}'"""
    )
    made = f"""CREATE PIPELINE web AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' BATCH_INTERVAL 100
        MAX_RETRIES_PER_BATCH_PARTITION 1
        {lookup} INTO TABLE web FORMAT JSON SET country = countries(code).name"""
    shown = [kpipe("sql", made).stdout, kpipe("sql", "SHOW CREATE PIPELINE web").stdout]
    assert "${env:TOKEN}" in shown[1]
    for fault, words in (("truncated", "cannot be read"), ("500", "HTTP 500"), ("redirect", "redirects"), ("404", "HTTP 404")):
        server.fault = fault
        server.asked.clear()
        failed = kpipe("run", "web", status=2 if fault in ("redirect", "404") else 1)
        assert words in failed.stderr
        assert len(server.asked) == (1 if fault in ("redirect", "404") else 2), "what may pass is tried again"
        shown.append(failed.stderr)
    server.fault = ""
    server.asked.clear()
    assert kpipe.json("run", "web")[-1]["rows"] == 3
    assert len(server.asked) == 1, "once a run, on the driver"
    assert kpipe.sql("SELECT country FROM web ORDER BY ALL") == [("France",), ("Germany",), ("Namibia",)]
    kept = kpipe.sql("SELECT config_json, state FROM kpipe_pipelines") + kpipe.sql("SELECT metadata, note FROM kpipe_commits")
    shown += [str(kept), kpipe("errors", "web").stdout, (kpipe.home / "pipelines" / "web.yaml").read_text()]
    assert "canary" not in "".join(shown)


def test_a_version_is_sent_once_to_each_process_and_a_new_one_between_batches(
    kpipe: Any, topic: Any, write: Any, here: Path, spark: Any
) -> None:
    file = here / "countries.csv"
    file.write_text(COUNTRIES)
    definition = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
            "lookups": {"countries": {"path": "countries.csv", "key": "code", "refresh_s": 0.001}},
            "set": {"x": "countries(c).name"},
        }
    )  # fmt: skip
    now = [0.0]
    lookups = Lookups(definition, checked_selection(definition), clock=lambda: now[0])
    broadcasts = Broadcasts(spark)

    def seen(batch: str) -> set[tuple[int, int, str]]:
        """Process, place in its memory, and hash of the lookup, wherever a task has asked."""
        shipped = broadcasts.of(lookups.of_batch(batch))

        def task(items: Any) -> Any:
            list(items)
            held = shipped["countries"].value
            yield os.getpid(), id(held), held.version.sha256

        return set(spark.parallelize(range(4), 4).mapPartitions(task).collect())

    first = set().union(*(seen(f"batch {n}") for n in range(3)))
    assert len(first) == len({pid for pid, *_ in first}), "no process has loaded it twice, over three jobs of four tasks"
    assert {sha for *_, sha in first} == {hashlib.sha256(file.read_bytes()).hexdigest()}
    file.write_text(COUNTRIES + "XX,Nowhere,0\n")
    now[0] = 1.0
    second = seen("batch 3")
    assert {sha for *_, sha in second} == {hashlib.sha256(file.read_bytes()).hexdigest()}
    broadcasts.release()
    before = {path.name for path in Path(spark._temp_dir).iterdir()}
    for batch in range(4, 7):  # of one run each
        run = ContextRunner(spark)
        run._lookups.of(lookups.of_batch(f"batch {batch}"))
        assert {path.name for path in Path(spark._temp_dir).iterdir()} > before
        run.release()
    assert {path.name for path in Path(spark._temp_dir).iterdir()} == before, "a service that runs for months keeps none"


def test_runs_at_work_are_told_and_what_was_skipped_is_read_with_the_lookup_as_it_is(
    kpipe: Any, topic: Any, write: Any, here: Path
) -> None:
    file = here / "countries.csv"
    file.write_text(COUNTRIES)
    name = topic(1)
    write(name, records("DE", "XX", "FR"))
    lookups = {"countries": {"path": "countries.csv", "key": "code"}}
    kpipe.define("late", name, lookups=lookups, set={"country": "countries(code).name"}, columns={"country": "VARCHAR"})
    kpipe("sql", "ALTER PIPELINE late SET OFFSETS LATEST")
    write(name, records("XX"))
    assert kpipe.json("run", "late")[-1]["rows"] == 1
    file.write_text(COUNTRIES + "XX,Nowhere,0\n")
    assert "lookups will be reloaded" in kpipe("sql", "ALTER PIPELINE late RELOAD LOOKUPS").stdout
    kpipe("sql", "BACKFILL PIPELINE late")
    assert kpipe.json("run", "late")[-1]["rows"] == 3
    assert kpipe.sql("SELECT _kafka_offset, country FROM late ORDER BY 1") == [
        (0, "Germany"), (1, "Nowhere"), (2, "France"), (3, None),
    ]  # fmt: skip
    assert kpipe.json("verify", "late")[0]["ok"]


def test_what_is_wrong_is_said_when_a_pipeline_is_made(offline: Any, here: Path) -> None:
    (here / "twice.csv").write_text("code,name\nDE,a\nDE,b\n")
    for lookup, words in (
        ("FROM 'none.csv'", "does not exist"),
        ("FROM 'twice.csv'", "duplicate key code 'DE': expected one row, found 2"),
        ("FROM QUERY 'DELETE FROM x'", "not one SELECT"),
        ("FROM URL 'http://example.com/x.csv'", "use https"),
        ("""FROM 'x.csv' SETTINGS '{"key": "x"}'""", "has its own clause"),
        ("""FROM 'x.csv' SETTINGS '{"keys": "x"}'""", "keys"),
        ("""FROM URL 'https://h/x.csv' SETTINGS '{"credentials": {"token": "canary"}}'""", "would be stored with the definition"),
    ):
        made = f"""CREATE PIPELINE p AS LOAD DATA KAFKA 'h:1/t' LOOKUP countries KEY (code) {lookup} INTO TABLE t FORMAT JSON
            SET x = countries(code).name"""
        said = offline("sql", made, status=2).stderr
        assert words in said and "canary" not in said
    assert (
        "no lookups to reload"
        in offline(
            "sql",
            "CREATE PIPELINE q AS LOAD DATA KAFKA 'h:1/t' INTO TABLE t FORMAT JSON; ALTER PIPELINE q RELOAD LOOKUPS",
            status=2,
        ).stderr
    )


def test_in_dagster_as_on_the_command_line(kpipe: Any, topic: Any, write: Any, here: Path) -> None:
    kpipe("sql", "CREATE TABLE dims AS SELECT 'DE' AS code, 'Germany' AS name")
    kpipe("sql", "CREATE TABLE plain (id BIGINT PRIMARY KEY, code VARCHAR, country VARCHAR NOT NULL)")
    name = topic(2)
    write(name, records("DE", "XX"), 0)
    write(name, [json.dumps({"id": 7, "code": "DE"})], 1)
    kpipe.define(
        "plain", name, lookups={"dims": {"table": "dims", "key": "code"}}, set={"country": "dims(code).name"},
        errors={"constraint": "dead_letter"}, into={"table": "plain", "on_conflict": "replace"},
    )  # fmt: skip
    home = Home.at(kpipe.home)
    pipeline = home.pipeline("plain")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(f"kafka/{name}", ["0", "1"])
        done = dg.materialize(
            [topic_spec(pipeline), table_asset(pipeline, home, "v1")],
            resources=real(home), instance=instance,
            tags={"dagster/asset_partition_range_start": "0", "dagster/asset_partition_range_end": "1"},
        )  # fmt: skip
        assert done.success
        shown = [event.metadata["kpipe/lookups"].value for event in done.asset_materializations_for_node("plain")]
    assert kpipe.sql("SELECT id, country FROM plain ORDER BY id") == [(0, "Germany"), (7, "Germany")]
    assert [row["stage"] for row in kpipe.json("errors", "plain")] == ["constraint"], "a NULL that the table does not take"
    assert shown == versions(kpipe) * 2 and shown[0]["dims"]["rows"] == 1
