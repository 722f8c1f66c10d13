"""Rows with a key in a lake, from the outside: real Kafka, real Spark, definitions in YAML and in statements."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from tests.commandline import Kpipe


def test_iceberg_with_a_key(kpipe: Kpipe, topic: Any, brokers: str) -> None:
    """Replaced, deleted, read back, verified, traced; then the same table by a statement with other rules."""
    name = topic(1)
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})

    def produce(*records: tuple[int, str | None]) -> None:
        for key, value in records:
            producer.produce(name, value, str(key), 0)
        assert producer.flush(120) == 0

    def rows() -> list[tuple[int, int, str]]:
        lake = kpipe.home / "data" / "iceberg"
        table = SqlCatalog("kpipe", uri=f"sqlite:///{lake}/catalog.db").load_table("default.live")
        return sorted((row["id"], row["n"], row["country"]) for row in table.scan().to_arrow().to_pylist())

    def write(number: int, n: int) -> tuple[int, str]:
        return number, f'{{"id": {number}, "n": {n}, "country": "{"abc"[n % 3]}"}}'

    produce(*(write(at % 100, at) for at in range(1000)))
    into = {"type": "iceberg", "table": "live", "key": ["id"], "on_conflict": "replace", "on_null": "delete"}
    kpipe.define("live", name, into={**into, "partition_by": ["country"]}, batch={"max_offsets_per_partition": 400})
    lines = [line for line in kpipe.json("run", "live") if "inserted" in line]
    assert (lines[-1]["inserted"], lines[-1]["updated"]) == (100, 900)
    assert rows() == [(number, 900 + number, "abc"[(900 + number) % 3]) for number in range(100)]
    produce(write(7, 8), (8, None), (5000, None), write(9, 1), (9, None))
    line = kpipe.json("run", "live")[-1]
    assert (line["rows"], line["deletes"], line["inserted"], line["updated"], line["deleted"]) == (2, 3, 0, 2, 2)
    assert {row[0] for row in rows()} == set(range(100)) - {8, 9} and (7, 8, "c") in rows()
    proof = kpipe.json("verify", "live")[0]
    assert proof["ok"] and (proof["inserted"], proof["deleted"]) == (100, 2)
    assert "replaced" in kpipe("trace", "live", f"{name}:0:3").stdout
    kpipe.define("live", name, into={**into, "on_conflict": "update", "update": {"n": "n + excluded.n"}})
    produce(write(7, 100), write(8, 1), write(7, 1000))
    line = kpipe.json("run", "live")[-1]
    assert (line["inserted"], line["updated"]) == (1, 2) and (7, 1108, "c") in rows() and kpipe.json("verify", "live")[0]["ok"]
    table = SqlCatalog("kpipe", uri=f"sqlite:///{kpipe.home}/data/iceberg/catalog.db").load_table("default.live")
    table.append(table.scan(row_filter="id = 7").to_arrow())
    assert "more than once" in kpipe("verify", "live", status=1).stderr
