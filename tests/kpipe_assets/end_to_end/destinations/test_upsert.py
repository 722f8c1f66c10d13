"""Rows with a key from the outside: real Kafka, real Spark, real DuckDB, YAML and statements."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer

from tests.commandline import Kpipe


@pytest.fixture
def produce(brokers: str) -> Callable[..., None]:
    """`produce(topic, [(key, value), ...], partition)`; values become JSON."""
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})

    def send(topic: str, records: list[tuple[Any, Any]], partition: int = 0) -> None:
        for key, value in records:
            text = None if value is None else value if isinstance(value, str) else json.dumps(value)
            producer.produce(topic, text, None if key is None else str(key), partition)
        assert producer.flush(120) == 0

    return send


def row(number: int, **more: Any) -> tuple[int, dict[str, Any]]:
    return number, {"id": number, **more}


def test_replaced_and_deleted_over_the_parts_of_a_hot_partition(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    """50,000 writes of 1,000 keys in one partition, which several tasks read; then tombstones and newer writes."""
    name = topic(1)
    produce(name, [row(at % 1000, n=at) for at in range(50_000)])
    kpipe.define("live", name, into={"table": "live", "key": ["id"], "on_conflict": "replace", "on_null": "delete"})
    line = kpipe.json("run", "live")[0]
    assert (line["rows"], line["inserted"], line["updated"], line["deletes"]) == (50_000, 1000, 49_000, 0)
    assert kpipe.sql("SELECT count(*), min(n), max(n), sum(n) FROM live") == [(1000, 49_000, 49_999, sum(range(49_000, 50_000)))]
    produce(name, [(7, None), row(7, n=-7), (8, None), (9999, None), row(9, n=-9), (None, None), ("x", None)])
    line = kpipe.json("run", "live")[0]
    assert {key: line[key] for key in ("messages", "rows", "deletes", "dead_letters", "inserted", "updated", "deleted")} == {
        "messages": 7, "rows": 2, "deletes": 3, "dead_letters": 2, "inserted": 1, "updated": 1, "deleted": 2,
    }  # fmt: skip
    assert kpipe.sql("SELECT id, n FROM live WHERE n < 0 OR id = 8 ORDER BY id") == [(7, -7), (9, -9)]
    reasons = [error["error_message"] for error in kpipe.json("errors", "live")]
    assert any("without a key" in reason for reason in reasons) and any("id" in reason for reason in reasons)
    batch = kpipe.json("batches", "live", "--limit", "1")[0]
    assert (batch["rows_inserted"], batch["rows_updated"], batch["rows_deleted"]) == (1, 1, 2)
    proof = kpipe.json("verify", "live")[0]
    assert proof["ok"] and (proof["rows"], proof["inserted"], proof["deleted"]) == (50_002, 1001, 2)
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("UPDATE live SET _kafka_offset = 3 WHERE id = 9")
    assert "sum of their offsets" in kpipe("verify", "live", status=1).stderr


def test_a_deleted_row_does_not_come_back_with_what_was_skipped(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    """[1, 4) is skipped, and its keys are deleted behind it: whatever reads it later would bring them back."""
    name = topic(1)
    produce(name, [row(0, n=0), row(1, n=1), row(2, n=2), row(3, n=3), (1, None), (2, None)])
    into = {"table": "live", "key": ["id"], "on_conflict": "replace"}
    kpipe.define("live", name, into={**into, "on_null": "delete"}, batch={"max_offsets_per_partition": 1})
    kpipe("run", "live", "--max-batches", "1")
    kpipe("sql", "ALTER PIPELINE live SET OFFSETS '{\"0\": 4}'")
    words = "on_null: delete: a deleted row would come back"
    assert words in kpipe("sql", "BACKFILL PIPELINE live", status=2).stderr
    # A backfill of a time in which tombstones were left out, and a definition that deletes from then on.
    kpipe.define("live", name, into=into, batch={"max_offsets_per_partition": 1})
    kpipe("sql", "BACKFILL PIPELINE live")
    kpipe.define("live", name, into={**into, "on_null": "delete"}, batch={"max_offsets_per_partition": 1})
    assert words in kpipe("run", "live", status=2).stderr
    assert "rewind: " in kpipe("sql", "ALTER PIPELINE live SET OFFSETS '{\"0\": 1}'").stdout, "nothing behind was read: in order"
    kpipe("run", "live")
    assert kpipe.sql("SELECT id FROM live ORDER BY id") == [(0,), (3,)]
    assert kpipe.json("verify", "live")[0]["ok"]


@pytest.mark.parametrize(("more", "refused"), [(0, False), (8, True)])
def test_a_backfill_replaces_rows_of_a_topic_that_was_read_before(
    kpipe: Kpipe, topic: Any, produce: Any, more: int, refused: bool
) -> None:
    """Rows of the first topic have higher offsets; where both topics have the same ones, rows are not told apart."""
    into = {"table": "live", "key": ["id"], "on_conflict": "replace"}
    first, second = topic(1), topic(1)
    produce(first, [row(at, n=at) for at in (3, 2, 1, 0)] + [row(at % 3, n=at) for at in range(more)])
    produce(second, [row(at, n=1000 + at) for at in range(4)])
    kpipe.define("live", first, into=into)
    kpipe("run", "live")
    kpipe.define("live", second, into=into, source={"start": "latest"})
    kpipe("run", "live")
    produce(second, [row(9, n=1004)])
    kpipe("run", "live")
    if refused:
        error = kpipe("sql", "BACKFILL PIPELINE live", status=2).stderr
        assert f"{second}/0 [0, 4) cannot be read behind later offsets" in error and "SET OFFSETS ... REREAD" in error
        kpipe("sql", "ALTER PIPELINE live SET OFFSETS '{\"0\": 0}' REREAD")
    else:
        kpipe("sql", "BACKFILL PIPELINE live")
    kpipe("run", "live")
    found = {0: 1000, 1: 1001, 2: 1002, 3: 1003, 9: 1004}
    assert dict(kpipe.sql("SELECT id, n FROM live")) == found
    assert kpipe.json("verify", "live")[0]["ok"]


def test_what_came_back_behind_its_tombstone_is_not_proven(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    """Offsets that were skipped are read with `on_null: skip`, behind tombstones that were read with `delete`."""
    name = topic(1)
    produce(name, [row(1, n=1), row(2, n=2), (1, None)])
    into = {"table": "live", "key": ["id"], "on_conflict": "replace"}
    kpipe.define("live", name, into={**into, "on_null": "delete"}, source={"start": {"0": 1}})
    kpipe("run", "live")
    assert kpipe.json("verify", "live")[0]["ok"]
    kpipe.define("live", name, into=into, source={"start": {"0": 1}})
    kpipe("sql", "BACKFILL PIPELINE live")
    kpipe("run", "live")
    assert kpipe.sql("SELECT id FROM live ORDER BY id") == [(1,), (2,)]
    (problem,) = kpipe.json("verify", "live", status=1)[0]["problems"]
    assert "has inserted rows behind the tombstones of [1, 3)" in problem


def test_the_clauses_of_statements(kpipe: Kpipe, topic: Any, produce: Any, brokers: str) -> None:
    name = topic(2)
    kpipe("sql", "CREATE TABLE stock (id BIGINT PRIMARY KEY, city VARCHAR, n BIGINT)")
    for table in ("kept", "summed"):
        kpipe("sql", f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, city VARCHAR, n BIGINT)")
    load = f"AS LOAD DATA KAFKA '{brokers}/{name}'"
    kpipe("sql", f"CREATE PIPELINE stock {load} REPLACE INTO TABLE stock FORMAT JSON")
    kpipe("sql", f"CREATE PIPELINE kept {load} SKIP DUPLICATE KEY ERRORS INTO TABLE kept FORMAT JSON")
    update = "ON DUPLICATE KEY UPDATE n = n + VALUES(n), city = upper(VALUES(city))"
    kpipe("sql", f"CREATE PIPELINE summed {load} INTO TABLE summed FORMAT JSON {update}")
    for partition in (0, 1):
        produce(name, [row(partition, city="a", n=1), row(partition, city="b", n=10), row(partition, city="c", n=100)], partition)
    for table in ("stock", "kept", "summed"):
        kpipe("run", table)
    produce(name, [row(0, city="d", n=1000)])
    for table in ("stock", "kept", "summed"):
        kpipe("run", table)
        assert kpipe.json("verify", table)[0]["ok"]
    assert kpipe.sql("SELECT id, city, n FROM stock ORDER BY id") == [(0, "d", 1000), (1, "c", 100)]
    assert kpipe.sql("SELECT id, city, n FROM kept ORDER BY id") == [(0, "a", 1), (1, "a", 1)]
    assert kpipe.sql("SELECT id, city, n FROM summed ORDER BY id") == [(0, "D", 1111), (1, "C", 111)]


def test_duplicates_are_set_aside_whole_and_the_batch_goes_on(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    name = topic(1)
    kpipe("sql", "CREATE TABLE once (id BIGINT PRIMARY KEY, n BIGINT)")
    produce(name, [row(1, n=1), row(2, n=2), row(1, n=3)])
    kpipe.define("once", name, into={"table": "once"})
    assert "key" in kpipe("run", "once", status=1).stderr
    assert kpipe.sql("SELECT count(*) FROM once") == [(0,)]
    kpipe.define("once", name, into={"table": "once"}, errors={"duplicate_key": "dead_letter"})
    line = kpipe.json("run", "once")[0]
    assert (line["rows"], line["dead_letters"], line["inserted"]) == (2, 1, 2)
    (letter,) = [error for error in kpipe.json("errors", "once") if error["dead_letter"]]
    assert (letter["stage"], letter["offset"], letter["key"], json.loads(letter["load_data_line"])) == (
        "duplicate_key", 2, "1", {"id": 1, "n": 3},
    )  # fmt: skip
    assert kpipe.json("verify", "once")[0]["ok"]


def test_a_key_that_cannot_be_is_said(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    name = topic(1)
    produce(name, [row(1, n=1), (2, {"n": 2})])
    kpipe.define("none", name, into={"table": "none", "on_conflict": "replace"})
    assert "into.key" in kpipe("run", "none", status=2).stderr
    kpipe.define("other", name, into={"table": "other", "key": ["nope"], "on_conflict": "replace"})
    assert "key column nope does not exist" in kpipe("run", "other", status=1).stderr
    kpipe.define("some", name, into={"table": "some", "key": ["ID"], "on_conflict": "replace"})
    line = kpipe.json("run", "some")[0]
    assert (line["rows"], line["dead_letters"]) == (1, 1)
    assert "key column id is NULL or missing" in kpipe.json("errors", "some")[0]["error_message"]


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["commit.data", "commit.before", "commit.after"])
def test_killed_in_the_commit_and_run_again(kpipe: Kpipe, topic: Any, produce: Any, point: str) -> None:
    """Counted values tell a write that was applied twice, or not at all."""
    name = topic(1)
    produce(name, [row(at % 5, n=1) for at in range(90)] + [(3, None), row(3, n=1)])
    kpipe.define(
        "sums",
        name,
        batch={"max_offsets_per_partition": 30},
        into={"table": "sums", "key": ["id"], "on_conflict": "update", "update": {"n": "n + excluded.n"}, "on_null": "delete"},
    )
    assert kpipe.outside("run", "sums", status=None, KPIPE_FAULT=f"{point}:3:kill").returncode == -signal.SIGKILL
    kpipe("run", "sums")
    assert kpipe.sql("SELECT id, n FROM sums ORDER BY id") == [(0, 18), (1, 18), (2, 18), (3, 1), (4, 18)]
    proof = kpipe.json("verify", "sums")[0]
    assert proof["ok"] and (proof["inserted"], proof["updated"], proof["deleted"]) == (6, 85, 1)
