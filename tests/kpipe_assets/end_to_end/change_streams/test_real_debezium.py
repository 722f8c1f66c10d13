"""Tables that follow a real database through a real Debezium: equal in the end, row by row (`make cdc`)."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psutil
import psycopg
import pymysql
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.commandline import Kpipe
from tests.kpipe_assets.end_to_end.change_streams.sources import ONE, SENTINEL, MariaSource, PostgresSource, Source, normal
from tests.resources.destinations.lake_place import read
from tests.servers.debezium import DebeziumServer
from tests.servers.mariadb import PASSWORD as MARIA_PASSWORD
from tests.servers.mariadb import ROLE, MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.spark


class Follower:
    """A table that follows a source.

    Args:
        kpipe: the command line.
        name: of the pipeline and the table.
        source: the source.
        into: the destination.
        ask: rows of a query over it.
    """

    def __init__(self, kpipe: Kpipe, name: str, source: Source, into: dict[str, Any], ask: Callable[[str], list[Any]]) -> None:
        self.kpipe, self.name, self.source, self.ask = kpipe, name, source, ask
        kpipe.define(name, source.topic, format={"type": "debezium"}, into={"table": name, "key": ["id"], **into})

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """The table as `Source.rows`; a column that it does not have yet is NULL."""
        quote = "`" if "mysql" in self.name else '"'
        found = self.ask(f"SELECT * FROM {quote}{self.name}{quote} LIMIT 0", names=True)
        wanted = [name if name in found else "NULL" for name in self.source.columns]
        return {row[0]: tuple(map(normal, row)) for row in self.ask(f"SELECT {', '.join(wanted)} FROM {self.name}")}

    def catch_up(self, number: int) -> int:
        """Run until the row that marks the end of a part is there; return how many runs failed."""
        failed, deadline = 0, time.monotonic() + 600
        while True:
            done = self.kpipe("run", self.name, status=None)
            # Debezium repeats events after a crash: an update of a row that a repeated event will delete waits for that. The
            # topic appears with its first event.
            expected = ("no row of its key", "does not exist", "the cluster has no topic", "the cluster had no topic")
            assert done.returncode == 0 or any(text in done.stderr for text in expected), done.stderr
            failed += done.returncode != 0
            if done.returncode == 0 and self.ask(f"SELECT count(*) FROM {self.name} WHERE id = {SENTINEL + number}") == [(1,)]:
                return failed
            assert time.monotonic() < deadline, f"{done}\n{self.source.counts}"
            time.sleep(0.5)

    def judge(self) -> None:
        """The table equals the source, and kpipe proves that it lost and doubled nothing."""
        assert self.rows() == self.source.rows(), self.source.counts
        proof = self.kpipe.json("verify", self.name)[0]
        assert proof["ok"] and proof["dead_letters"] == 0


def duckdb_follower(kpipe: Kpipe, source: Source) -> Follower:
    def ask(query: str, names: bool = False) -> list[Any]:
        import duckdb

        with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb"), read_only=True) as connection:
            done = connection.execute(query)
            return [column[0] for column in done.description] if names else done.fetchall()

    return Follower(kpipe, "in_duckdb", source, {}, ask)


def postgres_follower(kpipe: Kpipe, source: Source, server: PostgresServer) -> Follower:
    schema = server.schema()

    def ask(query: str, names: bool = False) -> list[Any]:
        with psycopg.connect(server.address(schema), password=PASSWORD) as connection:
            done = connection.execute(query)
            return [column.name for column in done.description or ()] if names else done.fetchall()

    credentials = {"password": "{{ env('PG_PASSWORD') }}"}
    into = {"type": "postgres", "database": server.address(schema), "credentials": credentials}
    return Follower(kpipe, "in_postgres", source, into, ask)


def mysql_follower(kpipe: Kpipe, source: Source, server: MariaServer) -> Follower:
    database = server.database()

    def ask(query: str, names: bool = False) -> list[Any]:
        told = {"host": "127.0.0.1", "port": server.port, "user": ROLE, "password": MARIA_PASSWORD, "database": database}
        with closing(pymysql.connect(**told, charset="utf8mb4", autocommit=True)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return [column[0] for column in cursor.description] if names else list(cursor.fetchall())

    credentials = {"password": "{{ env('MY_PASSWORD') }}"}
    into = {"type": "mysql", "database": server.address(database), "credentials": credentials}
    return Follower(kpipe, "in_mysql", source, into, ask)


def lake_follower(kpipe: Kpipe, source: Source, kind: str) -> Follower:
    name, lake = f"in_{kind}", kpipe.home / "data" / kind

    def ask(query: str, names: bool = False) -> list[Any]:
        import duckdb

        if kind == "iceberg":
            found = SqlCatalog("kpipe", uri=f"sqlite:///{lake}/catalog.db").load_table(f"default.{name}").scan().to_arrow()
        else:
            found = read(DeltaTable(str(lake / name)))
        with duckdb.connect() as connection:
            connection.register(name, found)
            done = connection.execute(query)
            return [column[0] for column in done.description] if names else done.fetchall()

    return Follower(kpipe, name, source, {"type": kind}, ask)


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    monkeypatch.setenv("MY_PASSWORD", MARIA_PASSWORD)


def test_a_table_equals_that_of_postgresql(kpipe: Kpipe, debezium: DebeziumServer, postgres_source: PostgresServer) -> None:
    """A snapshot, random transactions, and Debezium killed in between."""
    source = PostgresSource(postgres_source, "short")
    source.transactions(10)
    name = f"c{uuid.uuid4().hex[:8]}"
    debezium.connector(name, {**source.connector(name), **ONE})
    source.transactions(25)
    source.marked(0)
    follower = duckdb_follower(kpipe, source)
    follower.catch_up(0)
    follower.judge()
    source.transactions(25)
    debezium.kill()
    source.transactions(10)
    debezium.start()
    source.transactions(10)
    source.marked(1)
    follower.catch_up(1)
    follower.judge()
    counts = source.counts
    assert all(counts.values()), counts
    print(f"differences: 0; {counts}; Debezium killed: 1")


def _source(what: str, request: pytest.FixtureRequest, brokers: str, seed: object) -> Source:
    if what == "mariadb":
        return MariaSource(request.getfixturevalue("mariadb_source"), seed, brokers)
    return PostgresSource(request.getfixturevalue("postgres_source"), seed, whole=what == "postgres full")


@pytest.mark.chaos
@pytest.mark.parametrize("what", ["mariadb", "postgres", "postgres full"])
def test_tables_equal_their_source_after_kills(
    what: str, kpipe: Kpipe, kafka_broker: Any, debezium: DebeziumServer, request: pytest.FixtureRequest, passwords: None
) -> None:
    """Random transactions while Debezium, the broker and runs of kpipe are killed; each destination equals the source."""
    source, chance = _source(what, request, kpipe.brokers, f"long {what}"), random.Random(what)
    source.transactions(20)
    name = f"c{uuid.uuid4().hex[:8]}"
    debezium.connector(name, {**source.connector(name), **ONE})
    source.marked(0)
    followers = [
        duckdb_follower(kpipe, source),
        postgres_follower(kpipe, source, request.getfixturevalue("postgres")),
        mysql_follower(kpipe, source, request.getfixturevalue("mariadb")),
        lake_follower(kpipe, source, "iceberg"),
        lake_follower(kpipe, source, "delta"),
    ]
    for follower in followers:
        follower.catch_up(0)
    killed = dict.fromkeys(("Debezium", "broker", "kpipe"), 0)
    for part in range(1, 5):
        source.transactions(chance.randint(20, 60))
        run = kpipe.start("run", followers[part % len(followers)].name, PG_PASSWORD=PASSWORD, MY_PASSWORD=MARIA_PASSWORD)
        source.transactions(chance.randint(10, 30))
        time.sleep(chance.uniform(0, 12))
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        killed["kpipe"] += 1
        debezium.kill()
        killed["Debezium"] += 1
        source.transactions(chance.randint(10, 30))
        if part % 2 == 0:
            process = psutil.Process(kafka_broker.status().pid)
            process.kill()
            psutil.wait_procs([process], timeout=300)
            kafka_broker.start(int(kpipe.brokers.rpartition(":")[2]))
            killed["broker"] += 1
        debezium.start()
        debezium.running(name)
        source.transactions(chance.randint(5, 20))
        source.marked(part)
        for follower in followers:
            follower.catch_up(part)
            follower.judge()
    assert all(source.counts.values()), source.counts
    print(f"{what}: differences: 0 in {len(followers)} destinations; {source.counts}; killed: {killed}")
