"""Kafka to tables that are divided by values of columns: tasks leave a file for each division, the driver only links them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

COUNTRIES = ("de", "fr", None)


def record(number: int) -> str:
    day = 20 + number % 2
    return json.dumps({"id": number, "country": COUNTRIES[number % 3], "at": f"2026-11-{day}T10:00:00Z"})


@pytest.mark.spark
def test_topic_to_divided_tables(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(2)
    for partition in range(2):
        write(name, [record(n) for n in range(partition * 1000, partition * 1000 + 300)], partition)
    columns = {"id": "BIGINT", "country": "VARCHAR", "at": "TIMESTAMP WITH TIME ZONE"}
    lake = {"database": str(tmp_path / "lake")}
    delta = {**lake, "type": "delta", "table": "orders", "partition_by": ["country"]}
    iceberg = {**lake, "type": "iceberg", "table": "events", "partition_by": ["day(at)", "country"]}
    kpipe.define("orders", name, into=delta, columns=columns)
    kpipe.define("events", name, into=iceberg, columns=columns)
    for pipeline, rows in (("orders", 600), ("events", 603)):
        assert kpipe.json("run", pipeline)[-1]["rows"] == rows
        write(name, [record(n) for n in range(5000, 5003)], 1)
        assert kpipe.json("run", pipeline)[-1]["rows"] == 3
        assert kpipe.json("verify", pipeline)[0]["ok"]
    table = DeltaTable(str(tmp_path / "lake" / "orders"))
    assert table.to_pyarrow_table(filters=[("country", "=", "de")]).num_rows == 201
    catalog = SqlCatalog("kpipe", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    tasks = list(catalog.load_table("default.events").scan().plan_files())
    catalog.engine.dispose()
    assert {tuple(task.file.partition[at] for at in range(2)) for task in tasks} == {
        (20777 + day, country) for day in range(2) for country in COUNTRIES
    }
    # What tasks have written is what is in the table: a file that the driver had taken apart has another number in its name.
    files = [path for path in (tmp_path / "lake").rglob("kpipe-*.parquet") if "_kpipe" not in path.parts]
    assert files and all(path.stem.count("-") == 2 for path in files)
    assert all(len(set(pq.read_table(path)["country"].to_pylist())) == 1 for path in files)
    assert sum(pq.read_metadata(path).num_rows for path in files) == 603 + 606
