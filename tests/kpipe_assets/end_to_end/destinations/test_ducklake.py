"""From Kafka to a DuckLake. It needs a DuckDB that an extension fits: tests/resources/destinations/test_ducklake.py has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.errors import NotAvailable
from resources.destinations.ducklake.extension import check, load


def _refusal() -> str:
    """Return why there is no DuckLake; empty if there is one."""
    try:
        check("the test", ["ducklake"])
    except NotAvailable as none:
        return str(none)
    return ""


@pytest.mark.spark
@pytest.mark.skipif(_refusal() != "", reason=_refusal())
def test_rows_keys_and_dead_letters_of_a_lake(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    lake = tmp_path / "my lake"

    def read(query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            load(connection, ["ducklake"])
            connection.execute(f"ATTACH 'ducklake:{lake}.duckdb' AS lake (READ_ONLY)")
            return connection.sql(query).fetchall()

    name = topic(2)
    write(name, [json.dumps({"id": at, "who": f"w{at % 3}"}) for at in range(5)] + ["{broken"], 0)
    write(name, [json.dumps({"id": at, "who": "w9", "new": {"a": [at]}}) for at in range(5, 8)], 1)
    fields = {
        "into": {"type": "ducklake", "database": str(lake), "table": "events"},
        "also": [{"table": "people", "key": ["who"], "on_conflict": "replace", "select": "SELECT who, id FROM records"}],
        "errors": {"parse": "dead_letter"},
    }
    kpipe.define("events", name, **fields)
    summary = kpipe.json("run", "events")[-1]
    assert (summary["rows"], summary["dead_letters"]) == (8, 1)
    write(name, [json.dumps({"id": 8, "who": "w0", "more": 1.5})], 0)
    assert kpipe.json("run", "events")[-1]["rows"] == 1
    proof = kpipe.json("verify", "events")[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"]) == (9, 1), proof
    assert read("SELECT id, new.a, more FROM lake.events WHERE id IN (7, 8) ORDER BY id") == [(7, [7], None), (8, None, 1.5)]
    assert read("SELECT who, id FROM lake.people ORDER BY who")[0] == ("w0", 8)
    assert read("SELECT count(*) FROM lake.kpipe_errors WHERE dead_letter") == [(1,)]
