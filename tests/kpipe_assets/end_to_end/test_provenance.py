"""`kpipe trace` and `kpipe as-of` from the outside: real Kafka, real Spark, real tables, and the queries that are printed."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.commandline import Kpipe
from tests.survival.small import killed

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def records(start: int, end: int, **more: Any) -> list[str]:
    return [json.dumps({"id": n, "text": f"t{n}", **more}) for n in range(start, end)]


def one(kpipe: Kpipe, *arguments: str) -> dict[str, Any]:
    (found,) = kpipe.json("trace", *arguments)
    return found


def made(kpipe: Kpipe, *arguments: str) -> list[Any]:
    """What the readings of an offset made of it."""
    return [reading["decision"] for reading in one(kpipe, *arguments)["readings"]]


def test_offsets_of_two_tables_and_back_from_rows(kpipe: Kpipe, topic: Any, write: Any) -> None:
    name = topic(2)
    lines = [{"sku": "a", "quantity": 1}, {"sku": "b", "quantity": 2}]
    orders = [
        json.dumps({"id": 1, "lines": lines}), json.dumps({"id": 2, "lines": []}), "{broken", None,
        json.dumps({"id": 4, "lines": lines}),
    ]  # fmt: skip
    write(name, orders, 0)
    unnested = "SELECT id, line.sku AS sku, line.quantity AS quantity FROM records, UNNEST(lines) AS t(line)"
    kpipe.define(
        "shop", name, columns={"lines": "STRUCT(sku VARCHAR, quantity BIGINT)[]"}, select="SELECT id FROM records",
        also=[{"table": "order_lines", "select": unnested}], into={"table": "orders"}, batch={"max_offsets_per_partition": 4},
    )  # fmt: skip
    before = one(kpipe, f"{name}:0:0")
    assert (before["state"], before["readings"], before["kafka"]["high"]) == ("no_lane", [], 5)
    kpipe("run", "shop")
    first = one(kpipe, f"{name}:0:0")
    (reading,) = first["readings"]
    assert (first["pipeline"], first["state"], first["determined"]) == ("shop", "read", True)
    assert (reading["decision"], reading["rows_found"]) == ("row", {"orders": 1, "order_lines": 2})
    newest = {row["seq"]: row["batch_id"] for row in kpipe.json("batches", "shop")}
    assert newest[reading["seq"]] == reading["batch"] and reading["range"] == [0, 4]
    assert one(kpipe, "shop", f"{name}:0:1")["readings"][0]["rows_found"] == {"orders": 1}
    (letter,) = one(kpipe, f"{name}:0:2")["readings"]
    assert letter["decision"] == "dead_letter" and letter["errors"][0]["stage"] == "parse" and letter["retried"] == "no"
    assert made(kpipe, f"{name}:0:3") == ["filtered"]
    waiting = one(kpipe, f"{name}:0:9")
    assert (waiting["state"], waiting["behind"], waiting["kafka"]["end"]) == ("not_read", 4, 5)
    assert "the offset does not exist yet" in kpipe("trace", f"{name}:0:9").stdout
    shown = kpipe("trace", f"{name}:0:0").stdout
    assert "1 row of table orders and 2 rows of table order_lines" in shown and f"commit {reading['seq']} (batch)" in shown
    # Back: from rows to the offset, by values that are bound.
    (row,) = kpipe.json("trace", "shop", "--where", "id=4")
    assert (row["row"], [item["offset"] for item in row["offsets"]]) == ({"topic": None, "partition": 0, "offset": 4}, [4])
    two = kpipe.json("trace", "shop", "--table", "order_lines", "--where", "id=1")
    assert [item["row"]["offset"] for item in two] == [0, 0]
    assert kpipe.json("trace", "shop", "--where", "id=99") == []
    assert "no row matches" in kpipe("trace", "shop", "--where", "_kafka_offset=77").stdout
    for wrong in (("--where", "id=1 OR true"), ("--where", "nope=1"), ("--table", "kpipe_batches", "--where", "seq=1")):
        kpipe("trace", "shop", *wrong, status=2)
    for wrong in (("shop",), ("--where", "id=1"), (f"{name}:0:-1",), (f"{name}:0",), ("a", "b", f"{name}:0:1"), ("x:0:1",)):
        kpipe("trace", *wrong, status=2)
    kpipe.define("shop2", name, into={"table": "other"})
    assert "shop, shop2" in kpipe("trace", f"{name}:0:0", status=2).stderr

    # As of: a database keeps no snapshots; rows are selected by their coordinates.
    state = kpipe.json("as-of", "shop", "--offsets", f"{name}:0=4,{name}:1=0")[0]
    assert (state["exact"], state["in"], state["missing"]) == (True, {f"{name}:0": [[0, 4]]}, {})
    query = next(item["queries"]["duckdb"] for item in state["tables"] if item["table"] == "order_lines")
    assert kpipe.sql(query.replace("SELECT *", "SELECT id, sku", 1) + " ORDER BY ALL") == [(1, "a"), (1, "b")]
    assert all("keeps no snapshots" in item["statement"] for item in state["tables"])
    middle = kpipe.json("as-of", "shop", "--offsets", "0=2,1=0")[0]
    assert (middle["exact"], middle["seq"], middle["missing"]) == (False, None, {f"{name}:0": [[0, 2]]})
    assert len(kpipe.sql(middle["tables"][0]["queries"]["duckdb"])) == 2, "by coordinates, rows are exact all the same"
    for wrong in ("7=1", "nope:0=1", "0=-1", "0=1,0=2", "0", ""):
        kpipe("as-of", "shop", "--offsets", wrong, status=2)
    kpipe("as-of", "shop", status=2)
    kpipe("as-of", "shop", "--time", "yesterday", status=2)

    # The rows of another pipeline have the same coordinates.
    kpipe.define("shop2", name, columns={"lines": "JSON"}, into={"table": "orders"})
    kpipe("run", "shop2")
    (first, _) = kpipe.json("as-of", "shop", "--offsets", "0=4")[0]["tables"]
    assert "pipeline shop2" in first["statement"]
    assert one(kpipe, "shop", f"{name}:0:0")["readings"][0]["rows_unattributed"] == {"orders": 2}

    # Read again: both readings are named, and a later one is ahead.
    kpipe("sql", "ALTER PIPELINE shop SET OFFSETS '{\"0\": 4}' REREAD")
    pending = one(kpipe, "shop", f"{name}:0:4")
    assert (pending["state"], pending["pending"], len(pending["rereads"])) == ("read", True, 1)
    kpipe("run", "shop")
    again = one(kpipe, "shop", f"{name}:0:4")
    assert [reading["decision"] for reading in again["readings"]] == ["row", "row"] and not again["pending"]
    assert len({reading["batch"] for reading in again["readings"]}) == 2
    assert "read 2 times: row" in kpipe("trace", "shop", f"{name}:0:4").stdout


def test_gaps_filtered_records_and_retried_dead_letters(kpipe: Kpipe, topic: Any, write: Any, brokers: str) -> None:
    name = topic(1)
    write(name, ['{"id": 1, "at": "24.12.2026"}', '{"id": 2, "at": "2026-12-25"}'], 0)
    producer = Producer(
        {"bootstrap.servers": brokers, "transactional.id": f"of-{name}", "transaction.timeout.ms": 600_000, "log_level": 0}
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(name, '{"id": 3, "at": "2026-12-26"}')
    producer.flush(120)
    producer.abort_transaction(120)  # offset 2, and the marker at 3, which the broker writes a little later
    with closing(Consumer({"bootstrap.servers": brokers, "group.id": name})) as consumer:
        while consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=120)[1] < 4:
            time.sleep(0.05)
    write(name, ['{"id": 4, "at": "2026-12-27"}', '{"id": -5, "at": "2026-12-28"}'], 0)  # 4 and 5
    kpipe.define("days", name, set={"day": 'CAST("at" AS DATE)'}, where="id > 0", errors={"constraint": "dead_letter"})
    kpipe("run", "days")
    assert [made(kpipe, f"{name}:0:{offset}") for offset in range(6)] == [
        ["dead_letter"], ["row"], ["gap"], ["gap"], ["row"], ["filtered"]
    ]  # fmt: skip
    assert one(kpipe, f"{name}:0:5")["kafka"]["present"] is True
    assert "filtered" in kpipe("trace", f"{name}:0:5").stdout
    # A retry with the same definition; then with a corrected one.
    kpipe("errors", "days", "--retry")
    assert one(kpipe, f"{name}:0:0")["readings"][0]["retried"] == "unknown"
    kpipe.define("days", name, set={"day": "CAST(strptime(\"at\", '%m-%d') AS DATE)"}, where="id > 0")
    kpipe("errors", "days", "--retry")
    assert one(kpipe, f"{name}:0:0")["readings"][0]["retried"] == "failed_again"
    kpipe.define("days", name, set={"day": "CAST(strptime(\"at\", '%d.%m.%Y') AS DATE)"}, where="id > 0")
    kpipe("errors", "days", "--retry")
    (reading,) = one(kpipe, f"{name}:0:0")["readings"]
    assert (reading["decision"], reading["retried"], reading["rows_found"]) == ("row", "unknown", {"days": 1})


def test_rows_with_a_key(kpipe: Kpipe, topic: Any, brokers: str) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})

    def write(*items: tuple[int, int | None]) -> None:
        for key, n in items:
            producer.produce(name, None if n is None else json.dumps({"id": key, "n": n}), str(key), 0)
        assert producer.flush(120) == 0

    kpipe.define("live", name, into={"table": "live", "key": ["id"], "on_conflict": "replace", "on_null": "delete"})
    write((1, 10), (2, 20), (1, 11))
    kpipe("run", "live")
    write((2, None), (3, 30))
    kpipe("run", "live")
    found = {offset: one(kpipe, f"{name}:0:{offset}")["readings"][0] for offset in range(5)}
    assert [found[offset]["decision"] for offset in range(3)] == ["row"] * 3
    assert [found[offset]["outcome"] for offset in range(3)] == ["superseded", "superseded", None]
    assert found[4]["decision"] == "row" and found[4]["rows_found"] == {"live": 1}
    # The tombstone is not a row of the range, but the row of its range could have been replaced meanwhile.
    assert set(found[3]["possible"]) == {"row", "delete"}
    (table,) = kpipe.json("as-of", "live", "--offsets", f"{name}:0=3")[0]["tables"]
    assert table["queries"] == {} and "replaced and deleted" in table["statement"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_snapshots_of_a_lake(kpipe: Kpipe, topic: Any, write: Any, tmp_path: Path, kind: str) -> None:
    name = topic(2)
    write(name, [*records(0, 4), "{broken", *records(5, 10)], 0)
    write(name, records(100, 103), 1)
    place = tmp_path / "a lake's"
    kpipe.define(
        "orders", name, into={"type": kind, "table": "orders", "database": str(place)}, batch={"max_offsets_per_partition": 3}
    )
    kpipe("run", "orders")
    batches = {row["seq"]: row for row in kpipe.json("batches", "orders")}
    assert len(batches) == 4
    lake = Lake(place, kind)

    for offset in range(10):
        (reading,) = one(kpipe, f"{name}:0:{offset}")["readings"]
        assert reading["decision"] == ("dead_letter" if offset == 4 else "row")
        mine = lake.rows(reading["snapshot"])
        assert ((0, offset) in mine) == (offset != 4), "the snapshot that it names has the row"
        assert {row for row in mine if row[0] == 0} == {(0, n) for n in range(reading["range"][1]) if n != 4}
    waiting = one(kpipe, f"{name}:1:5")
    assert (waiting["state"], waiting["behind"]) == ("not_read", 2)

    exact = kpipe.json("as-of", "orders", "--offsets", f"{name}:0=6,{name}:1=3")[0]
    (table,) = exact["tables"]
    assert (exact["exact"], exact["in"]) == (True, {f"{name}:0": [[0, 6]], f"{name}:1": [[0, 3]]})
    expected = {(0, n) for n in range(6) if n != 4} | {(1, n) for n in range(3)}
    assert lake.rows(table["snapshot"]) == expected and not table["narrowed"]
    assert lake.queried(table["queries"]["Python"]) == expected
    assert lake.by_duckdb(table["queries"]["DuckDB"]) in (expected, None)
    assert f"AS OF {table['snapshot']}" in table["queries"]["Spark SQL"]
    shown = kpipe("as-of", "orders", "--offsets", f"{name}:0=6,{name}:1=3").stdout
    assert "exact" in shown and "not exact" not in shown and table["queries"]["DuckDB"] in shown

    middle = kpipe.json("as-of", "orders", "--offsets", f"{name}:0=7,{name}:1=2")[0]
    (table,) = middle["tables"]
    assert not middle["exact"] and middle["seq"] is None, "the first batch has offset 2 of partition 1"
    assert middle["missing"] == {f"{name}:0": [[0, 7]], f"{name}:1": [[0, 2]]}
    condition = table["narrowed"]["DuckDB"].partition(" WHERE ")[2]
    expected_rows = {(0, n) for n in range(7) if n != 4} | {(1, 0), (1, 1)}
    assert lake.rows(table["narrowed_snapshot"], condition) == expected_rows
    assert lake.queried(table["narrowed"]["Python"]) == expected_rows

    # By time: before, at, and after each commit.
    for seq, row in sorted(batches.items()):
        found = kpipe.json("as-of", "orders", "--time", row["committed"])[0]
        assert found["seq"] == seq and found["batch"] == row["batch_id"]
        assert len(lake.rows(found["tables"][0]["snapshot"])) == sum(r["rows_inserted"] for s, r in batches.items() if s <= seq)
    assert kpipe.json("as-of", "orders", "--time", "2020-01-01")[0]["seq"] is None
    assert kpipe.json("as-of", "orders", "--time", "2999-01-01T00:00:00+02:00")[0]["seq"] == max(batches)

    # A backfill and other clients: what was in at a commit does not change.
    lake.rewritten()
    again = kpipe.json("as-of", "orders", "--offsets", f"{name}:0=6,{name}:1=3")[0]
    assert again["tables"][0]["snapshot"] == exact["tables"][0]["snapshot"]
    assert lake.rows(again["tables"][0]["snapshot"]) == expected
    assert made(kpipe, f"{name}:0:0") == ["row"] and made(kpipe, f"{name}:0:4") == ["dead_letter"]


class Lake:
    """A table of a lake, read by the format's own library."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind = place, kind

    def iceberg(self) -> Any:
        catalog = SqlCatalog("kpipe", uri=f"sqlite:///{self.place}/catalog.db", warehouse=str(self.place))
        return catalog.load_table("default.orders")

    def rows(self, text: str, condition: str = "true") -> set[tuple[int, int]]:
        snapshot = int(text)
        if self.kind == "delta":
            found = DeltaTable(str(self.place / "orders"), version=snapshot).to_pyarrow_table()
        else:
            found = self.iceberg().scan(snapshot_id=snapshot).to_arrow()
        with duckdb.connect() as connection:
            connection.register("lake", found)
            rows = connection.execute(f"SELECT _kafka_partition, _kafka_offset FROM lake WHERE {condition}").fetchall()
        assert len(set(rows)) == len(rows)
        return set(rows)

    def queried(self, query: str) -> set[tuple[int, int]]:
        """Execute the printed Python expression."""
        import deltalake

        catalog = SqlCatalog("kpipe", uri=f"sqlite:///{self.place}/catalog.db") if self.kind == "iceberg" else None
        found = eval(query, {"deltalake": deltalake, "catalog": catalog})
        table = (
            found.to_pyarrow_table() if isinstance(found, DeltaTable) else pa.table(getattr(found, "to_arrow", lambda: found)())
        )
        return {(row["_kafka_partition"], row["_kafka_offset"]) for row in table.to_pylist()}

    def by_duckdb(self, query: str) -> set[tuple[int, int]] | None:
        """Execute the printed statements in DuckDB; None: its extension is not installed on this machine."""
        with duckdb.connect() as connection:
            try:
                connection.execute(f"LOAD {self.kind}")
            except duckdb.Error:
                return None
            table = connection.execute(query).to_arrow_table()
        return {(row["_kafka_partition"], row["_kafka_offset"]) for row in table.to_pylist()}

    def rewritten(self) -> None:
        """Let another client write a commit of its own."""
        if self.kind == "delta":
            DeltaTable(str(self.place / "orders")).optimize.compact()
        else:
            table = self.iceberg()
            table.delete("_kafka_offset = 9 AND _kafka_partition = 0")


def test_offsets_that_were_skipped_lost_and_read_again(kpipe: Kpipe, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, records(0, 10), 0)
    kpipe.define("late", name, source={"start": {"0": 4}}, delivery="at_most_once", batch={"max_offsets_per_partition": 3})
    killed(kpipe.home, "late", "commit.before:3")
    states = [one(kpipe, f"{name}:0:{offset}")["state"] for offset in (0, 3, 4, 6)]
    assert states[:2] == ["skipped", "skipped"] and set(states[2:]) <= {"lost", "read", "not_read"}
    kpipe("run", "late")
    lost = [offset for offset in range(4, 10) if one(kpipe, f"{name}:0:{offset}")["state"] == "lost"]
    have = {offset for (offset,) in kpipe.sql("SELECT _kafka_offset FROM late")}
    assert set(range(4, 10)) - set(lost) == have, "what is neither lost nor skipped is a row"
    assert all(made(kpipe, f"{name}:0:{offset}") == ["row"] for offset in have)
    kpipe("sql", "BACKFILL PIPELINE late FROM 0 TO 2")
    assert one(kpipe, f"{name}:0:1")["behind"] == 1 and one(kpipe, f"{name}:0:2")["state"] == "skipped"
    kpipe("run", "late")
    assert made(kpipe, f"{name}:0:1") == ["row"] and one(kpipe, f"{name}:0:3")["state"] == "skipped"
    note = one(kpipe, f"{name}:0:0")["decisions"][-1]
    assert note["kind"] == "begin" and name in note["note"]
