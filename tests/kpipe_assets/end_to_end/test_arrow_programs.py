"""Programs with `stdin: arrow` from Kafka through Spark into tables: typed rows, counted, and proven by `kpipe verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = pytest.mark.spark

HEAD = """#!/usr/bin/env python3
import decimal, json, sys
import pyarrow as pa
reader = pa.ipc.open_stream(sys.stdin.buffer)
def write(schema, batches):
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
        for columns in batches:
            writer.write_batch(pa.record_batch(columns, schema=schema))
"""
#: A typed row for each record; a value that is no JSON ends the program.
TYPED = """
schema = pa.schema([("id", pa.int32()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("ms", "UTC"))])
def batches():
    for batch in reader:
        orders = [json.loads(value) for value in batch["value"].to_pylist()]
        yield [pa.array([order["id"] for order in orders], pa.int32()),
               pa.array([decimal.Decimal(order["cents"]).scaleb(-2) for order in orders], schema.types[1]), batch["timestamp"]]
write(schema, batches())
"""
#: As many rows as the record's id modulo 3.
SEVERAL = """
schema = pa.schema([("offset", pa.int64()), ("id", pa.int64()), ("n", pa.int64())])
rows = [(at, json.loads(value)["id"], n) for batch in reader
        for at, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist()) for n in range(json.loads(value)["id"] % 3)]
write(schema, [[list(column) for column in zip(*rows[start:start + 7])] for start in range(0, len(rows), 7)])
"""
#: The latest name of each key, for every other record.
LATEST = """
schema = pa.schema([("offset", pa.int64()), ("k", pa.int64()), ("name", pa.string())])
def batches():
    for batch in reader:
        mask = [at % 2 == 0 for at in batch["offset"].to_pylist()]
        part = batch.filter(pa.array(mask))
        orders = [json.loads(value) for value in part["value"].to_pylist()]
        yield [part["offset"], [order["id"] for order in orders], [order["name"] for order in orders]]
write(schema, batches())
"""


def program(folder: Path, text: str) -> str:
    file = folder / "program.py"
    file.write_text(HEAD + text)
    file.chmod(0o755)
    return str(file)


def proven(kpipe: Any, name: str) -> dict[str, Any]:
    (found,) = kpipe.json("verify", name)
    assert found["ok"], found
    return dict(found)


def test_typed_rows_and_a_poison_record(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(2)
    for partition in (0, 1):
        write(name, [json.dumps({"id": n, "cents": n}) for n in range(50)], partition)
    write(name, ["no json"], 1)
    write(name, [json.dumps({"id": 10**6, "cents": 7})], 1)
    kpipe.define(
        "typed", name, transform={"program": program(tmp_path, TYPED), "stdin": "arrow"}, set={"double": "id * 2"},
        columns={"id": "INTEGER"}, errors={"transform": "dead_letter"},
    )  # fmt: skip
    summary = kpipe.json("run", "typed")[-1]
    assert (summary["messages"], summary["rows"], summary["dead_letters"], summary["filtered"]) == (102, 101, 1, 0)
    types = dict(kpipe.sql("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'typed'"))
    assert (types["id"], types["price"], types["at"]) == ("INTEGER", "DECIMAL(9,2)", "TIMESTAMP WITH TIME ZONE")
    assert kpipe.sql('SELECT count(*), sum(price * 100), sum(double), count("at") FROM typed WHERE id < 100') == [
        (100, 2450, 4900, 100)
    ]
    proven(kpipe, "typed")


def test_several_rows_of_a_record_are_counted_by_its_offset(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n}) for n in range(100)])
    kpipe.define(
        "several", name, batch={"max_offsets_per_partition": 30},
        transform={"program": program(tmp_path, SEVERAL), "stdin": "arrow", "mode": "flatmap"},
    )  # fmt: skip
    summary = kpipe.json("run", "several")[-1]
    assert (summary["messages"], summary["rows"], summary["filtered"]) == (100, 99, 34)
    assert kpipe.sql("SELECT count(DISTINCT _kafka_offset), bool_and(id = _kafka_offset), sum(n) FROM several") == [
        (66, True, 33)
    ]
    proven(kpipe, "several")
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("UPDATE several SET _kafka_offset = 3 WHERE id = 4")
    assert not kpipe.json("verify", "several", status=None)[0]["ok"]  # as many rows, but of another record


def test_filter_upserts_by_key_and_gives_rows_to_two_tables(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n % 5, "name": f"name {n}"}) for n in range(40)])
    kpipe.define(
        "latest", name, transform={"program": program(tmp_path, LATEST), "stdin": "arrow", "mode": "filter"},
        into={"table": "latest", "key": ["k"], "on_conflict": "replace"}, also=[{"table": "every", "where": "k > 2"}],
    )  # fmt: skip
    summary = kpipe.json("run", "latest")[-1]
    assert (summary["messages"], summary["filtered"]) == (40, 20)
    assert kpipe.sql("SELECT k, name FROM latest ORDER BY k") == [(k, f"name {n}") for k, n in enumerate((30, 36, 32, 38, 34))]
    assert kpipe.sql("SELECT count(*) FROM every") == [(8,)]
    proven(kpipe, "latest")
