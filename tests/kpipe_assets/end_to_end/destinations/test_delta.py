"""Kafka to Delta Lake by the command line: real Kafka, real Spark, a real table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from tests.survival.small import killed


def records(start: int, end: int, **more: Any) -> list[str]:
    return [
        json.dumps({"id": n, "name": f"n{n}", "nested": {"even": n % 2 == 0, "list": [n]}, **more}) for n in range(start, end)
    ]


def asked(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("lake", DeltaTable(str(folder)).to_pyarrow_dataset())
        return connection.execute(query).fetchall()


@pytest.mark.spark
def test_topic_to_delta_and_back(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(3)
    for partition in range(3):
        write(name, records(partition * 1000, partition * 1000 + 200), partition)
    write(name, ["not json", None], 0)
    into = {"type": "delta", "database": str(tmp_path / "lake"), "table": "orders"}
    kpipe.define("orders", name, into=into, batch={"max_offsets_per_partition": 100})
    table = tmp_path / "lake" / "orders"

    # Killed right before the table's log is written: nothing is there but litter, and the next run ends what was begun.
    killed(kpipe.home, "orders", "commit.before:3")
    assert asked(table, "SELECT count(*) FROM lake") == [(300,)]
    assert kpipe.json("verify", "orders")[0]["ok"] and kpipe.json("errors", "orders") == []

    summary = kpipe.json("run", "orders")[-1]
    assert (summary["rows"], summary["dead_letters"], summary["filtered"]) == (300, 1, 1)
    assert asked(table, "SELECT count(*), count(DISTINCT id), sum(id), max(nested.list[1]) FROM lake") == [
        (600, 600, sum(sum(range(p * 1000, p * 1000 + 200)) for p in range(3)), 2199)
    ]
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"], proof["filtered"]) == (600, 1, 1)
    assert kpipe.json("errors", "orders")[0]["load_data_line"] == "not json"
    state = kpipe.json("status", "orders")[0]
    assert state["lag"] == 0 and state["positions"] == {"0": 202, "1": 200, "2": 200}
    assert sum(row["rows_inserted"] for row in kpipe.json("batches", "orders")) == 600

    write(name, records(5000, 5010, brand_new=1.5), 1)
    assert kpipe.json("run", "orders")[-1]["rows"] == 10
    assert asked(table, "SELECT count(*), sum(brand_new) FROM lake") == [(610, 15.0)]
    assert kpipe.json("run", "orders")[-1]["batches"] == 0
    assert kpipe.json("verify", "orders")[0]["ok"]

    DeltaTable(str(table)).restore(3)
    said = kpipe("run", "orders", status=3)
    assert "was restored to version 3" in said.stderr
