"""Times that Python does not have, from Kafka to a lake: kept where the format can hold them, else dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("iceberg", marks=pytest.mark.chaos), pytest.param("parquet", marks=pytest.mark.chaos)]
)
def test_a_time_of_any_year_stops_no_lake(kpipe: Any, topic: Any, write: Any, tmp_path: Path, kind: str) -> None:
    name = topic(1)
    times = ["2026-11-20", "9999-12-31T23:59:59-05:00", "infinity", "0044-03-15 (BC) 00:00:00", "-infinity"]
    write(name, [json.dumps({"id": at, "at": text}) for at, text in enumerate(times)], 0)
    lake = tmp_path / "lake"
    into = {"type": kind, "database": str(lake), "table": "far"}
    kpipe.define("far", name, into=into, columns={"id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE"})
    summary = kpipe.json("run", "far")[-1]
    assert (summary["rows"], summary["dead_letters"]) == (3, 2)
    proof = kpipe.json("verify", "far")[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"]) == (3, 2)
    reasons = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "far")}
    assert set(reasons) == {2, 4} and all("infinity is beyond what" in text for text in reasons.values())
    with duckdb.connect() as connection:
        files = f"'{lake}/**/*.parquet'"
        found = f'SELECT id, epoch_us("at") FROM read_parquet({files}, union_by_name = true) WHERE id IS NOT NULL ORDER BY id'
        assert connection.sql(found).fetchall() == [
            (0, 1_795_132_800_000_000),
            (1, 253_402_318_799_000_000),
            (3, -63_517_824_000_000_000),
        ]
