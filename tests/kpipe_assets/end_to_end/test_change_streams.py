"""Change events of Debezium from the outside: real Kafka, real Spark, real DuckDB."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from tests.commandline import Kpipe
from tests.resources.decode.debezium.messages import CONNECT, PLACEHOLDER, TIME, change, key, kind, unscaled

FIELDS = [
    kind("id", "int32"), kind("name", "string"), kind("at", "int64", TIME + "MicroTimestamp"),
    kind("amount", "bytes", CONNECT + "Decimal", parameters={"scale": "2", "connect.decimal.precision": "12"}),
]  # fmt: skip


def row(number: int, name: str = PLACEHOLDER, cents: int = 0) -> dict[str, Any]:
    return {"id": number, "name": name, "at": 1_700_000_000_000_000 + number, "amount": unscaled(cents)}


def event(op: str, number: int, name: str = PLACEHOLDER, cents: int = 0) -> tuple[bytes, bytes]:
    after = row(number, name, cents) if op != "d" else None
    before = None if op != "d" else {"id": number}
    return key(FIELDS[:1], id=number), change(op, after, before, FIELDS)


@pytest.fixture
def produce(brokers: str) -> Any:
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})

    def send(topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
        for name, value in records:
            producer.produce(topic, value, name, 0)
        assert producer.flush(120) == 0

    return send


def test_a_table_follows_its_source(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    name = topic(1)
    long = "x" * 5000
    # A snapshot; then a changed primary key (a delete, a tombstone and an insert), and deletes with and without tombstone.
    produce(name, [event("r", at, long if at == 3 else f"r{at}", at) for at in range(6)])
    inferred = kpipe(
        "sql", f"INFER PIPELINE AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE people FORMAT DEBEZIUM"
    ).stdout
    assert '"amount" DECIMAL(12,2)' in inferred and "INTO TABLE `people` KEY (`id`)" in inferred
    kpipe(
        "sql",
        f"CREATE PIPELINE people AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE people KEY (id) FORMAT DEBEZIUM",
    )
    assert "FORMAT DEBEZIUM" in kpipe("sql", "SHOW CREATE PIPELINE people").stdout
    tested = kpipe("sql", "TEST PIPELINE people LIMIT 6").stdout
    assert "r5" in tested and "2023-11-14 22:13:20.000005" in tested and "_kafka_unchanged" not in tested
    line = kpipe.json("run", "people")[0]
    assert (line["rows"], line["inserted"]) == (6, 6)
    types = dict(kpipe.sql("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'people'"))
    assert [types[column] for column in ("id", "name", "at", "amount")] == ["INTEGER", "VARCHAR", "TIMESTAMP", "DECIMAL(12,2)"]
    produce(name, [
        event("d", 0), (key(FIELDS[:1], id=0), None), event("c", 100, "moved"), event("d", 1), event("u", 2, "two", 250),
        (None, change("m", fields=FIELDS)), event("c", 1, "again"), event("d", 1), event("u", 3, cents=7), event("u", 3, cents=8),
    ])  # fmt: skip
    line = kpipe.json("run", "people")[0]
    counted = ("messages", "rows", "deletes", "filtered", "dead_letters", "inserted", "updated", "deleted")
    assert [line[name] for name in counted] == [10, 5, 4, 1, 0, 2, 3, 3]
    found = {number: (text, str(amount)) for number, text, amount in kpipe.sql("SELECT id, name, amount FROM people")}
    assert found == {
        100: ("moved", "0.00"), 2: ("two", "2.50"), 3: (long, "0.08"), 4: ("r4", "0.04"), 5: ("r5", "0.05"),
    }  # fmt: skip
    proof = kpipe.json("verify", "people")[0]
    assert proof["ok"] and (proof["rows"], proof["inserted"], proof["deleted"]) == (11, 8, 3)
    # A truncate stops the pipeline or empties the table, in order.
    statement = (
        f"CREATE OR REPLACE PIPELINE people AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'"
        """ OPTIONS '{"format": {"truncate": "fail"}}' INTO TABLE people KEY (id) FORMAT DEBEZIUM"""
    )
    kpipe("sql", statement)
    produce(name, [event("u", 4, "four"), (None, change("t", fields=FIELDS)), event("c", 9, "nine"), event("c", 2, "new")])
    error = kpipe("run", "people", status=1).stderr
    assert "offset 17: a TRUNCATE of the source's table" in error and "format.truncate: apply" in error
    kpipe("sql", statement.replace("fail", "apply"))
    line = kpipe.json("run", "people")[0]
    assert [line[name] for name in ("rows", "deletes", "inserted", "updated", "deleted")] == [3, 1, 2, 1, 5]
    assert dict(kpipe.sql("SELECT id, name FROM people")) == {9: "nine", 2: "new"}
    assert kpipe.json("verify", "people")[0]["ok"]
    # An update of a row that is missing has no value to keep.
    produce(name, [event("u", 55, cents=1)])
    error = kpipe("run", "people", status=1).stderr
    assert "offset 20: an update left out name, which it did not change, and table people has no row of its key" in error
    assert kpipe.json("verify", "people")[0]["ok"] and kpipe.sql("SELECT count(*) FROM people") == [(2,)]


def test_definitions_that_do_not_fit(kpipe: Kpipe, topic: Any) -> None:
    from kpipe.definition.pipeline import Pipeline

    base = {"name": "p", "source": {"brokers": kpipe.brokers, "topic": topic(1)}, "format": {"type": "debezium"}}
    made = Pipeline.model_validate({**base, "into": {"table": "t", "key": ["id"]}})
    assert (made.into.on_conflict, made.into.on_null) == ("replace", "delete")
    assert Pipeline.model_validate(made.to_dict()) == made
    with pytest.raises(ValueError, match=r"into\.on_null: expected delete with format: debezium, found skip"):
        Pipeline.model_validate({**base, "into": {"table": "t", "on_null": "skip"}})
    with pytest.raises(ValueError, match="truncate is an option of debezium, not of json"):
        Pipeline.model_validate({**base, "format": {"truncate": "skip"}, "into": {"table": "t"}})
    for number, (more, words) in enumerate([
        ({"key_format": {"type": "json"}}, "format: debezium with key_format"),
        ({"format": {"type": "debezium", "types": {"a": "x"}}}, "unknown semantic type 'x'"),
    ]):  # fmt: skip
        fields = {"source": base["source"], "format": base["format"], "into": {"table": "t", "key": ["id"]}, **more}
        kpipe.define(f"wrong{number}", base["source"]["topic"], **{k: v for k, v in fields.items() if k != "source"})
        assert words in kpipe("run", f"wrong{number}", status=2).stderr


def test_each_table_of_the_source_has_its_own(kpipe: Kpipe, family: Any, produce: Any) -> None:
    stem, make = family
    people, prices = make("people"), make("prices")
    fields = [FIELDS[0], kind("price", "double")]

    def price(op: str, number: int, value: float | None = None) -> tuple[bytes, bytes]:
        after = None if op == "d" else {"id": number, "price": value}
        return key(fields[:1], id=number), change(op, after, {"id": number} if op == "d" else None, fields)

    produce(people, [event("r", at, f"p{at}", at) for at in range(4)])
    produce(prices, [price("r", at, at / 2) for at in range(3)])
    kpipe(
        "sql",
        f"CREATE PIPELINE copy AS LOAD DATA KAFKA '{kpipe.brokers}' TOPIC PATTERN '^{stem}[.]'"
        " INTO TABLE `{topic}` KEY (id) FORMAT DEBEZIUM",
    )
    assert kpipe.json("run", "copy")[-1]["inserted"] == 7
    of_people, of_prices = (name.replace("-", "_").replace(".", "_") for name in (people, prices))
    produce(people, [event("d", 0), event("u", 2, "two", 5)])
    produce(prices, [(None, change("t", fields=fields)), price("c", 9, 1.5)])
    kpipe("run", "copy")
    assert kpipe.sql(f"SELECT id, name FROM {of_people} ORDER BY 1") == [(1, "p1"), (2, "two"), (3, "p3")]
    assert kpipe.sql(f"SELECT id, price FROM {of_prices}") == [(9, 1.5)], "TRUNCATE empties its own table"
    assert kpipe.json("verify", "copy")[0]["ok"]


def lake_rows(kpipe: Kpipe) -> list[dict[str, Any]]:
    table = SqlCatalog("kpipe", uri=f"sqlite:///{kpipe.home}/data/iceberg/catalog.db").load_table("default.lake")
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return found


def test_a_lake_follows_its_source(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    """Deletes, values that an update left out, and TRUNCATE, in Iceberg."""
    name, long = topic(1), "x" * 5000
    produce(name, [event("r", at, long if at == 3 else f"r{at}", at) for at in range(5)])
    kpipe.define("lake", name, format={"type": "debezium"}, into={"type": "iceberg", "table": "lake", "key": ["id"]})
    assert kpipe.json("run", "lake")[0]["rows"] == 5
    produce(name, [
        event("d", 0), (key(FIELDS[:1], id=0), None), event("u", 1, "one"), event("d", 2), event("c", 7, "seven"),
        event("u", 3, cents=8), event("u", 7, cents=9),
    ])  # fmt: skip
    counted = ("rows", "deletes", "inserted", "updated", "deleted")
    line = kpipe.json("run", "lake")[0]
    assert [line[name] for name in counted] == [4, 3, 1, 3, 2]
    found = {row["id"]: (row["name"], str(row["amount"])) for row in lake_rows(kpipe)}
    assert found == {1: ("one", "0.00"), 3: (long, "0.08"), 4: ("r4", "0.04"), 7: ("seven", "0.09")}
    assert kpipe.json("verify", "lake")[0]["ok"]
    produce(name, [event("u", 4, "four"), (None, change("t", fields=FIELDS)), event("c", 9, "nine"), event("u", 9, cents=5)])
    line = kpipe.json("run", "lake")[0]
    assert [line[name] for name in counted] == [3, 1, 1, 2, 4]
    assert [(row["id"], row["name"], str(row["amount"])) for row in lake_rows(kpipe)] == [(9, "nine", "0.05")]
    produce(name, [event("u", 55, cents=1)])
    error = kpipe("run", "lake", status=1).stderr
    assert "offset 16: an update left out name, which it did not change, and table lake has no row of its key" in error
    assert kpipe.json("verify", "lake")[0]["ok"] and len(lake_rows(kpipe)) == 1


def test_where_a_change_went(kpipe: Kpipe, topic: Any, produce: Any) -> None:
    """Trace, dead letters and their retry know deletes that have a value."""
    name = topic(1)
    bad = change("u", {**row(1, "x"), "amount": "?"}, fields=FIELDS)
    produce(name, [event("c", 1, "one"), event("c", 2, "two"), event("d", 1), (key(FIELDS[:1], id=2), bad), (None, b"{}")])
    kpipe.define("gone", name, format={"type": "debezium"}, into={"table": "gone", "key": ["id"]})
    line = kpipe.json("run", "gone")[0]
    assert [line[name] for name in ("rows", "deletes", "deleted", "dead_letters")] == [2, 1, 1, 2]
    for offset, words in ((0, "row"), (2, "delete"), (3, "dead letter")):
        assert words in kpipe("trace", "gone", f"{name}:0:{offset}", status=None).stdout, offset
    assert {letter["offset"] for letter in kpipe.json("errors", "gone")} == {3, 4}
    kpipe("errors", "gone", "--retry", status=None)
    assert kpipe.json("verify", "gone")[0]["ok"] and kpipe.sql("SELECT id, name FROM gone") == [(2, "two")]
