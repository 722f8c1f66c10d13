"""A pipeline into a destination of another package (tests/example_destination/), from Kafka to the proof."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.example import install


@pytest.mark.spark
def test_topic_to_an_installed_destination(
    kpipe: Any, topic: Any, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = install(tmp_path / "example")
    name, lake = topic(2), tmp_path / "shelf"
    for partition in range(2):
        write(name, [json.dumps({"id": n, "partition": partition}) for n in range(100)], partition)
    write(name, ["not json"], 0)
    into = {"type": "shelf", "database": str(lake), "table": "orders"}
    kpipe.define("orders", name, into=into, batch={"max_offsets_per_partition": 40})
    without = kpipe("run", "orders", status=2)
    assert "into.type 'shelf' is not available" in without.stderr and "install a package for it" in without.stderr

    monkeypatch.syspath_prepend(str(target))
    summary = kpipe.json("run", "orders")[-1]
    assert (summary["status"], summary["rows"], summary["dead_letters"]) == ("caught_up", 200, 1)
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"]) == (200, 1)
    with closing(sqlite3.connect(lake / "orders" / "catalogue.sqlite")) as catalogue:
        files = [str(lake / "orders" / file) for (file,) in catalogue.execute("SELECT name FROM files")]
    found = duckdb.sql("SELECT count(*), count(DISTINCT (id, partition)) FROM read_parquet($1)", params=[files])
    assert found.fetchall() == [(200, 200)]
