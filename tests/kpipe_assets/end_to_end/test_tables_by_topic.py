"""A table for each topic of a pattern: real Kafka, real Spark, real databases, and the command line."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import duckdb
import pytest

from kpipe_assets.component import catalog
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from tests.kpipe_assets.end_to_end.topic_assets import check, materialize, observe
from tests.kpipe_assets.end_to_end.topics import found_by, records
from tests.survival.small import killed

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def table(topic: str, prefix: str = "") -> str:
    return prefix + topic.replace(".", "_").replace("-", "_")


def proven(kpipe: Any, name: str = "web", **expected: Any) -> dict[str, Any]:
    (found,) = kpipe.json("verify", name)
    assert found["ok"] and not found["problems"], found
    assert {key: found[key] for key in expected} == expected
    return dict(found)


def test_topics_of_a_pattern_over_days(kpipe: Any, family: Any, write: Any, kafka_broker: LocalBroker) -> None:
    stem, make = family
    a, b, c = make("a", 2), make("b"), make("c-d")
    write(a, records(0, 20, shade="red"), 0)
    write(a, records(20, 25), 1)
    write(b, [json.dumps({"price": n / 2, "text": n}) for n in range(10)])
    write(c, ["not json", *records(0, 3)])
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"table": "{topic}"})
    batch, summary = kpipe.json("run", "web")
    assert summary["rows"] == 25 + 10 + 3
    assert {name: rows["rows"] for name, rows in batch["targets"].items()} == {table(a): 25, table(b): 10, table(c): 3}
    assert kpipe.sql(f"SELECT count(*), count(shade), min(_kafka_topic), max(_kafka_topic) FROM {table(a)}") == [(25, 20, a, a)]
    assert kpipe.sql(f"DESCRIBE {table(b)}")[0][:2] == ("price", "DOUBLE")
    assert kpipe.sql(f"SELECT sum(price), sum(text) FROM {table(b)}") == [(22.5, 45)]
    assert kpipe.sql(f"SELECT id FROM {table(c)} ORDER BY 1") == [(0,), (1,), (2,)]
    found = proven(kpipe, rows=38, dead_letters=1, span=39)
    assert found["targets"] == {table(t): {"rows": n, "rows_found": n} for t, n in ((a, 25), (b, 10), (c, 3))}
    ranges = kpipe.sql("SELECT topic, target_table, rows FROM kpipe_batches ORDER BY topic, batch_source_partition_id")
    assert ranges == [(a, table(a), 20), (a, table(a), 5), (b, table(b), 10), (c, table(c), 3)]
    # A new member is a column of its topic's table; a topic that appears gets a table.
    d = make("d")
    write(b, [json.dumps({"price": 1, "text": 1, "extra": {"deep": [1]}})])
    write(d, records(0, 4))
    assert kpipe.json("run", "web")[-1]["rows"] == 5
    assert kpipe.sql(f"SELECT count(*), count(extra) FROM {table(b)}") == [(11, 1)]
    assert "extra" not in [row[0] for row in kpipe.sql(f"DESCRIBE {table(a)}")]
    assert kpipe.sql(f"SELECT count(*) FROM {table(d)}") == [(4,)]
    proven(kpipe, rows=43)
    # A topic that is deleted stops all; dropped from the ledger, its rows stay and are proven.
    kafka_broker.delete_topic(d)
    assert f"topic {d} no longer exists" in kpipe("run", "web", status=3).stderr
    assert "retire" in kpipe("sql", "-e", "ALTER PIPELINE web DROP ORPHAN PARTITIONS").stdout
    assert proven(kpipe, rows=43)["targets"][table(d)] == {"rows": 4, "rows_found": 4}
    make("d")
    write(d, records(10, 12))
    assert "was recreated" in kpipe("run", "web", status=3).stderr
    assert kpipe.json("run", "web", "--on-new-topic", "begin")[-1]["rows"] == 2
    assert kpipe.sql(f"SELECT count(*) FROM {table(d)}") == [(6,)]
    proven(kpipe, rows=45)
    # A row that is lost, or moved to another table, is missed in its table.
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute(f"DELETE FROM {table(c)} WHERE id = 1")
        connection.execute(f"UPDATE {table(a)} SET _kafka_offset = 1000 WHERE id = 3")
    problems = kpipe.json("verify", "web", status=1)[0]["problems"]
    assert [text.split(": ")[0] for text in problems if text.startswith("table")]
    assert {text.split(": ")[0] for text in problems} == {f"table {table(a)}", f"table {table(c)}"}


def test_names_that_are_no_tables_and_names_that_collide(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a = make("x.y")
    write(a, records(0, 2))
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"table": "{topic}"})
    assert kpipe.json("run", "web")[-1]["rows"] == 2
    b = make("x_Y")
    write(b, records(0, 2))
    write(a, records(2, 4))
    said = kpipe("run", "web", status=2).stderr
    assert f"topics {a} and {b}: both would be written to table" in said and "source.topic_pattern" in said
    assert kpipe.sql("SELECT DISTINCT topic FROM kpipe_batches") == [(a,)], "nothing was begun"
    kpipe.define("web", "", source=found_by(rf"^{stem}\.x\."), into={"table": "{topic}"})
    assert kpipe.json("run", "web")[-1]["rows"] == 2
    kpipe.define("web", "", source=found_by(rf"^{stem}\.x\."), into={"table": "{topic}" + "x" * 60})
    assert f"topic {a}: " in (said := kpipe("run", "web", status=2).stderr) and "63 at most" in said
    # The first topic leaves the definition: its rows are still in the table.
    kpipe.define("web", "", source=found_by(rf"^{stem}\.x_"), into={"table": "{topic}"})
    said = kpipe("run", "web", status=2).stderr
    assert f"topic {b}: table {table(a)} has rows of topic {a}" in said and f"TRUNCATE TABLE {table(a)}" in said
    assert kpipe.sql("SELECT DISTINCT topic FROM kpipe_batches") == [(a,)], "nothing was begun"
    proven(kpipe, rows=4)
    assert "4 rows deleted" in kpipe("sql", "-e", f"TRUNCATE TABLE {table(a)}").stdout
    assert kpipe.json("run", "web")[-1]["rows"] == 2
    # DuckDB has one table by both names.
    assert {name: rows["rows_found"] for name, rows in proven(kpipe)["targets"].items()} == {table(b): 2}


def test_killed_between_two_tables_and_reset(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 5))
    write(b, records(0, 7))
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"table": "raw_{topic}"}, batch={"max_offsets_per_partition": 4})
    killed(kpipe.home, "web", "commit.table:2")
    assert kpipe.sql("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'raw%'") == []
    assert kpipe.json("run", "web")[-1]["rows"] == 12
    proven(kpipe, rows=12)
    one = table(a, "raw_")
    assert "5 rows deleted" in kpipe("sql", "-e", f"TRUNCATE TABLE {one}").stdout
    assert proven(kpipe)["targets"][one] == {"rows": 0, "rows_found": 0}
    assert kpipe.json("run", "web")[-1]["rows"] == 0
    said = kpipe("sql", "-e", "RESET PIPELINE web").stdout
    assert f"table {table(b, 'raw_')}: 7 rows deleted" in said
    assert kpipe.json("run", "web")[-1]["rows"] == 12
    assert kpipe.sql(f"SELECT count(*), count(DISTINCT id) FROM {one}") == [(5, 5)]
    proven(kpipe)
    assert "reread" in kpipe("sql", "-e", f"ALTER PIPELINE web SET OFFSETS '{{\"{b}:0\": 5}}' REREAD").stdout
    assert kpipe.json("run", "web")[-1]["rows"] == 2
    assert kpipe.sql(f"SELECT count(*) FROM {table(b, 'raw_')}") == [(9,)]
    proven(kpipe)


def test_an_edit_to_one_table_and_back(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    for at, into in enumerate(("{topic}", "web", "{topic}", "raw_{topic}")):
        write(a, records(at * 10, at * 10 + 3))
        write(b, records(at * 10, at * 10 + 2))
        kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"table": into})
        assert kpipe.json("run", "web")[-1]["rows"] == 5
    counts = {name: kpipe.sql(f"SELECT count(*) FROM {name}")[0][0] for name in (table(a), table(b), "web", table(a, "raw_"))}
    assert counts == {table(a): 6, table(b): 4, "web": 5, table(a, "raw_"): 3}
    found = proven(kpipe, rows=20)
    assert {name: rows["rows"] for name, rows in found["targets"].items()} == {**counts, table(b, "raw_"): 2}


def test_dead_letters_are_retried_into_their_tables_and_traced(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    for name in (a, b):
        write(name, ['{"id": "x"}', '{"id": 1}', '{"id": 2}'])
    definition = {"source": found_by(rf"^{stem}\."), "into": {"table": "{topic}"}, "errors": {"constraint": "dead_letter"}}
    kpipe.define("web", "", **definition, set={"n": "CAST(id AS INTEGER)"}, columns={"id": "VARCHAR"})
    assert kpipe.json("run", "web")[-1]["dead_letters"] == 2
    kpipe.define("web", "", **definition, set={"n": "TRY_CAST(id AS INTEGER)"}, columns={"id": "VARCHAR"})
    done = kpipe.json("errors", "web", "--retry")
    assert sum(page["rows"] for page in done) == 2
    for name in (a, b):
        assert kpipe.sql(f"SELECT id, n FROM {table(name)} ORDER BY 1") == [("1", 1), ("2", 2), ("x", None)]
    proven(kpipe, rows=6, dead_letters=0)
    assert f"table {table(b)}" in kpipe("trace", "web", f"{b}:0:1").stdout
    assert f"{b}" in kpipe("trace", "web", "--table", table(b), "--where", "id=2").stdout


def test_rows_with_a_key_in_their_own_tables(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    into = {"table": "{topic}", "on_conflict": "replace", "on_null": "delete"}
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into=into)
    assert "into.key" in kpipe("run", "web", status=2).stderr
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={**into, "key": ["id"]})
    write(a, records(0, 10))
    write(b, records(5, 15, more=1))
    assert kpipe.json("run", "web")[-1]["inserted"] == 20
    write(a, records(0, 2, text="new"))
    write(b, records(14, 16))
    done = kpipe.json("run", "web")[-1]
    assert (done["inserted"], done["updated"]) == (1, 3)
    assert kpipe.sql(f"SELECT count(*) FILTER (text = 'new'), count(*) FROM {table(a)}") == [(2, 10)]
    proven(kpipe)
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute(f"DELETE FROM {table(b)} WHERE id = 7")
    assert all(text.startswith(f"table {table(b)}: ") for text in kpipe.json("verify", "web", status=1)[0]["problems"])


def test_each_table_is_an_asset_with_its_checks(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a", 2), make("b")
    write(a, records(0, 4), 0)
    write(a, records(4, 9), 1)
    write(b, ["no", *records(0, 3)])
    kpipe.define("web", "", source=found_by(rf"^{stem}\."), into={"table": "raw_{topic}"})
    home = Home.at(kpipe.home)
    with dg.DagsterInstance.ephemeral() as instance:
        observe(home, instance)
        repository = catalog(home)
        specs = {spec.key.to_user_string(): spec for spec in repository.resolve_all_asset_specs()}
        assert {table(a, "raw_"), table(b, "raw_"), "pipelines/web", f"kafka/{a}", f"kafka/{b}"} == set(specs)
        assert [dep.asset_key.path[-1] for dep in specs[table(a, "raw_")].deps] == [a]
        materialize(home, instance, a, b)
        observe(home, instance)
        found = {}
        for name in (a, b):
            for record in instance.fetch_materializations(dg.AssetKey(table(name, "raw_")), limit=10).records:
                metadata = record.asset_materialization.metadata
                found[name, record.partition_key] = metadata["kpipe/rows"].value, metadata["dagster/row_count"].value
        assert found == {(a, "0"): (4, 9), (a, "1"): (5, 9), (b, "0"): (3, 3)}
        checked = check(home, instance)
        results = {
            (item.asset_key.to_user_string(), item.check_name): item.passed for item in checked.get_asset_check_evaluations()
        }
        assert {key for key, passed in results.items() if not passed} == {("pipelines/web", "dead_letters")}
        assert {key for key in results if key[1] == "complete"} == {(name, "complete") for name in (*_raw(a, b), "pipelines/web")}
        # Events are stored once, and a table that lost a row is red alone.
        write(b, records(3, 5))
        assert kpipe.json("run", "web")[-1]["rows"] == 2
        observe(home, instance)
        assert len(instance.fetch_materializations(dg.AssetKey(table(b, "raw_")), limit=10).records) == 2
        with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
            connection.execute(f"DELETE FROM {table(b, 'raw_')} WHERE id = 1")
        checked = check(home, instance)
        red = {
            item.asset_key.to_user_string()
            for item in checked.get_asset_check_evaluations()
            if item.check_name == "complete" and not item.passed
        }
        assert red == {table(b, "raw_"), "pipelines/web"}


def _raw(*topics: str) -> list[str]:
    return [table(name, "raw_") for name in topics]


def test_rows_of_list_items_and_a_delivery_of_two_commits(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    a, b = make("a"), make("b")
    for name, sizes in ((a, (2, 0, 3)), (b, (1, 1))):
        write(name, [json.dumps({"id": at, "items": list(range(size))}) for at, size in enumerate(sizes)])
    unnested = {"columns": {"items": "BIGINT[]"}, "select": "SELECT id, item FROM records, UNNEST(items) AS item"}
    for name, delivery in (("once", "exactly_once"), ("twice", "at_least_once")):
        into = {"table": name + "_{topic}"}
        kpipe.define(name, "", source=found_by(rf"^{stem}\."), into=into, delivery=delivery, **unnested)
        assert kpipe.json("run", name)[-1]["rows"] == 7
        found = proven(kpipe, name, span=5, rows=7, filtered=1)
        assert found["targets"] == {f"{name}_{table(t)}": {"rows": n, "rows_found": n} for t, n in ((a, 5), (b, 2))}
    state = kpipe.json("as-of", "once", "--offsets", f"{a}:0=3,{b}:0=1")[0]
    queries = {item["table"]: item["queries"]["duckdb"] for item in state["tables"]}
    assert {name: len(kpipe.sql(text)) for name, text in queries.items()} == {f"once_{table(a)}": 5, f"once_{table(b)}": 1}
