"""A table of PostgreSQL into a topic, and the topic into Iceberg, both killed at each point of a commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.failpoints import POINTS
from tests.resources.destinations.kafka_place import read_all
from tests.resources.sources.runs import Bench, kill
from tests.resources.sources.test_tables import PostgresTable
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.broker
_COMMIT = [point for point in POINTS if point.startswith("commit.")]


def test_each_row_reaches_the_lake_once(
    tmp_path: Path, postgres: PostgresServer, brokers: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    table, target = PostgresTable(postgres, "orders"), topic(2)
    table.run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)")
    into = {"type": "kafka", "brokers": brokers, "topic": target, "ledger": f"{target}-ledger", "key": ["id"]}
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    out = Bench(tmp_path / "out", source=table.source(), files=None, into=into)
    source = {"brokers": brokers, "topic": target}
    lake = Bench(tmp_path / "in", source=source, files=None, into={"type": "iceberg", "table": "t"})
    written = 0
    for point in _COMMIT:
        with table.session() as late:
            late.execute("INSERT INTO orders (name) VALUES ('late')")
            table.run("INSERT INTO orders (name) VALUES ('early')")
        written += 2
        assert out.run_until(point, kill), point
        lake.run_until(point, kill)
    assert out.run() >= 0
    lake.run()
    assert sorted(json.loads(message.value())["id"] for message in read_all(brokers, target)) == list(range(1, written + 1))
    files = [path for path in lake.home.data.rglob("*.parquet") if "id" in pq.read_schema(path).names]
    found = sorted(value for path in files for value in pq.read_table(path, columns=["id"])["id"].to_pylist())
    assert found == list(range(1, written + 1))
    assert out.audit().ok and lake.audit().ok
