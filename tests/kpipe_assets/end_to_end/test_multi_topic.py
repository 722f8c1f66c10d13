"""Several topics in one pipeline by the command line, with a real Kafka, Spark, DuckDB and PostgreSQL."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from resources.dev_broker.broker import LocalBroker
from tests.kpipe_assets.end_to_end.topics import both, found_by, records
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.survival.small import killed

pytestmark = pytest.mark.spark


def test_two_topics_into_one_table(kpipe: Any, family: Any, write: Any, tmp_path: Path) -> None:
    _, make = family
    a, b = make("a", 2), make("b")
    for where, number, at in ((a, 0, 0), (a, 1, 1000), (b, 0, 2000)):
        write(where, records(at, at + 100), number)
    write(b, ["not json", None, *records(2100, 2110, only_in_b=1.5)])
    program = tmp_path / "with_topic"
    program.write_text('#!/bin/sh\nexec sed -e "s/}$/, \\"from\\": \\"$KPIPE_TOPIC\\"}/"\n')
    program.chmod(0o755)
    how = {"transform": {"program": str(program)}, "batch": {"max_offsets_per_partition": 60}}
    kpipe.define("clicks", "", source=both(a, b), **how)
    lines = kpipe.json("run", "clicks")
    summary, batches = lines[-1], [line for line in lines if line["event"] == "batch"]
    assert (summary["rows"], summary["dead_letters"], summary["filtered"]) == (310, 1, 1)
    assert summary["positions"] == {f"{a}:0": 100, f"{a}:1": 100, f"{b}:0": 112}
    assert batches[0]["ranges"] == {f"{a}:0": [0, 60], f"{a}:1": [0, 60], f"{b}:0": [0, 60]}
    grouped = 'SELECT _kafka_topic, _kafka_partition, count(*), count(DISTINCT id), min("from"), max("from") FROM clicks'
    assert kpipe.sql(f"{grouped} GROUP BY ALL ORDER BY ALL") == [
        (a, 0, 100, 100, a, a),
        (a, 1, 100, 100, a, a),
        (b, 0, 110, 110, b, b),
    ]
    assert kpipe.sql("SELECT count(only_in_b) FROM clicks") == [(10,)]

    state = kpipe.json("status", "clicks")[0]
    assert state["high"] == state["positions"] == summary["positions"] and state["lag"] == 0
    proof = kpipe.json("verify", "clicks")[0]
    assert proof["ok"] and {name: item["rows_found"] for name, item in proof["partitions"].items()} == {
        f"{a}:0": 100, f"{a}:1": 100, f"{b}:0": 110
    }  # fmt: skip
    (error,) = [row for row in kpipe.json("errors", "clicks") if row["dead_letter"]]
    assert (error["topic"], error["partition"], error["offset"]) == (b, 0, 100)
    assert f"{b}/0 offset 100" in kpipe("errors", "clicks").stdout
    assert kpipe.sql("SELECT topic, sum(rows)::INT FROM kpipe_batches GROUP BY 1 ORDER BY 1") == [(a, 200), (b, 110)]
    cursors = kpipe.sql("SELECT topic, source_partition_id, cursor_offset FROM kpipe_cursors ORDER BY ALL")
    assert cursors == [(a, 0, 100), (a, 1, 100), (b, 0, 112)]

    write(b, records(3000, 3010))
    write(a, records(4000, 4010))
    assert kpipe.json("run", "clicks", "--partitions", f"{b}:0")[-1]["rows"] == 10
    assert "write TOPIC:0" in kpipe("run", "clicks", "--partitions", "0", status=2).stderr
    assert "partition nowhere:0 does not exist" in kpipe("run", "clicks", "--partitions", "nowhere:0", status=2).stderr
    assert kpipe.json("run", "clicks")[-1]["rows"] == 10
    # A row that is taken from one topic is missed there, although another one has a row at the same place.
    import duckdb

    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("UPDATE clicks SET _kafka_topic = $1 WHERE _kafka_topic = $2 AND _kafka_offset = 7", [a, b])
    problems = kpipe.json("verify", "clicks", status=1)[0]["problems"]
    assert f"partition {b}:0: expected 120 rows, found 119 in the table" in problems
    assert any(problem.startswith(f"{b}/0 [0, 60): 59 rows found") for problem in problems)


def test_coordinates_keys_and_headers_as_they_were(kpipe: Any, family: Any, brokers: str) -> None:
    _, make = family
    a, b = make("a"), make("b")
    producer = Producer({"bootstrap.servers": brokers})
    keys = [None, b"", b"\x00\xff'\"", "ü".encode()]
    headers = [None, [], [("h", b"\x00\xfe"), ("h", None), ("", b"")], [("Kopf'", "ü".encode())]]
    for name in (a, b):
        for at, (key, head) in enumerate(zip(keys, headers, strict=True)):
            producer.produce(name, json.dumps({"id": at, "_kafka_key": "forged", "_kafka_topic": "forged"}), key, 0, headers=head)
    assert producer.flush(120) == 0
    kpipe.define("p", "", source=both(a, b), metadata=["partition", "offset", "timestamp", "key", "headers"])
    assert kpipe.json("run", "p")[-1]["rows"] == 8
    for name in (a, b):
        rows = kpipe.sql(f"SELECT _kafka_key, _kafka_headers FROM p WHERE _kafka_topic = '{name}' ORDER BY _kafka_offset")
        assert [row[0] for row in rows] == keys
        assert [[(h["name"], h["value"]) for h in row[1] or []] for row in rows] == [head or [] for head in headers]
    assert kpipe.json("verify", "p")[0]["ok"]


def test_a_pattern_over_days(kpipe: Any, family: Any, write: Any, kafka_broker: LocalBroker) -> None:
    stem, make = family
    x = make("x")
    write(x, records(0, 20))
    kpipe.define("web", "", source=found_by(rf"^{stem}\.".replace("-", r"\-"), start="latest"))
    assert kpipe.json("run", "web")[-1]["batches"] == 0, "it begins at the end"
    # A topic that appears is read from its first record on.
    y = make("y", 2)
    write(y, records(100, 110), 1)
    write(x, records(20, 30))
    assert kpipe.json("run", "web")[-1]["positions"] == {f"{x}:0": 30, f"{y}:0": 0, f"{y}:1": 10}
    count = "SELECT _kafka_topic, count(*), count(DISTINCT id) FROM web GROUP BY 1 ORDER BY 1"
    assert kpipe.sql(count) == [(x, 10, 10), (y, 10, 10)]
    # A topic that is gone stops all, until somebody decides; the decision is on record.
    kafka_broker.delete_topic(y)
    write(x, records(30, 35))
    for _ in range(2):
        said = kpipe("run", "web", status=3).stderr
        assert f"topic {y} no longer exists" in said and "DROP ORPHAN PARTITIONS" in said
    assert f"topic {y} no longer exists" in kpipe.json("errors", "web", "--limit", "1")[0]["error_message"]
    said = kpipe("sql", "-e", "ALTER PIPELINE web DROP ORPHAN PARTITIONS").stdout
    assert f"retire: {y}/0, {y}/1" in said
    assert kpipe.sql("SELECT kind FROM kpipe_commits ORDER BY seq DESC LIMIT 1") == [("retire",)]
    assert kpipe.json("run", "web")[-1]["rows"] == 5
    # Made again, it is another topic.
    make("y")
    write(y, records(200, 203))
    assert f"topic {y} was recreated: expected topic id" in kpipe("run", "web", status=3).stderr
    assert kpipe.json("run", "web", "--on-new-topic", "begin")[-1]["rows"] == 3
    assert kpipe.sql(count) == [(x, 15, 15), (y, 13, 13)]
    assert kpipe.json("verify", "web")[0]["ok"]


def test_statements_name_the_topic(kpipe: Any, family: Any, write: Any, tmp_path: Path) -> None:
    _, make = family
    a, b = make("a"), make("b", 2)
    for where, number in ((a, 0), (b, 0), (b, 1)):
        write(where, records(number * 100, number * 100 + 20), number)

    def sql(text: str, status: int = 0) -> str:
        done = kpipe("sql", "-e", text, status=status)
        return str(done.stdout + done.stderr)

    offsets = json.dumps({f"{a}:0": 15, f"{b}:1": 18})
    sql(
        f"CREATE PIPELINE s AS LOAD DATA KAFKA '{kpipe.brokers}' TOPICS ('{a}', '{b}') OFFSETS '{offsets}'"
        " INTO TABLE s FORMAT JSON"
    )
    assert f"TOPICS ('{a}', '{b}')" in sql("SHOW CREATE PIPELINE s")
    assert kpipe.json("run", "s")[-1]["rows"] == 5 + 20 + 2
    assert f'"{b}:1": 20' in sql("SHOW CREATE PIPELINE s EXTENDED")
    for text in (
        "ALTER PIPELINE s SET OFFSETS '{\"0\": 3}'", "ALTER PIPELINE s DROP PARTITION '0'", "BACKFILL PIPELINE s PARTITION 0",
        f"EXTRACT PIPELINE s FROM '0' INTO OUTFILE '{tmp_path}/none'",
    ):  # fmt: skip
        assert "write TOPIC:0" in sql(text, 2), text
    assert "backfill" in sql(f"BACKFILL PIPELINE s PARTITION '{a}:0' FROM 10 TO 12")
    assert kpipe.json("run", "s")[-1]["rows"] == 2
    assert kpipe.sql(f"SELECT _kafka_offset FROM s WHERE _kafka_topic = '{a}' ORDER BY 1 LIMIT 3") == [(10,), (11,), (15,)]
    assert "reread" in sql(f"ALTER PIPELINE s SET OFFSETS '{{\"{b}:1\": 19}}' REREAD")
    assert kpipe.json("run", "s")[-1]["rows"] == 1
    assert "reread" in sql(f"ALTER PIPELINE s DROP PARTITION '{a}:0' REREAD")
    assert kpipe.json("run", "s")[-1]["rows"] == 20
    assert f"{b}/1 [3, 6)" in sql(f"EXTRACT PIPELINE s FROM '{b}:1' OFFSETS 3 TO 6 INTO OUTFILE '{tmp_path}/three'")
    assert len((tmp_path / "three").read_text().splitlines()) == 3
    assert kpipe.json("verify", "s")[0]["ok"]


def test_rows_with_a_key_that_is_in_two_topics(kpipe: Any, family: Any, write: Any) -> None:
    _, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 30, said="a"))
    write(b, records(20, 50, said="b"))
    kpipe.define("k", "", source=both(a, b), into={"table": "k", "key": ["id"], "on_conflict": "replace"})
    done = kpipe.json("run", "k")[-1]
    assert (done["inserted"], done["updated"]) == (50, 10)
    assert kpipe.sql("SELECT said, count(*) FROM k GROUP BY 1 ORDER BY 1") == [("a", 20), ("b", 30)]
    write(a, records(49, 51, said="later"))
    assert kpipe.json("run", "k")[-1]["updated"] == 1
    assert kpipe.sql("SELECT id, _kafka_topic FROM k WHERE said = 'later' ORDER BY 1") == [(49, a), (50, a)]
    assert kpipe.json("verify", "k")[0]["ok"]
    sums = kpipe.sql("SELECT topic, partition, rows::INT FROM kpipe_holdings WHERE partition >= 0 ORDER BY 1")
    assert sums == [(a, 0, 22), (b, 0, 29)]
    # Two rows that change places between topics keep every number but the sums.
    import duckdb

    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("UPDATE k SET _kafka_topic = CASE WHEN id = 5 THEN $2 ELSE $1 END WHERE id IN (5, 45)", [a, b])
    assert kpipe.json("verify", "k", status=1)[0]["problems"]


@pytest.mark.parametrize("keyed", [False, True])
def test_postgresql_tells_topics_apart(
    kpipe: Any, family: Any, write: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    schema = postgres.schema()
    _, make = family
    a, b = make("a"), make("b")
    into = {"type": "postgres", "database": postgres.address(schema), "credentials": {"password": "{{ env('PG_PASSWORD') }}"}}
    if keyed:
        into |= {"key": ["id"], "on_conflict": "replace"}
    write(a, records(0, 40))
    write(b, records(100, 140))
    kpipe.define("p", "", source=both(a, b), into={**into, "table": "p"}, batch={"max_offsets_per_partition": 25})
    assert kpipe.json("run", "p")[-1]["rows"] == 80
    proof = kpipe.json("verify", "p")[0]
    assert proof["ok"] and {name: item["rows_found"] for name, item in proof["partitions"].items()} == {
        f"{a}:0": 40,
        f"{b}:0": 40,
    }
    with psycopg.connect(postgres.address(schema), password=PASSWORD) as connection:
        connection.execute("UPDATE p SET _kafka_topic = %s WHERE id = 130", [a])
    problems = kpipe.json("verify", "p", status=1)[0]["problems"]
    assert f"partition {b}:0: expected 40 rows, found 39 in the table" in problems
    assert f"partition {a}:0: expected 40 rows, found 41 in the table" in problems


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lakes_tell_topics_apart(kpipe: Any, family: Any, write: Any, kind: str) -> None:
    _, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 40))
    write(b, records(100, 130))
    kpipe.define("p", "", source=both(a, b), into={"type": kind, "table": "p"}, batch={"max_offsets_per_partition": 25})
    assert kpipe.json("run", "p")[-1]["rows"] == 70
    proof = kpipe.json("verify", "p")[0]
    assert proof["ok"] and {name: item["rows_found"] for name, item in proof["partitions"].items()} == {
        f"{a}:0": 40,
        f"{b}:0": 30,
    }


@pytest.mark.parametrize(
    ("point", "status"),
    [
        pytest.param("stage.fsync:1", 1, marks=pytest.mark.chaos),
        ("commit.before:2", -signal.SIGKILL),
        ("commit.after:1", -signal.SIGKILL),
    ],
)
def test_killed_and_run_again_each_record_is_there_once(kpipe: Any, family: Any, write: Any, point: str, status: int) -> None:
    _, make = family
    a, b = make("a"), make("b", 2)
    for where, number in ((a, 0), (b, 0), (b, 1)):
        write(where, records(number * 1000, number * 1000 + 90), number)
    kpipe.define("p", "", source=both(a, b), batch={"max_offsets_per_partition": 40})
    if status == 1:  # one of Spark's workers
        kpipe.outside("run", "p", status=1, KPIPE_FAULT=f"{point}:kill")
    else:
        killed(kpipe.home, "p", point)
    kpipe.json("run", "p")
    assert kpipe.sql("SELECT _kafka_topic, _kafka_partition, count(*), count(DISTINCT id) FROM p GROUP BY ALL ORDER BY ALL") == [
        (a, 0, 90, 90), (b, 0, 90, 90), (b, 1, 90, 90)
    ]  # fmt: skip
    assert kpipe.json("verify", "p")[0]["ok"]
