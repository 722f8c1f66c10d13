"""Plans of `batch.cut: transaction` over topics of a real Debezium and MariaDB, which counts again after a crash (`make cdc`)."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.definition.source import Source
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Limits
from kpipe.planning.transaction_planner import TransactionPlanner
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
from resources.sources.transaction_topics import TransactionTopics
from tests.kpipe_assets.end_to_end.change_streams.sources import ONE
from tests.servers.debezium import DebeziumServer
from tests.servers.mariadb import PASSWORD, MariaServer

State = frozenset[tuple[str, int, int]]


class Tables:
    """Two tables of MariaDB, and both after each transaction."""

    def __init__(self, server: MariaServer, chance: random.Random) -> None:
        self.server, self.name, self.chance, self.number = server, server.database(), chance, 0
        for table in "ab":
            server.sql(f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY, n int)")
        server.sql(f"CREATE USER IF NOT EXISTS debezium@'%' IDENTIFIED BY '{PASSWORD}'")
        server.sql(
            "GRANT SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR ON *.* TO debezium@'%'"
        )
        self.topics = [f"{self.name}.{self.name}.a", f"{self.name}.{self.name}.b", f"{self.name}.transaction"]
        self.states: list[State] = [frozenset()]

    def connector(self, brokers: str, name: str) -> dict[str, str]:
        """Settings of a connector with small batches: a crash is then in the middle of a transaction."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1", "database.port": str(self.server.port), "database.user": "debezium",
            "database.password": PASSWORD, "database.server.id": "4711", "database.ssl.mode": "disable",
            "topic.prefix": self.name, "database.include.list": self.name, "include.schema.changes": "false",
            "provide.transaction.metadata": "true", "max.batch.size": "64", "max.queue.size": "128",
            "schema.history.internal.kafka.bootstrap.servers": brokers,
            "schema.history.internal.kafka.topic": f"{name}-history", **ONE,
        }  # fmt: skip

    def transactions(self, count: int, changes: int = 0) -> None:
        """Run random transactions; one in seven is rolled back, unless the number of changes is given."""
        with closing(self.server.admin(database=self.name, autocommit=False)) as connection, connection.cursor() as cursor:
            for _ in range(count):
                for _ in range(changes or self.chance.randint(1, 5)):
                    self.number += 1
                    table, id = self.chance.choice("ab"), self.chance.randrange(40)
                    delete = self.chance.random() < 0.25
                    cursor.execute(
                        f"DELETE FROM {table} WHERE id = {id}" if delete else f"REPLACE INTO {table} VALUES ({id}, {self.number})"
                    )
                self._end(connection, cursor, not changes and self.chance.random() < 0.15)

    def marked(self) -> None:
        """Change both tables in one transaction."""
        self.number += 1
        with closing(self.server.admin(database=self.name, autocommit=False)) as connection, connection.cursor() as cursor:
            for table in "ab":
                cursor.execute(f"REPLACE INTO {table} VALUES (1000, {self.number})")
            self._end(connection, cursor, False)

    def _end(self, connection: Any, cursor: Any, rollback: bool) -> None:
        found: set[tuple[str, int, int]] = set()
        for table in "ab":
            cursor.execute(f"SELECT id, n FROM {table}")
            found |= {(table, *row) for row in cursor.fetchall()}
        if rollback:
            connection.rollback()
        else:
            connection.commit()
            self.states.append(frozenset(found))


class Plans:
    """Both tables by the plans of one run after the other, and both after each of them."""

    def __init__(self, source: Source, chance: random.Random) -> None:
        self.source, self.chance, self.topics = source, chance, TransactionTopics(source)
        self.ledger, self.rows, self.seen = Ledger("p"), dict[tuple[str, int], int](), [State()]
        for partition, state in self.topics.snapshot().partitions.items():
            self.ledger = self.ledger.after(transitions.begin(partition, state.log_start, state.log_start))
        self.planner = TransactionPlanner("p", self.topics)

    def step(self, limit: int) -> bool:
        """Plan and apply a batch; return whether there is one."""
        if self.chance.random() < 0.2:
            self.planner = TransactionPlanner("p", self.topics)
        plan = self.planner.plan(self.ledger, self.topics.snapshot(), Limits(limit), "b")
        if not isinstance(plan, Batch):
            return False
        for step in plan.steps:
            table = step.source.topic.name[-1]
            for value in self._values(step.source.topic.name, step.range) if table in "ab" else ():
                if value["op"] == "d":
                    self.rows.pop((table, value["before"]["id"]), None)
                else:
                    self.rows[table, value["after"]["id"]] = value["after"]["n"]
        self.ledger = self.ledger.after(step.change for step in plan.steps)
        self.seen.append(frozenset((table, id, n) for (table, id), n in self.rows.items()))
        return True

    def _values(self, topic: str, span: Range) -> list[Any]:
        with RangeReader(client_config(self.source), topic, 0, span, of_batch=False) as reader:
            return [json.loads(value)["payload"] for block, _ in reader.blocks() for value in block.values if value is not None]


@pytest.mark.chaos
def test_plans_end_at_states_of_mariadb(
    brokers: str, kafka_broker: Any, debezium: DebeziumServer, mariadb_source: MariaServer
) -> None:
    """Debezium is killed inside of large transactions; then it begins them twice, and counts what is left."""
    chance = random.Random("plans")
    tables = Tables(mariadb_source, chance)
    tables.transactions(10)
    for topic in tables.topics:
        kafka_broker.create_topic(topic, 1, {})
    name = f"c{uuid.uuid4().hex[:8]}"
    debezium.connector(name, tables.connector(brokers, name))
    plans = Plans(Source(brokers=brokers, topics=tables.topics), chance)

    def catch_up() -> None:
        tables.marked()
        deadline = time.monotonic() + 900
        while plans.seen[-1] != tables.states[-1]:
            if not plans.step(chance.choice([1, 60, 1000])):
                assert time.monotonic() < deadline, plans.planner.plan(plans.ledger, plans.topics.snapshot(), Limits(), "b")
                time.sleep(0.5)

    catch_up()  # a snapshot that is begun again has no deletes of what went meanwhile
    for _ in range(3):
        tables.transactions(20)
        tables.transactions(1, changes=400)
        tables.transactions(5)
        time.sleep(chance.uniform(0, 3))
        plans.step(60)
        debezium.kill()
        plans.step(60)
        tables.transactions(5)
        debezium.start()
        debezium.running(name)
        catch_up()
    at = 0
    for found in plans.seen:
        assert found in tables.states[at:], f"no state of the source after {at} of {len(tables.states)}: {sorted(found)}"
        at = tables.states.index(found, at)
    log, state = next(item for item in plans.topics.snapshot().partitions.items() if item[0].topic.name == tables.topics[2])
    entries = plans.topics.entries(log, Range(0, state.end))
    begins = Counter(entry.key for entry in entries if entry.counts is None)
    again = sum(count > 1 for count in begins.values())
    print(f"differences: 0 in {len(plans.seen)} plans of {len(tables.states)} states; begun twice: {again}; Debezium killed: 3")
