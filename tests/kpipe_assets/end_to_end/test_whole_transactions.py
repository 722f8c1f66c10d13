"""`batch.cut: transaction` from the outside: real Kafka, real Spark, real DuckDB, and records as Debezium writes them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.commandline import Kpipe
from tests.registry import framed
from tests.resources.decode.debezium.encodings import Encoding


class Source:
    """What Debezium writes of two tables, `people` and `prices`."""

    def __init__(self, brokers: str, stem: str, encoding: Encoding) -> None:
        self.producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
        self.stem, self.encoding = stem, encoding

    def send(self, table: str, key: int | None, value: bytes | None) -> None:
        self.producer.produce(f"{self.stem}.{table}", value, None if key is None else self.encoding.key(key), 0)
        assert self.producer.flush(120) == 0

    def row(self, table: str, op: str, id: int, n: int | None, transaction: Any = None, snapshot: str = "false") -> None:
        before, after = ({"id": id}, None) if op == "d" else (None, {"id": id, "n": n})
        self.send(table, id, self.encoding.event(op, after, before, transaction, snapshot))
        if op == "d":
            self.send(table, id, None)

    def event(self, table: str, op: str, id: int, n: int | None, number: int, order: int = 1) -> None:
        """Write an event of a transaction; PostgreSQL's identifiers differ in the second part."""
        self.row(table, op, id, n, block(number, order))

    def mark(self, number: int, **counts: int) -> None:
        """Write BEGIN, or with counts END."""
        self.send("transaction", None, self.encoding.boundary(f"{number}:999", counts or None))


def block(number: int, order: int) -> dict[str, Any]:
    return {"id": f"{number}:{1000 + order}", "total_order": order, "data_collection_order": order}


def test_each_commit_is_a_state_of_the_source(kpipe: Kpipe, family: Any) -> None:
    stem, make = family
    topics = [make("people"), make("prices"), make("transaction")]
    people, prices = (name.replace("-", "_").replace(".", "_") for name in topics[:2])
    source = Source(kpipe.brokers, stem, Encoding("json", ""))
    fields = {"format": {"type": "debezium"}, "batch": {"cut": "transaction"}}
    for name, into, named in (("shop", "{topic}", topics), ("alone", "alone", topics[::2])):
        kpipe.define(name, "", source={"topic": None, "topics": named}, into={"table": into, "key": ["id"]}, **fields)

    def state() -> list[list[tuple[int, int]]]:
        return [kpipe.sql(f"SELECT id, n FROM {table} ORDER BY 1") for table in (people, prices)]

    source.row("people", "r", 1, 0, snapshot="first")
    source.row("people", "r", 2, 0, snapshot="last_in_data_collection")
    assert "wait for the snapshot of topic" in kpipe("run", "shop").stdout
    source.row("prices", "r", 1, 0, snapshot="last")
    source.mark(10)
    source.event("people", "u", 1, 10, 10)
    source.event("prices", "c", 2, 10, 10)
    source.mark(10, people=1, prices=1)
    source.mark(11)
    source.event("people", "d", 2, None, 11)
    line = kpipe.json("run", "shop")[0]
    assert (line["rows"], line["filtered"], line["closed_by"]) == (5, 2, "transaction")
    assert state() == [[(1, 10), (2, 0)], [(1, 0), (2, 10)]]
    assert "wait for the end of the newest transaction of the source" in kpipe("run", "shop").stdout
    source.mark(11, people=1, prices=1)
    assert f"wait for events of transaction 11 in topic {topics[1]}" in kpipe("run", "shop").stdout
    assert "shop: unread offsets wait for events of transaction 11" in kpipe("status").stdout
    source.event("prices", "d", 1, None, 11)
    kpipe("run", "shop")
    assert state() == [[(1, 10)], [(2, 10)]]
    assert "wait for" not in kpipe("status").stdout
    # Debezium was killed, and writes the last two transactions again.
    source.mark(10)
    source.event("people", "u", 1, 10, 10)
    kpipe("run", "shop")
    source.event("prices", "c", 2, 10, 10)
    source.mark(10, people=1, prices=1)
    source.mark(11)
    source.event("people", "d", 2, None, 11)
    kpipe("run", "shop")
    source.event("prices", "d", 1, None, 11)
    source.mark(11, people=1, prices=1)
    source.mark(12)
    source.event("people", "c", 5, 12, 12)
    source.mark(12, people=1)
    kpipe("run", "shop")
    assert state() == [[(1, 10), (5, 12)], [(2, 10)]]
    # One table is none for each topic; transactions of other tables alone are read, too.
    kpipe("run", "alone")
    source.mark(13)
    source.mark(13, other=1)
    assert kpipe.json("run", "alone")[0]["filtered"] == 2
    assert kpipe.sql("SELECT id, n FROM alone ORDER BY 1") == [(1, 10), (5, 12)]
    # A TRUNCATE is an event of a transaction; the transaction topic does not count as another partition of the table.
    source.mark(14)
    source.send("people", None, source.encoding.event("t", transaction=block(14, 1)))
    source.event("people", "c", 7, 14, 14, order=2)
    source.mark(14, people=2)
    for name in ("shop", "alone"):
        kpipe("run", name)
    assert kpipe.sql("SELECT id, n FROM alone") == [(7, 14)] and state() == [[(7, 14)], [(2, 10)]]
    for name in ("shop", "alone"):
        proof = kpipe.json("verify", name)[0]
        assert proof["ok"] and proof["dead_letters"] == 0
    assert "a batch has all partitions" in kpipe("run", "shop", "--partitions", f"{topics[0]}:0", status=None).stderr


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_transactions_behind_a_registry(kpipe: Kpipe, family: Any, registry_url: str, name: str) -> None:
    stem, make = family
    topics = [make("people"), make("prices"), make("transaction")]
    people, prices = (name.replace("-", "_").replace(".", "_") for name in topics[:2])
    source = Source(kpipe.brokers, stem, Encoding(name, registry_url))
    kpipe.define(
        "shop", "", source={"topic": None, "topics": topics}, into={"table": "{topic}", "key": ["id"]},
        format={"type": "debezium", "registry": registry_url},
        batch={"cut": "transaction", "max_retries": 1, "retry_interval_ms": 1},
    )  # fmt: skip

    def state() -> list[list[tuple[int, int]]]:
        return [kpipe.sql(f"SELECT id, n FROM {table} ORDER BY 1") for table in (people, prices)]

    source.row("people", "r", 1, 0, snapshot="first")
    source.row("people", "r", 2, 0, snapshot="last_in_data_collection")
    source.row("prices", "r", 1, 0, snapshot="last")
    source.mark(10)
    source.event("people", "u", 1, 10, 10)
    source.event("prices", "c", 2, 10, 10)
    source.mark(10, people=1, prices=1)
    source.mark(11)
    source.event("people", "d", 2, None, 11)
    source.mark(11, people=1, prices=1)
    line = kpipe.json("run", "shop")[0]
    assert (line["rows"], line["filtered"], line["closed_by"]) == (5, 2, "transaction")
    assert state() == [[(1, 10), (2, 0)], [(1, 0), (2, 10)]]
    assert f"wait for events of transaction 11 in topic {topics[1]}" in kpipe("run", "shop").stdout
    source.event("prices", "d", 1, None, 11)
    kpipe("run", "shop")
    assert state() == [[(1, 10)], [(2, 10)]]
    # Debezium was killed, and writes both transactions again, but not yet all of the second.
    source.mark(10)
    source.event("people", "u", 1, 10, 10)
    source.event("prices", "c", 2, 10, 10)
    source.mark(10, people=1, prices=1)
    source.mark(11)
    source.event("people", "d", 2, None, 11)
    kpipe("run", "shop")
    assert state() == [[(1, 10)], [(2, 10)]]
    # The task might find the schema of a record later than the plan, which so does not know its transaction.
    source.send("people", 9, framed(2**31 - 1, b"\x02"))
    error = kpipe("run", "shop", status=1).stderr
    assert "which transaction the record belongs to is unknown: schema 2147483647 is not in the registry" in error
    proof = kpipe.json("verify", "shop")[0]
    assert proof["ok"] and proof["dead_letters"] == 0


def test_what_splits_transactions_is_refused(kpipe: Kpipe, family: Any) -> None:
    stem, make = family
    source = {"topic": None, "topics": [make("people"), make("transaction")]}
    fields = {"format": {"type": "debezium"}, "into": {"table": "people", "key": ["id"]}}
    kpipe.define("bounded", "", source={**source, "end": "latest"}, batch={"cut": "transaction"}, **fields)
    assert "batch.cut: transaction: not available with source.end" in kpipe("run", "bounded", status=None).stderr
    kpipe.define("without", "", source=source, batch={"cut": "transaction"}, **fields)
    Source(kpipe.brokers, stem, Encoding("json", "")).row("people", "c", 1, 1)
    error = kpipe("run", "without", status=1).stderr
    assert "offset 0: a change (op c) without transaction metadata" in error and "provide.transaction.metadata=true" in error
