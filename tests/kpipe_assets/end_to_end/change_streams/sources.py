"""Databases whose changes Debezium writes to a topic, and random transactions on one table of theirs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg

from tests.servers.mariadb import PASSWORD as MARIA_PASSWORD
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer

__all__ = ["ONE", "MariaSource", "PostgresSource", "Source", "TwoTables", "normal"]

#: Settings of a connector whose topics have one partition.
ONE = {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}

SENTINEL = 1_000_000  # ids from here on mark the end of a part


def normal(value: Any) -> Any:
    """A value as any of the databases' clients gives it, in one form."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return int(value) if isinstance(value, bool) else value


class Source:
    """A table with a primary key, which random transactions change.

    Attributes:
        topic: the topic of the table.
        counts: what the transactions have done.
    """

    topic: str
    placeholder = "%s"

    def __init__(self, seed: object, whole: bool = True) -> None:
        self.whole = whole
        self.chance = random.Random(str(seed))
        self.counts = dict.fromkeys(
            ("transactions", "rollbacks", "inserts", "updates", "keys", "deletes", "large", "truncates", "columns"), 0
        )
        self.columns = ["id", "name", "big", "n", "made", "flag", "data"]
        self.ids: set[int] = set()
        self.large: set[int] = set()  # ids with a value beside the row, which a changed key leaves out of the log

    # -- of each database

    def connect(self) -> Any:
        raise NotImplementedError

    def connector(self, name: str) -> dict[str, str]:
        raise NotImplementedError

    def truncate(self, cursor: Any) -> None:
        raise NotImplementedError

    def add_column(self, cursor: Any, name: str) -> None:
        raise NotImplementedError

    # -- of all

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """The table, by id, in the order of `columns`."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(self.columns)} FROM items")
            return {row[0]: tuple(map(normal, row)) for row in cursor.fetchall()}

    def marked(self, number: int) -> None:
        """Insert a row that a destination has when it has everything before."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO items (id, name) VALUES ({SENTINEL + number}, 'end')")
            connection.commit()

    def transactions(self, count: int) -> None:
        """Run random transactions, one after the other."""
        with closing(self.connect()) as connection:
            for _ in range(count):
                self._transaction(connection)

    def _transaction(self, connection: Any) -> None:
        chance, before = self.chance, (set(self.ids), set(self.large))
        with connection.cursor() as cursor:
            if chance.random() < 0.06:
                name = f"more{self.counts['columns']}"
                self.add_column(cursor, name)
                connection.commit()
                self.columns.append(name)
                self.counts["columns"] += 1
            if chance.random() < 0.06:
                self.truncate(cursor)
                connection.commit()
                self.ids.clear()
                self.large.clear()
                self.counts["truncates"] += 1
                return
            for _ in range(chance.randint(1, 6)):
                self._change(cursor)
            self.counts["transactions"] += 1
            if chance.random() < 0.15:
                connection.rollback()
                self.ids, self.large = before
                self.counts["rollbacks"] += 1
            else:
                connection.commit()

    def _change(self, cursor: Any) -> None:
        chance, what = self.chance, self.chance.random()
        if not self.ids or what < 0.35:
            free = [number for number in range(60) if number not in self.ids]
            if free:
                number = chance.choice(free)
                values = [number, *(self._value(name) for name in self.columns[1:])]
                self._run(cursor, f"INSERT INTO items ({', '.join(self.columns)}) VALUES ({self._places(values)})", values)
                self.ids.add(number)
                self._sized(number, values[2])
                self.counts["inserts"] += 1
            return
        number = chance.choice(sorted(self.ids))
        if what < 0.75:
            name = chance.choice(self.columns[1:])
            value = self._value(name)
            self._run(cursor, f"UPDATE items SET {name} = {self.placeholder} WHERE id = {number}", [value])
            if name == "big":
                self._sized(number, value)
            self.counts["large" if name == "big" else "updates"] += 1
        elif what < 0.85:
            other = chance.randint(60, 200)
            if other not in self.ids and (self.whole or number not in self.large):
                self.large = {other if one == number else one for one in self.large}
                self._run(cursor, f"UPDATE items SET id = {other} WHERE id = {number}", [])
                self.ids ^= {number, other}
                self.counts["keys"] += 1
        else:
            self._run(cursor, f"DELETE FROM items WHERE id = {number}", [])
            self.ids.remove(number)
            self.large.discard(number)
            self.counts["deletes"] += 1

    def _sized(self, number: int, big: str) -> None:
        self.large.discard(number)
        if len(big) > 1000:
            self.large.add(number)

    def _run(self, cursor: Any, statement: str, values: Sequence[Any]) -> None:
        cursor.execute(statement, values or None)

    def _places(self, values: Sequence[Any]) -> str:
        return ", ".join([self.placeholder] * len(values))

    def _value(self, name: str) -> Any:
        chance = self.chance
        if name.startswith("more"):
            return chance.choice([None, chance.randint(-9, 9)])
        day = f"20{chance.randint(10, 30)}-02-{chance.randint(10, 28)} 01:02:03.{chance.randint(0, 999_999):06}"
        return {
            "name": chance.choice([None, "", "é'\\\n", f"n{chance.random()}"]),
            "big": "".join(chance.choices("abcdefghij", k=chance.choice([3, 6000]))),  # 6,000 bytes are not in the row
            "n": chance.choice([None, f"{chance.uniform(-(10**8), 10**8):.3f}"]),
            "made": chance.choice([None, day]),
            "flag": chance.choice([None, True, False]),
            "data": chance.choice([None, chance.randbytes(5)]),
        }[name]


class PostgresSource(Source):
    """A table of PostgreSQL, by logical decoding.

    Args:
        server: with `wal_level` logical.
        seed: of the transactions.
        whole: whether its log has whole rows (REPLICA IDENTITY FULL).
    """

    def __init__(self, server: PostgresServer, seed: object, whole: bool = False) -> None:
        super().__init__(seed, whole)
        self.server, self.schema = server, server.schema()
        self.topic = f"{self.schema}.{self.schema}.items"
        server.sql(
            f"CREATE TABLE {self.schema}.items (id int PRIMARY KEY, name text, big text, n numeric(12,3), made timestamp(6),"
            " flag boolean, data bytea)"
        )
        server.sql(f"ALTER TABLE {self.schema}.items ALTER COLUMN big SET STORAGE EXTERNAL")
        if whole:
            server.sql(f"ALTER TABLE {self.schema}.items REPLICA IDENTITY FULL")

    def connect(self) -> psycopg.Connection:
        found = self.server.admin()
        found.execute(f"SET search_path = {self.schema}")
        found.autocommit = False
        return found

    def connector(self, name: str) -> dict[str, str]:
        return {**_postgres(self.server, self.schema, name, "items"), "skipped.operations": "none"}

    def truncate(self, cursor: Any) -> None:
        cursor.execute("TRUNCATE items")

    def add_column(self, cursor: Any, name: str) -> None:
        cursor.execute(f"ALTER TABLE items ADD COLUMN {name} int")


class MariaSource(Source):
    """A table of MariaDB, by its binary log. The server needs `BINARY_LOG`."""

    BINARY_LOG = ("log-bin=binlog", "server-id=1", "binlog-format=ROW", "binlog-row-image=FULL")

    def __init__(self, server: MariaServer, seed: object, brokers: str) -> None:
        super().__init__(seed)
        self.server, self.database, self.brokers = server, server.database(), brokers
        self.topic = f"{self.database}.{self.database}.items"
        server.sql(
            f"CREATE TABLE {self.database}.items (id int PRIMARY KEY, name text, big longtext, n decimal(12,3), made datetime(6),"
            " flag boolean, data varbinary(20)) CHARACTER SET utf8mb4"
        )
        server.sql(f"CREATE USER IF NOT EXISTS debezium@'%' IDENTIFIED BY '{MARIA_PASSWORD}'")
        server.sql(
            "GRANT SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR ON *.* TO debezium@'%'"
        )

    def connect(self) -> Any:
        return self.server.admin(database=self.database, autocommit=False)

    def connector(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1", "database.port": str(self.server.port), "database.user": "debezium",
            "database.password": MARIA_PASSWORD, "database.server.id": str(self.chance.randint(1000, 10**6)),
            "database.ssl.mode": "disable", "topic.prefix": self.database, "database.include.list": self.database,
            "include.schema.changes": "false", "skipped.operations": "none",
            "schema.history.internal.kafka.bootstrap.servers": self.brokers,
            "schema.history.internal.kafka.topic": f"{name}-history",
        }  # fmt: skip

    def truncate(self, cursor: Any) -> None:
        cursor.execute("TRUNCATE TABLE items")

    def add_column(self, cursor: Any, name: str) -> None:
        cursor.execute(f"ALTER TABLE items ADD COLUMN {name} int")


class TwoTables:
    """Two tables of PostgreSQL that random transactions change together, two of them open at a time.

    Args:
        server: with `wal_level` logical.
        seed: of the transactions.

    Attributes:
        states: both tables after each transaction, in order.
    """

    def __init__(self, server: PostgresServer, seed: object) -> None:
        self.server, self.schema, self.chance = server, server.schema(), random.Random(str(seed))
        for table in ("a", "b"):
            server.sql(f"CREATE TABLE {self.schema}.{table} (id int PRIMARY KEY, n int)")
        self.topics = [f"{self.schema}.{self.schema}.a", f"{self.schema}.{self.schema}.b", f"{self.schema}.transaction"]
        self.states: list[frozenset[tuple[str, int, int]]] = []
        self.counts = dict.fromkeys(("transactions", "rollbacks", "large"), 0)
        self.number = 0

    def connector(self, name: str) -> dict[str, str]:
        return {**_postgres(self.server, self.schema, name, "a", "b"), "provide.transaction.metadata": "true", **ONE}

    def transactions(self, count: int) -> None:
        """Run random transactions on two connections; each has its own ids, so that none waits for the other."""
        with self.server.admin() as first, self.server.admin() as second:
            for connection in (first, second):
                connection.autocommit = False
            for _ in range(count):
                at = self.chance.randrange(2)
                self._change((first, second)[at], at)
                if self.chance.random() < 0.6:
                    self._end((first, second)[at])
            for connection in (first, second):
                self._end(connection, rollback=False)

    def _change(self, connection: psycopg.Connection, at: int) -> None:
        large = self.chance.random() < 0.08
        self.counts["large"] += large
        for _ in range(200 if large else self.chance.randint(1, 5)):
            self.number += 1
            table, id = self.chance.choice("ab"), self.chance.randrange(20) * 2 + at
            if self.chance.random() < 0.25:
                connection.execute(f"DELETE FROM {self.schema}.{table} WHERE id = {id}")
            else:
                values = f"VALUES ({id}, {self.number}) ON CONFLICT (id) DO UPDATE SET n = {self.number}"
                connection.execute(f"INSERT INTO {self.schema}.{table} {values}")

    def _end(self, connection: psycopg.Connection, rollback: bool = True) -> None:
        if rollback and self.chance.random() < 0.15:
            connection.rollback()
            self.counts["rollbacks"] += 1
            return
        connection.commit()
        self.counts["transactions"] += 1
        self.states.append(self.rows())

    def marked(self) -> None:
        """Change both tables in one transaction."""
        self.number += 1
        with self.server.admin() as connection, connection.transaction():
            for table in "ab":
                connection.execute(f"INSERT INTO {self.schema}.{table} VALUES ({1000 + self.number}, 0)")
        self.states.append(self.rows())

    def rows(self) -> frozenset[tuple[str, int, int]]:
        """Both tables."""
        return both(self.server, self.schema, "a", "b")


def both(server: PostgresServer, schema: str, *tables: str) -> frozenset[tuple[str, int, int]]:
    """Return the rows of tables at one moment, with the last letter of the table's name; a missing table has none."""
    with server.admin() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found: set[tuple[str, int, int]] = set()
        for table in tables:
            ((there,),) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{schema}.{table}"]).fetchall()
            if there:
                found |= {(table[-1], *row) for row in connection.execute(f"SELECT id, n FROM {schema}.{table}").fetchall()}
        return frozenset(found)


def _postgres(server: PostgresServer, schema: str, name: str, *tables: str) -> dict[str, str]:
    """Settings of a connector for tables of a schema, which is also the topics' prefix; slot and publication have the name."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1", "database.port": str(server.port), "database.user": "admin",
        "database.password": PASSWORD, "database.dbname": "postgres", "topic.prefix": schema,
        "plugin.name": "pgoutput", "slot.name": name, "publication.name": name, "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(f"{schema}.{table}" for table in tables),
    }  # fmt: skip
