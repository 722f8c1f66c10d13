"""Kafka to a Delta table in an object store by the command line: staged there by Spark's tasks, committed there."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.commandline import contents
from tests.kpipe_assets.end_to_end.destinations.test_delta import records
from tests.servers.object_store import StoreServer


@pytest.mark.spark
@pytest.mark.parametrize("name", ["s3", "gcs", "azure"])
def test_topic_to_an_object_store_and_back(
    kpipe: Any, topic: Any, write: Any, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    server: StoreServer = request.getfixturevalue(name)
    source = topic(2)
    for partition in range(2):
        write(source, records(partition * 1000, partition * 1000 + 200), partition)
    write(source, ["not json"], 0)
    base = f"{server.base}/{tmp_path.name}"
    more = {**server.environment, "KPIPE_STAGING": f"{base}/staging"}
    into = {"type": "delta", "database": base, "table": "orders"}
    kpipe.define("orders", source, into=into, batch={"max_offsets_per_partition": 100})

    kpipe.outside("run", "orders", status=-signal.SIGKILL, KPIPE_FAULT="commit.before:3:kill", **more)
    store = server.direct()
    staged = set(store.folders(f"{base}/staging/"))
    assert len(staged) in (1, 2), "the batch that was killed, and maybe the one that was read ahead"
    assert list((kpipe.home / "staging").iterdir()) == [], "nothing is staged on this machine"

    kpipe.outside("run", "orders", **more)
    table = DeltaTable(f"{base}/orders", storage_options=store.options())
    rows = table.to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == [*range(200), *range(1000, 1200)]
    assert set(store.folders(f"{base}/staging/")) == staged, "files of batches that landed are gone"
    proof = kpipe.json("verify", "orders", **more)[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"]) == (400, 1)
    assert kpipe.json("errors", "orders", **more)[0]["load_data_line"] == "not json"

    for secret in [value.encode() for name, value in server.secrets().items() if "key" in name and "id" not in name]:
        holding = [path for path, data in contents(kpipe.home) if secret in data]
        assert holding == [], "the secret is in no file of the home"
        assert [found.uri for found in store.listed(base) if secret in (store.get(found.uri) or b"")] == []
