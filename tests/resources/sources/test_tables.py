"""Tables as a source: rows are read once, in the order of a column, also while transactions commit out of order."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import SourceTable
from kpipe.errors import InvalidPipeline, OffsetsBeyondEnd, ReadFailed, ReadStalled, SourceIdentityChanged
from kpipe.failpoints import POINTS
from kpipe.offsets import Range
from kpipe.sql.renderer import to_sql
from resources.destinations import summary
from resources.destinations.postgres.connection import Server
from resources.sources.open_source import check_connector
from resources.sources.tables.connector import TableConnector
from tests.resources.sources.runs import Bench, kill
from tests.servers.postgres import PASSWORD, ROLE, PostgresServer

_REACHED = [point for point in POINTS if point.startswith(("commit.", "collect.all", "read.", "readback", "publish."))]


class DuckTable:
    """A table of a DuckDB file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.duckdb"
        self.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, name VARCHAR, moment TIMESTAMP, price DECIMAL(9,2))")

    def run(self, *statements: str) -> None:
        """Execute, and close the file."""
        with duckdb.connect(str(self.file)) as connection:
            for statement in statements:
                connection.execute(statement)

    def source(self, column: str = "id") -> dict[str, Any]:
        """Fields of `source`."""
        return {"table": {"type": "duckdb", "database": str(self.file), "name": "orders", "column": column}}


class PostgresTable:
    """A table of PostgreSQL in a database of its own."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name, self.address = server, name, server.address(server.schema())

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection; a transaction ends with COMMIT."""
        with psycopg.connect(self.address, password=PASSWORD) as connection:
            yield connection

    def run(self, *statements: str) -> None:
        """Execute, and commit."""
        with self.session() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def source(self, column: str = "id") -> dict[str, Any]:
        """Fields of `source`."""
        table = {"type": "postgres", "database": self.address, "name": self.name, "column": column}
        return {"table": table, "credentials": {"password": "{{ env('TEST_SOURCE_PASSWORD') }}"}}


def rows(bench: Bench, columns: str = "id") -> list[Any]:
    with duckdb.connect(str(bench.home.data / "kpipe.duckdb"), read_only=True) as connection:
        found = connection.execute(f"SELECT {columns} FROM t ORDER BY ALL").fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def test_rows_of_duckdb_are_records_at_the_value_of_the_column(tmp_path: Path) -> None:
    table = DuckTable(tmp_path)
    table.run("INSERT INTO orders VALUES (3, 'x', '2026-01-02 03:04:05', 1.5), (7, NULL, NULL, NULL)")
    bench = Bench(tmp_path, source=table.source(), files=None)
    bench.run()
    assert rows(bench, "_kafka_topic, _kafka_offset, id, name, price::VARCHAR") == [
        ("duckdb/orders", 3, 3, "x", "1.50"), ("duckdb/orders", 7, 7, None, None),
    ]  # fmt: skip
    table.run("INSERT INTO orders SELECT range, 'y', NULL, 2 FROM range(8, 20)")
    bench.run()
    assert rows(bench) == [3, 7, *range(8, 20)]
    assert bench.audit().ok, bench.audit().problems


def test_columns_are_those_of_the_first_rows(tmp_path: Path) -> None:
    """Their values of the column may be far from 0."""
    table = DuckTable(tmp_path)
    table.run("ALTER TABLE orders ADD COLUMN many DECIMAL(20, 2)[]", "ALTER TABLE orders ADD COLUMN s STRUCT(a DECIMAL(20, 2))")
    table.run("INSERT INTO orders VALUES (1000, 'x', NULL, 1, [123456789012345678.91], {'a': 123456789012345678.91})")
    for schema in ("ignore", "fail", "evolve"):
        (tmp_path / schema).mkdir()
        bench = Bench(tmp_path / schema, source=table.source(), files=None, schema=schema)
        bench.run()
        assert rows(bench, "id, name, many::VARCHAR, s.a::VARCHAR") == [
            (1000, "x", "[123456789012345678.91]", "123456789012345678.91")
        ]
        assert rows(bench, "typeof(many), typeof(s)") == [("DECIMAL(20,2)[]", "STRUCT(a DECIMAL(20,2))")]


def test_columns_that_appear_later_have_the_types_of_the_table(tmp_path: Path) -> None:
    """Also where an expression gives another column a type of its own."""
    table = DuckTable(tmp_path)
    table.run("ALTER TABLE orders ADD COLUMN s STRUCT(a DECIMAL(20, 2))", "INSERT INTO orders (id) VALUES (1)")
    bench = Bench(tmp_path, source=table.source(), files=None, set={"twice": "CAST(exact AS DOUBLE) * 2"})
    bench.run()
    table.run("ALTER TABLE orders ADD COLUMN exact DECIMAL(20, 2)", "ALTER TABLE orders ADD COLUMN f FLOAT")
    table.run("INSERT INTO orders VALUES (2, NULL, NULL, NULL, {'a': 123456789012345678.91}, 123456789012345678.91, 5)")
    bench.run()
    table.run("INSERT INTO orders (id, f) VALUES (3, 1.5)")
    bench.run()
    assert rows(bench, "id, exact::VARCHAR, s.a::VARCHAR, f")[1:] == [
        (2, "123456789012345678.91", "123456789012345678.91", 5), (3, None, None, 1.5),
    ]  # fmt: skip
    assert rows(bench, "DISTINCT typeof(exact), typeof(f), typeof(twice)") == [("DECIMAL(20,2)", "DOUBLE", "DOUBLE")]


def test_runs_that_are_killed_repeat_and_lose_no_row(tmp_path: Path) -> None:
    table, written = DuckTable(tmp_path), 0
    bench = Bench(tmp_path, source=table.source(), files=None)
    for point in _REACHED:
        table.run(f"INSERT INTO orders (id) SELECT range FROM range({written}, {written + 3})")
        written += 3
        assert bench.run_until(point, kill), point
    bench.run()
    assert rows(bench) == list(range(written))
    assert bench.audit().ok, bench.audit().problems


@pytest.mark.parametrize(
    ("statement", "column", "words"),
    [
        ("SELECT 1", "name", "expected an integer column name, found VARCHAR"),
        ("SELECT 1", "missing", "expected an integer column missing, found none"),
        ("INSERT INTO orders (id) VALUES (-1)", "id", "expected values of 0 or more, found -1"),
    ],
)
def test_a_column_that_is_no_position_is_refused(tmp_path: Path, statement: str, column: str, words: str) -> None:
    table = DuckTable(tmp_path)
    table.run(statement)
    with pytest.raises(ReadFailed, match=words):
        Bench(tmp_path, source=table.source(column), files=None).run()


def test_another_column_is_another_source(tmp_path: Path) -> None:
    """Its values are other positions: rows would be read twice, or never."""
    table = DuckTable(tmp_path)
    table.run("ALTER TABLE orders ADD COLUMN seq INTEGER", "INSERT INTO orders (id, seq) VALUES (1, 10), (2, 20), (3, 30)")
    bench = Bench(tmp_path, source=table.source(), files=None)
    bench.run()
    for column, problem in (("ID", False), ("seq", True)):
        bench.pipeline = Pipeline.model_validate({**bench.pipeline.to_dict(), "source": table.source(column)})
        if not problem:
            assert bench.run() == 0
            continue
        with pytest.raises(SourceIdentityChanged, match="table duckdb/orders was replaced") as caught:
            bench.run()
        assert "undo a change of source.table.column" in caught.value.hint
    assert rows(bench) == [1, 2, 3]


def test_another_name_is_another_source(tmp_path: Path) -> None:
    """Even of the same table: all rows were read again."""
    table = DuckTable(tmp_path)
    table.run("INSERT INTO orders (id) VALUES (1), (2)")
    bench = Bench(tmp_path, source=table.source(), files=None)
    bench.run()
    source = table.source()
    source["table"]["name"] = "main.orders"
    bench.pipeline = Pipeline.model_validate({**bench.pipeline.to_dict(), "source": source})
    for _ in range(2):
        with pytest.raises(SourceIdentityChanged, match=r"expected duckdb/orders .*: 3\), found duckdb/main") as caught:
            bench.run()
        assert "undo a change of source.table" in caught.value.hint
    assert rows(bench) == [1, 2]
    bench.run(on_new_topic="begin", who="test")
    table.run("INSERT INTO orders (id) VALUES (3)")
    bench.run()
    assert rows(bench) == [1, 1, 2, 2, 3]


def test_a_value_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = DuckTable(tmp_path)
    table.run("ALTER TABLE orders ADD COLUMN n INTEGER DEFAULT 1", "INSERT INTO orders (id) VALUES (1), (2)")
    with pytest.raises(ReadFailed, match="a value of n is there more than once"):
        Bench(tmp_path, source=table.source("n"), files=None).run()


def test_a_table_that_lost_its_newest_rows_needs_an_operator(tmp_path: Path) -> None:
    table = DuckTable(tmp_path)
    table.run("INSERT INTO orders (id) SELECT range FROM range(5)")
    bench = Bench(tmp_path, source=table.source(), files=None)
    bench.run()
    table.run("DELETE FROM orders WHERE id > 2")
    with pytest.raises(OffsetsBeyondEnd, match="table duckdb/orders was truncated: expected its end at 5 or later, found 3"):
        bench.run()


@pytest.fixture
def orders(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresTable:
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    table = PostgresTable(postgres, "orders")
    table.run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, price numeric)")
    return table


def test_rows_of_postgresql_and_transactions_that_commit_out_of_order(orders: PostgresTable, tmp_path: Path) -> None:
    bench = Bench(tmp_path, source=orders.source(), files=None)
    orders.run("INSERT INTO orders (name, price) VALUES ('a', 1.50), ('b', 12345678901234567890.123456789)")
    bench.run()
    with orders.session() as late:
        late.execute("INSERT INTO orders (name) VALUES ('late')")  # takes 3
        orders.run("INSERT INTO orders (name) VALUES ('early')")  # takes 4, and commits first
        assert bench.run() == 0
        assert rows(bench) == [1, 2]
    bench.run()
    assert rows(bench, "id, name") == [(1, "a"), (2, "b"), (3, "late"), (4, "early")]
    orders.run("INSERT INTO orders (name) SELECT 'x' FROM generate_series(1, 3)", "DELETE FROM orders")
    bench.run()
    orders.run("INSERT INTO orders (name) VALUES ('last')")
    bench.run()
    assert rows(bench, "max(id)") == [8]
    assert bench.audit().ok, bench.audit().problems


@pytest.mark.parametrize("query", [None, "SELECT * FROM orders"])
def test_a_column_may_have_the_name_of_an_alias(orders: PostgresTable, tmp_path: Path, query: str | None) -> None:
    """PostgreSQL takes a bare name for a column first: a composite one replaced the row, another one failed."""
    orders.run("CREATE TYPE pair AS (a int, b text)", "ALTER TABLE orders ADD q pair, ADD g text")
    orders.run("INSERT INTO orders (name, q, g) VALUES ('x', (7, 'y'), 'z')")
    source = orders.source()
    source["table"]["query"] = query
    bench = Bench(tmp_path, source=source, files=None)
    bench.run()
    assert rows(bench, "id, name, q.a, q.b, g") == [(1, "x", 7, "y", "z")]


def test_numbers_of_postgresql_keep_all_digits(orders: PostgresTable, tmp_path: Path) -> None:
    orders.run("ALTER TABLE orders ADD exact numeric(30, 4)", "ALTER TABLE orders ADD empty numeric(9, 2)")
    orders.run("INSERT INTO orders (price, exact) VALUES (12345678901234567890.123456789, 12345678901234567890.1234)")
    bench = Bench(tmp_path, source=orders.source(), files=None)
    bench.run()
    assert rows(bench, "price::VARCHAR, exact::VARCHAR, empty") == [
        ("12345678901234567890.123456789", "12345678901234567890.1234", None)
    ]
    assert rows(bench, "typeof(price), typeof(exact), typeof(empty)") == [("JSON", "DECIMAL(30,4)", "DECIMAL(9,2)")]


@pytest.mark.parametrize("first", [1, 1000])
def test_columns_of_float_stay_double_after_integers(orders: PostgresTable, tmp_path: Path, first: int) -> None:
    """PostgreSQL writes 5.0 as 5: the column became a BIGINT, and later fractions were dead letters."""
    orders.run("ALTER TABLE orders ADD f real, ADD g float8, ADD h float8[], ADD n numeric[]")
    orders.run(f"ALTER TABLE orders ALTER id RESTART WITH {first}")
    orders.run("INSERT INTO orders (f, g, h, n) VALUES (5, 7, '{1,2}', '{3}')")
    bench = Bench(tmp_path, source=orders.source(), files=None)
    bench.run()
    orders.run("INSERT INTO orders (f, g, h, n) VALUES (1.5, 2.5, '{1.5}', '{3.5}')")
    bench.run()
    assert rows(bench, "f, g, h, n") == [(1.5, 2.5, [1.5], [3.5]), (5, 7, [1, 2], [3])]
    assert rows(bench, "DISTINCT typeof(f), typeof(g), typeof(h), typeof(n)") == [("DOUBLE", "DOUBLE", "DOUBLE[]", "DOUBLE[]")]


def test_bytes_of_postgresql_are_base64_whatever_the_server_is_set_to(orders: PostgresTable, tmp_path: Path) -> None:
    orders.run(
        'ALTER TABLE orders ADD "B y" bytea, ADD many bytea[], ADD span interval',
        'INSERT INTO orders ("B y", many, span)'
        " VALUES (decode(repeat('00ff', 50), 'hex'), ARRAY[decode('00ff', 'hex')], '1 day')",
        "INSERT INTO orders (name) VALUES ('null')",
        f"ALTER ROLE {ROLE} SET bytea_output = 'escape'",
        f"ALTER ROLE {ROLE} SET IntervalStyle = 'iso_8601'",
    )
    try:
        for number, query in enumerate([None, "SELECT * FROM orders"]):
            source = orders.source()
            source["table"]["query"] = query
            bench = Bench(tmp_path / str(number), source=source, files=None)
            bench.run()
            encoded = base64.b64encode(b"\0\xff" * 50).decode()
            assert rows(bench, 'id, "B y", many, span') == [(1, encoded, ["\\x00ff"], "1 day"), (2, None, None, None)]
    finally:
        orders.run(f"ALTER ROLE {ROLE} RESET bytea_output", f"ALTER ROLE {ROLE} RESET IntervalStyle")


def test_a_recreated_table_of_postgresql_needs_an_operator(orders: PostgresTable, tmp_path: Path) -> None:
    bench = Bench(tmp_path, source=orders.source(), files=None)
    orders.run("INSERT INTO orders (name) VALUES ('a')")
    bench.run()
    orders.run("DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
    with pytest.raises(SourceIdentityChanged, match="table postgres/orders was replaced"):
        bench.run()


def test_a_task_may_take_its_time_between_two_blocks(orders: PostgresTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow program takes a block of 8,192 rows for minutes."""
    monkeypatch.setattr(Server.__init__, "__defaults__", (30, 0.2))  # a commit's transaction, not a source's
    orders.run("INSERT INTO orders (name) SELECT 'x' FROM generate_series(1, 2000)")
    connector = TableConnector(SourceTable.model_validate(orders.source()["table"]), {"password": PASSWORD})
    (split,) = connector.splits()
    found = 0
    for block in connector.read(split.name, split.identity, Range(0, split.end)):
        found += len(block)
        time.sleep(0.5)
    assert found == 2000


_SHARED = "CREATE SEQUENCE s CACHE 10; DROP TABLE orders; CREATE TABLE orders"
_PARTITION = (
    "DROP TABLE orders; CREATE TABLE whole (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) PARTITION BY RANGE (id);"
    " CREATE TABLE orders PARTITION OF whole DEFAULT"
)


@pytest.mark.parametrize(
    ("statement", "column", "words"),
    [
        ("SELECT 1", "name", "expected an integer, found text"),
        ("ALTER TABLE orders ADD n int", "n", "expected NOT NULL"),
        ("ALTER TABLE orders ADD n int NOT NULL", "n", "expected unique"),
        ("SELECT 1", "missing", "column missing does not exist"),
        ("ALTER SEQUENCE orders_id_seq CACHE 10", "id", "gives each session 10 values at once"),
        ("ALTER TABLE orders RENAME TO others", "id", "the table does not exist"),
        ("CREATE TABLE child () INHERITS (orders)", "id", "other tables inherit from it"),
        ("ALTER SEQUENCE orders_id_seq CYCLE", "id", "descends or starts again"),
        (
            f"ALTER SEQUENCE orders_id_seq CACHE 10; REVOKE SELECT ON orders_id_seq FROM {ROLE}",
            "id",
            "each session 10 values at once",
        ),
        (f"ALTER SEQUENCE orders_id_seq CYCLE; REVOKE SELECT ON orders_id_seq FROM {ROLE}", "id", "descends or starts again"),
        (f"{_SHARED} (id bigint DEFAULT nextval('s') PRIMARY KEY)", "id", "sequence s gives each session 10 values at once"),
        (f"{_SHARED} (id bigint DEFAULT 2 * nextval('s') PRIMARY KEY)", "id", "sequence s gives each session 10 values at once"),
        (f"{_SHARED} (id bigint DEFAULT nextval('s'::text) PRIMARY KEY)", "id", "its default finds its sequence at run time"),
        (
            f"{_PARTITION}; ALTER SEQUENCE whole_id_seq CACHE 10",
            "id",
            "sequence whole_id_seq gives each session 10 values at once",
        ),
        ("ALTER TABLE orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "id", "row-level security"),
    ],
)
def test_a_column_of_postgresql_that_is_no_position_is_refused(
    orders: PostgresTable, tmp_path: Path, statement: str, column: str, words: str
) -> None:
    orders.run(statement)
    with pytest.raises(ReadFailed, match=words) as caught:
        Bench(tmp_path, source=orders.source(column), files=None).run()
    assert PASSWORD not in json.dumps([caught.value.what, caught.value.hint])


def test_values_of_several_sequences_are_read(orders: PostgresTable, tmp_path: Path) -> None:
    """The sequence that the column owns is ahead of the one that its default uses."""
    orders.run(
        "ALTER TABLE orders ALTER id DROP IDENTITY", "CREATE SEQUENCE s", "CREATE SEQUENCE own OWNED BY orders.id",
        "SELECT setval('own', 1000)", "ALTER TABLE orders ALTER id SET DEFAULT nextval('s')",
    )  # fmt: skip
    bench = Bench(tmp_path, source=orders.source(), files=None)
    for number in (1, 2):
        orders.run("INSERT INTO orders (name) VALUES ('a')")
        bench.run()
        assert rows(bench) == list(range(1, number + 1))


def test_a_replica_or_a_subscriber_is_refused(orders: PostgresTable, tmp_path: Path) -> None:
    """Values that open transactions have taken cannot be seen there."""
    bench = Bench(tmp_path, source=orders.source(), files=None)
    schema = orders.address.rpartition("%3D")[2]
    with orders.server.admin() as admin:
        admin.autocommit = False
        named = orders.server.sql(f"SELECT '{schema}.orders'::regclass::oid")[0][0]
        admin.execute("CREATE SUBSCRIPTION kpipe_test CONNECTION '' PUBLICATION x WITH (connect = false, slot_name = NONE)")
        admin.execute(f"INSERT INTO pg_subscription_rel SELECT oid, {named}, 'r', NULL FROM pg_subscription")
        admin.commit()
    orders.run("CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id)",
               "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000)")  # fmt: skip
    try:
        with pytest.raises(ReadFailed, match="a subscription fills it"):
            bench.run()
        # publish_via_partition_root decides whether a subscription names a partitioned table, or its partitions.
        for place, (filled, read) in enumerate((("part", "whole"), ("whole", "part"))):
            orders.server.sql(f"UPDATE pg_subscription_rel SET srrelid = '{schema}.{filled}'::regclass")
            source = orders.source()
            source["table"]["name"] = read
            with pytest.raises(ReadFailed, match="a subscription fills it"):
                Bench(tmp_path / str(place), source=source, files=None).run()
    finally:
        orders.server.sql("DROP SUBSCRIPTION kpipe_test")
    orders.run("CREATE FUNCTION pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    bench.run()  # a function of that name changes nothing


def test_a_real_replica_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    with PostgresServer() as server:
        table = PostgresTable(server, "orders")
        table.run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        with pytest.raises(ReadFailed, match="the server is a replica"):
            Bench(tmp_path, source=table.source(), files=None).run()


def test_a_prepared_transaction_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    with PostgresServer(max_prepared_transactions=1) as server:
        table = PostgresTable(server, "orders")
        table.run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)")
        bench = Bench(tmp_path, source=table.source(), files=None)
        ingest = bench.ingest()
        with table.session() as late:
            late.execute("INSERT INTO orders (name) VALUES ('late')")
            table.run("INSERT INTO orders (name) VALUES ('early')")
            assert list(ingest.run()) == []
            late.execute("PREPARE TRANSACTION 'late'")
            with pytest.raises(ReadStalled, match="prepared transactions have written it"):
                list(ingest.run())
            server.stop()
            server.start()
            with pytest.raises(ReadStalled, match="prepared transactions have written it"):
                bench.run()
        with table.session() as other:
            other.autocommit = True
            other.execute("COMMIT PREPARED 'late'")
        bench.run()
        assert rows(bench) == [1, 2]


def test_a_partition_waits_for_writers_of_the_whole_table(orders: PostgresTable, tmp_path: Path) -> None:
    """An INSERT locks the partitioned table first, takes its value, and locks the partition last."""
    orders.run(
        "DROP TABLE orders", "CREATE TABLE whole (id bigserial, name text) PARTITION BY LIST (name)",
        "CREATE TABLE orders PARTITION OF whole DEFAULT", "CREATE UNIQUE INDEX ON orders (id)",
    )  # fmt: skip
    bench = Bench(tmp_path, source=orders.source(), files=None)
    with orders.session() as late:
        late.execute("LOCK TABLE ONLY whole IN ROW EXCLUSIVE MODE")  # as an INSERT before it has found the partition
        late.execute("SELECT nextval('whole_id_seq')")
        orders.run("INSERT INTO whole (name) VALUES ('early')")
        assert bench.run() == 0
        late.execute("INSERT INTO whole VALUES (1, 'late')")
    bench.run()
    assert rows(bench, "id, name") == [(1, "late"), (2, "early")]


def test_a_password_in_the_address_is_refused_and_masked() -> None:
    secret = "canary-in-the-address"
    address = f"postgresql://reader:{secret}@localhost/shop"
    fields = {"name": "p", "source": {"table": {"type": "postgres", "database": address, "name": "t", "column": "id"}}}
    pipeline = Pipeline.model_validate({**fields, "into": {"type": "kafka", "brokers": "b", "topic": "t"}})
    with pytest.raises(InvalidPipeline, match=r"source\.table\.database: contains a password") as caught:
        check_connector(pipeline)
    assert secret not in str(caught.value) + to_sql(pipeline) + json.dumps(summary(pipeline))
