"""SET, WHERE and constraints from the outside: statements, real Kafka, real Spark, real DuckDB."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_variables_set_where_and_constraints_by_statement(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, ["1,24.12.2026,3", "2,,4", "3,25.12.2026,x", "4,26.12.2026,300"], 0, b"k")
    write(name, ["5,27.12.2026,-7", "6,28.12.2026,\\N"], 1)
    kpipe("sql", "CREATE TABLE seen (id BIGINT, day DATE, n TINYINT NOT NULL, place VARCHAR, loaded TIMESTAMP DEFAULT now())")
    kpipe(
        "sql",
        f"""CREATE PIPELINE seen AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' SKIP CONSTRAINT ERRORS INTO TABLE seen
        FORMAT CSV FIELDS TERMINATED BY ',' (id, @day, @n) WHERE @day <> ''
        SET day = STR_TO_DATE(@day, '%d.%m.%Y'), n = @n,
        place = CONCAT(get_kafka_pipeline_prop('prop_partition'), '/', IFNULL(get_kafka_pipeline_prop('prop_key'), '-'))""",
    )
    tried = kpipe("sql", "TEST PIPELINE seen").stdout
    assert "6 offsets of 2 partitions: 2 rows, 3 dead letters, 1 filtered" in tried
    kpipe("sql", "START PIPELINE seen FOREGROUND")
    assert kpipe.sql("SELECT id, CAST(day AS VARCHAR), n, place, loaded IS NOT NULL FROM seen ORDER BY id") == [
        (1, "2026-12-24", 3, "0/k", True),
        (5, "2026-12-27", -7, "1/-", True),
    ]
    proof = kpipe.json("verify", "seen")[0]
    assert proof["ok"] and (proof["span"], proof["rows"], proof["dead_letters"], proof["filtered"]) == (6, 2, 3, 1)


def test_paths_defaults_and_headers_by_statement(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    records = [
        '{"id": 1, "user": {"name": "Ada", "n": null}, "tags": ["x", "y"], "ts": 1795219200}',
        '{"id": 12345678901234567890, "user": {"name": "too large"}, "tags": [], "ts": 0}',
        '{"id": 3, "user": {}, "tags": [], "ts": 1795305600, "id2": 3.50}',
        '{"id": 4, "tags": [], "ts": 1}',
        '{"id": 5, "user": {"name": "Bob"}, "ts": 1}',
        '{"id": 6, "user": {"name": "twice", "name": "x"}, "tags": [], "ts": 1}',
    ]
    write(name, records, 0, b"k")
    statement = f"""CREATE PIPELINE paths AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE paths FORMAT JSON
        (id <- id, name <- %::user::name DEFAULT 'nobody', n <- user::n DEFAULT 7, `tag` <- tags::0 DEFAULT NULL,
         whole <- %, @ts <- ts, @tags <- tags) WHERE @ts :> BIGINT > 0
        SET seen = FROM_UNIXTIME(@ts), part = get_kafka_pipeline_prop('prop_partition') :> INTEGER"""
    kpipe("sql", "CREATE TABLE paths (id BIGINT, name VARCHAR, n INTEGER, tag VARCHAR, whole JSON, seen TIMESTAMP, part INTEGER)")
    kpipe("sql", statement)
    assert kpipe("sql", "SHOW CREATE PIPELINE paths").stdout.count("<-") == 7
    kpipe("sql", "START PIPELINE paths FOREGROUND")
    assert kpipe.sql("SELECT id, name, n, tag, CAST(seen AS VARCHAR), part, CAST(whole AS VARCHAR) FROM paths ORDER BY id") == [
        (1, "Ada", None, "x", "2026-11-21 00:00:00", 0, records[0].replace(" ", "")),
        (3, "nobody", 7, None, "2026-11-22 00:00:00", 0, records[2].replace(" ", "")),
        (4, "nobody", 7, None, "1970-01-01 00:00:01", 0, records[3].replace(" ", "")),
    ]
    dead = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "paths")}
    assert sorted(dead) == [1, 4, 5]
    assert (
        "12345678901234567890 is not a BIGINT" in dead[1]
        and "the record has no tags" in dead[4]
        and "duplicate member name" in dead[5]
    )
    assert kpipe.json("verify", "paths")[0]["ok"]


def test_members_computed_columns_and_dead_letters(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ['{"id": 1, "at": "2026-11-21 10:00:00"}', '{"id": 2, "at": "soon"}', '{"id": 3, "at": null}'])
    kpipe.define("days", name, set={"day": 'CAST("at" AS DATE)'}, where="id < 3", errors={"constraint": "dead_letter"})
    done = kpipe.json("run", "days")[-1]
    assert (done["rows"], done["dead_letters"], done["filtered"]) == (1, 1, 1)
    write(name, ['{"id": 0, "at": "2026-11-22", "new": 5}'])
    assert kpipe.json("run", "days")[-1]["rows"] == 1
    assert kpipe.sql("SELECT id, CAST(day AS VARCHAR), new FROM days ORDER BY id") == [
        (0, "2026-11-22", 5),
        (1, "2026-11-21", None),
    ]
    dead = kpipe.json("errors", "days")[0]
    assert (dead["stage"], dead["offset"], dead["load_data_line"]) == ("constraint", 1, '{"id": 2, "at": "soon"}')
    assert kpipe.json("verify", "days")[0]["ok"]


def test_a_query_over_the_records(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    for partition in range(2):
        write(name, [f'{{"id": {10 * partition + n}, "user": {{"name": "u{n}"}}, "rest": [{n}]}}' for n in range(3)], partition)
    kpipe.define("chosen", name, select="""SELECT id, "user"->>'$.name' AS who FROM records WHERE "user"->>'$.name' <> 'u1'""")
    assert kpipe.json("run", "chosen")[-1]["rows"] == 4
    write(name, ['{"id": 20, "user": null, "more": 1}', '{"id": 21, "user": {"name": "x"}, "more": 1}'])
    assert kpipe.json("run", "chosen")[-1]["filtered"] == 1
    names = [row[0] for row in kpipe.sql("DESCRIBE chosen")]
    assert names == ["id", "who", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    assert kpipe.sql("SELECT id, who FROM chosen ORDER BY id") == [(0, "u0"), (2, "u2"), (10, "u0"), (12, "u2"), (21, "x")]
    assert kpipe.json("verify", "chosen")[0]["ok"]


def test_what_cannot_run_is_refused_when_it_is_created(offline: Any) -> None:
    made = "CREATE PIPELINE p AS LOAD DATA KAFKA 'a:1/t' INTO TABLE t FORMAT JSON SET x = "
    for text, words in (
        ("nope(1)", "unknown function NOPE"),
        ("sum(a)", "SUM is not supported"),
        ("DUCKDB('nextval(''s'')')", "nextval"),
    ):
        assert words in offline("sql", made + text, status=2).stderr
