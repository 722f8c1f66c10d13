"""`batch.cut: transaction` behind a real Debezium: a reader sees no state that the source did not have (`make cdc`)."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from typing import Any

import pytest

from tests.commandline import Kpipe
from tests.kpipe_assets.end_to_end.change_streams.sources import TwoTables, both
from tests.servers.debezium import DebeziumServer
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.spark


class Reader:
    """Reads both tables of the destination again and again, each time in one transaction. A context manager."""

    def __init__(self, server: PostgresServer, schema: str, source: TwoTables) -> None:
        self.place = server, schema, *(topic.replace(".", "_") for topic in source.topics[:2])
        self.seen = [frozenset[tuple[str, int, int]]()]
        self.reads = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while not self._ending.wait(0.05):
            found = both(*self.place)
            self.reads += 1
            if found != self.seen[-1]:
                self.seen.append(found)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


@pytest.mark.chaos
def test_a_reader_sees_only_states_of_the_source(
    kpipe: Kpipe, kafka_broker: Any, debezium: DebeziumServer, postgres_source: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables, transactions of both on two connections, rollbacks, large ones; Debezium and runs of kpipe are killed."""
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    source = TwoTables(postgres_source, "cut")
    source.transactions(10)
    for topic in source.topics:
        kafka_broker.create_topic(topic, 1, {})
    name, schema = f"c{uuid.uuid4().hex[:8]}", postgres_source.schema()
    debezium.connector(name, source.connector(name))
    into = {"type": "postgres", "database": postgres_source.address(schema), "table": "{topic}", "key": ["id"]}
    kpipe.define(
        "cut", "", format={"type": "debezium"}, into={**into, "credentials": {"password": "{{ env('PG_PASSWORD') }}"}},
        source={"topic": None, "topics": source.topics}, batch={"cut": "transaction", "max_offsets_per_partition": 60},
    )  # fmt: skip
    with Reader(postgres_source, schema, source) as reader:

        def catch_up() -> None:
            source.marked()
            deadline = time.monotonic() + 1800
            while reader.seen[-1] != source.states[-1]:
                assert time.monotonic() < deadline, kpipe("run", "cut")
                kpipe("run", "cut")

        catch_up()  # a snapshot that is begun again has no deletes of what went meanwhile
        for part in range(3):
            source.transactions(30)
            run = kpipe.start("run", "cut", PG_PASSWORD=PASSWORD) if part else None
            source.transactions(10)
            debezium.kill()
            source.transactions(10)
            debezium.start()
            debezium.running(name)
            if run is not None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()
            source.transactions(10)
            catch_up()
    states, at = [frozenset(), *source.states], 0
    for found in reader.seen:
        assert found in states[at:], f"no state of the source after {at} of {len(states)} transactions: {sorted(found)}"
        at = states.index(found, at)
    assert source.rows() == reader.seen[-1]
    proof = kpipe.json("verify", "cut")[0]
    assert proof["ok"] and proof["dead_letters"] == 0
    assert all(source.counts.values()), source.counts
    print(f"differences: 0 in {len(reader.seen)} states of {reader.reads} reads; {source.counts}; Debezium killed: 3, kpipe: 2")
