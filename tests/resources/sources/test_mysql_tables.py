"""Tables of MariaDB as a source, and queries: rows are read once, also while transactions commit out of order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import duckdb
import pymysql
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import SourceTable
from kpipe.errors import InvalidPipeline, OffsetsBeyondEnd, ReadFailed, ReadStalled
from kpipe.failpoints import POINTS
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from resources.sources.open_source import check_connector
from resources.sources.tables import mysql_table
from tests.resources.sources.runs import Bench, kill
from tests.resources.sources.test_tables import DuckTable, PostgresTable, rows
from tests.servers.mariadb import PASSWORD, MariaServer
from tests.servers.postgres import PASSWORD as POSTGRES_PASSWORD
from tests.servers.postgres import PostgresServer

_REACHED = [point for point in POINTS if point.startswith(("commit.", "collect.all", "read.", "readback", "publish."))]


class MariaTable:
    """A table of MariaDB in a database of its own."""

    def __init__(self, server: MariaServer) -> None:
        self.server, self.database = server, server.database()
        server.sql("GRANT SLAVE MONITOR ON *.* TO loader@'%'")
        self.run("CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, name varchar(50), n int NOT NULL DEFAULT 1)")

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A cursor; its transaction ends with COMMIT."""
        connection = self.server.admin(database=self.database, autocommit=False)
        try:
            yield connection.cursor()
            connection.commit()
        finally:
            connection.close()

    def run(self, *statements: str) -> None:
        """Execute, and commit."""
        with self.session() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def source(self, column: str = "id", **more: Any) -> dict[str, Any]:
        """Fields of `source`."""
        table = {"type": "mysql", "database": self.server.address(self.database), "name": "orders", "column": column, **more}
        return {"table": table, "credentials": {"password": "{{ env('TEST_SOURCE_PASSWORD') }}"}}


@pytest.fixture
def orders(mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch) -> MariaTable:
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    with suppress(pymysql.err.Error):  # it is installed
        mariadb.sql("INSTALL SONAME 'metadata_lock_info'")
    return MariaTable(mariadb)


@pytest.fixture
def by_schema(monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaTable]:
    """A table of a server whose locks are in performance_schema, as MySQL's are."""
    monkeypatch.setenv("TEST_SOURCE_PASSWORD", PASSWORD)
    with MariaServer("performance-schema=ON", "performance-schema-instrument=wait/lock/metadata/sql/mdl=ON") as server:
        server.sql("GRANT SELECT ON performance_schema.* TO loader@'%'")
        yield MariaTable(server)


def committed_out_of_order(table: MariaTable, folder: Path) -> None:
    bench = Bench(folder, source=table.source(), files=None)
    table.run("INSERT INTO orders (name) VALUES ('a'), ('b')")
    bench.run()
    with table.session() as late:
        late.execute("INSERT INTO orders (name) VALUES ('late')")  # takes 3
        table.run("INSERT INTO orders (name) VALUES ('early')")  # takes 4, and commits first
        assert bench.run() == 0
        assert rows(bench) == [1, 2]
    bench.run()
    assert rows(bench, "id, name") == [(1, "a"), (2, "b"), (3, "late"), (4, "early")]
    table.run("INSERT INTO orders (name) VALUES ('x'), ('x')", "DELETE FROM orders")
    bench.run()
    table.run("INSERT INTO orders (name) VALUES ('last')")
    bench.run()
    assert rows(bench, "max(id)") == [7]
    assert bench.audit().ok, bench.audit().problems


def test_the_auto_increment_of_another_column_is_no_position(orders: MariaTable, tmp_path: Path) -> None:
    orders.run("ALTER TABLE orders ADD seq bigint NOT NULL UNIQUE", "INSERT INTO orders (id, seq) VALUES (1000, 1)")
    bench = Bench(tmp_path, source=orders.source("seq"), files=None)
    bench.run()
    orders.run("INSERT INTO orders (id, seq) VALUES (1001, 2)")
    bench.run()
    assert rows(bench, "seq") == [1, 2]


def test_transactions_that_commit_out_of_order_by_the_plugin(orders: MariaTable, tmp_path: Path) -> None:
    committed_out_of_order(orders, tmp_path)


def test_transactions_that_commit_out_of_order_by_performance_schema(by_schema: MariaTable, tmp_path: Path) -> None:
    committed_out_of_order(by_schema, tmp_path)
    by_schema.server.sql(
        "UPDATE performance_schema.setup_instruments SET ENABLED = 'NO' WHERE NAME = 'wait/lock/metadata/sql/mdl'"
    )
    with pytest.raises(ReadFailed, match="the server does not show all metadata locks"):
        Bench(tmp_path / "b", source=by_schema.source(), files=None).run()


def test_runs_that_are_killed_repeat_and_lose_no_row(orders: MariaTable, tmp_path: Path) -> None:
    bench, written = Bench(tmp_path, source=orders.source(), files=None), 0
    for point in _REACHED:
        orders.run("INSERT INTO orders (name) VALUES ('x'), ('y'), ('z')")
        written += 3
        assert bench.run_until(point, kill), point
    bench.run()
    assert rows(bench, "count(*), count(DISTINCT id)") == [(written, written)]
    assert bench.audit().ok, bench.audit().problems


def test_values_of_each_type_are_exact(orders: MariaTable, tmp_path: Path) -> None:
    orders.run(
        "DROP TABLE orders",
        "CREATE TABLE orders (id int unsigned ZEROFILL PRIMARY KEY, d decimal(60,20), z decimal(8,2) ZEROFILL, f float, g double,"
        " t text, b varbinary(9), bits bit(9), day date, at datetime(6), moment timestamp(6) NULL, span time, y year, j json,"
        " e enum('a', 'b'), big bigint unsigned, u uuid)",
        "SET time_zone = '+02:00'",
        "INSERT INTO orders VALUES (42, 1234567890123456789012345678901234567890.00000000000000000001, 0.5, 0.1, 1e-300,"
        " 'Köln \"\\\\ 🚲', x'00ff', b'101', '2026-01-02', '2026-01-02 03:04:05.000006', '2026-01-02 03:04:05.5',"
        " '-838:59:59', 2026, '{\"a\": [1]}', 'b', 18446744073709551615, 'aec1ab2e-9d4c-4b5e-8a0d-0c9e0b1a2c3d')",
        "INSERT INTO orders (id) VALUES (43)",
    )
    bench = Bench(tmp_path, source=orders.source(), files=None, format={"type": "raw"})
    bench.run()
    with duckdb.connect(str(bench.home.data / "kpipe.duckdb"), read_only=True) as connection:
        first, second = (
            bytes(row[0]).decode() for row in connection.execute("SELECT value FROM t ORDER BY _kafka_offset").fetchall()
        )
    assert '"d":1234567890123456789012345678901234567890.00000000000000000001,' in first
    found = json.loads(first)
    assert found.pop("d") == pytest.approx(1.2345678901234567e39)
    assert found == {
        "id": 42, "z": 0.5, "f": 0.10000000149011612, "g": 1e-300, "t": 'Köln "\\ 🚲', "b": "AP8=", "bits": 5,
        "day": "2026-01-02", "at": "2026-01-02T03:04:05.000006", "moment": "2026-01-02T01:04:05.500000Z", "span": "-838:59:59",
        "y": 2026, "j": '{"a": [1]}', "e": "b", "big": 2**64 - 1, "u": "aec1ab2e-9d4c-4b5e-8a0d-0c9e0b1a2c3d",
    }  # fmt: skip
    assert json.loads(second) == {**dict.fromkeys(("d", *found)), "id": 43}


def test_numbers_keep_all_digits_in_columns(orders: MariaTable, tmp_path: Path) -> None:
    orders.run(
        "DROP TABLE orders",
        "CREATE TABLE orders (id int PRIMARY KEY, d decimal(60,20), e decimal(38,4), z decimal(38,2) ZEROFILL,"
        " u bigint unsigned, b bit(64), f bit(63), g float, h double)",
        "INSERT INTO orders VALUES (1, 1234567890123456789012345678901234567890.00000000000000000001, -1234567890123456789.1234,"
        " 1234567890123456789.12, 18446744073709551615, 18446744073709551615, 9223372036854775807, 5, 7)",
    )
    bench = Bench(tmp_path, source=orders.source(), files=None)
    bench.run()
    assert rows(bench, "d::VARCHAR, e::VARCHAR, z::VARCHAR, u, b, f") == [(
        "1234567890123456789012345678901234567890.00000000000000000001", "-1234567890123456789.1234", "1234567890123456789.12",
        2**64 - 1, 2**64 - 1, 2**63 - 1,
    )]  # fmt: skip
    kinds = ("JSON", "DECIMAL(38,4)", "DECIMAL(38,2)", "UBIGINT", "UBIGINT", "BIGINT", "DOUBLE", "DOUBLE")
    assert rows(bench, ", ".join(f"typeof({name})" for name in "dezubfgh")) == [kinds]
    orders.run("INSERT INTO orders (id, g, h) VALUES (2, 1.5, 2.5)")
    bench.run()
    assert rows(bench, "g, h") == [(1.5, 2.5), (5, 7)]


@pytest.mark.parametrize(
    ("statement", "column", "words"),
    [
        ("SELECT 1", "name", "expected an integer, found varchar"),
        ("ALTER TABLE orders ADD m int", "m", "expected NOT NULL"),
        ("SELECT 1", "n", "expected unique"),
        ("CREATE UNIQUE INDEX two ON orders (n, id)", "n", "expected unique"),
        ("SELECT 1", "missing", "column missing does not exist"),
        ("INSERT INTO orders (id) VALUES (-1)", "id", "expected values of 0 or more, found -1"),
        ("ALTER TABLE orders ENGINE = MyISAM", "id", "expected a table of InnoDB, found BASE TABLE MyISAM"),
        ("RENAME TABLE orders TO others", "id", "the table does not exist"),
    ],
)
def test_a_column_that_is_no_position_is_refused(
    orders: MariaTable, tmp_path: Path, statement: str, column: str, words: str
) -> None:
    orders.run(statement)
    with pytest.raises(ReadFailed, match=words) as caught:
        Bench(tmp_path, source=orders.source(column), files=None).run()
    assert PASSWORD not in json.dumps([caught.value.what, caught.value.hint])


def test_a_server_that_does_not_show_its_transactions_is_refused(orders: MariaTable, tmp_path: Path) -> None:
    bench = Bench(tmp_path, source=orders.source(), files=None)
    orders.run("INSERT INTO orders (name) VALUES ('a')")
    server = orders.server
    for setting, undo in (
        ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"),
        ("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1", "RESET SLAVE ALL"),
    ):
        server.sql(setting)
        try:
            with pytest.raises(ReadFailed, match="the server is a replica, read-only, or one of several"):
                bench.run()
        finally:
            server.sql(undo)
    with orders.session() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute("INSERT INTO orders (name) VALUES ('xa')")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")
        with pytest.raises(ReadStalled, match="prepared transactions"):
            bench.run()
        cursor.execute("XA COMMIT 'x'")
    bench.run()
    assert rows(bench, "name") == ["a", "xa"]
    server.sql("REVOKE SLAVE MONITOR ON *.* FROM loader@'%'")
    with pytest.raises(ReadFailed, match="SLAVE MONITOR"):
        bench.run()


def test_a_table_that_lost_its_newest_rows_needs_an_operator(orders: MariaTable, tmp_path: Path) -> None:
    bench = Bench(tmp_path, source=orders.source(), files=None)
    orders.run("INSERT INTO orders (name) VALUES ('a'), ('b')")
    bench.run()
    orders.run("TRUNCATE orders")
    with pytest.raises(OffsetsBeyondEnd, match="table mysql/orders was truncated: expected its end at 3 or later, found 1"):
        bench.run()


@pytest.mark.parametrize("kind", ["duckdb", "mysql", "postgres"])
def test_a_query_joins_other_tables(kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> None:
    table: Any
    if kind == "duckdb":
        table = DuckTable(tmp_path)
    elif kind == "mysql":
        table = request.getfixturevalue("orders")
    else:
        monkeypatch.setenv("TEST_SOURCE_PASSWORD", POSTGRES_PASSWORD)
        server: PostgresServer = request.getfixturevalue("postgres")
        table = PostgresTable(server, "orders")
        table.run("CREATE TABLE orders (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)")
    table.run("CREATE TABLE cities (name varchar(9), city varchar(9))", "INSERT INTO cities VALUES ('a', 'Köln'), ('b', 'Rom')")
    table.run("INSERT INTO orders (id, name) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    query = "SELECT o.id, c.city FROM orders o JOIN cities c ON o.name = c.name -- each has one"
    source = table.source()
    source["table"]["query"] = query
    bench = Bench(tmp_path / "b", source=source, files=None)
    bench.run()
    table.run("INSERT INTO orders (id, name) VALUES (4, 'a')")
    bench.run()
    assert rows(bench, "id, city") == [(1, "Köln"), (2, "Rom"), (4, "Köln")]
    assert bench.audit().ok, bench.audit().problems
    fields = {"name": "p", "source": source, "into": {"type": "kafka", "brokers": "b:9092", "topic": "t"}}
    pipeline = Pipeline.model_validate(fields)
    assert query in to_sql(pipeline)
    assert getattr(read(to_sql(pipeline)), "pipeline") == pipeline  # noqa: B009
    table.run("INSERT INTO cities VALUES ('a', 'Bonn')", "INSERT INTO orders (id, name) VALUES (5, 'a')")
    with pytest.raises(ReadFailed, match="a value of id is there more than once"):
        bench.run()
    source["table"]["query"] = "SELECT name FROM orders"
    with pytest.raises(ReadFailed, match="id"):
        Bench(tmp_path / "c", source=source, files=None).run()


@pytest.mark.parametrize(("version", "expected"), [("8.0.36", True), ("10.11.6-MariaDB", False)])
def test_mysql_returns_the_current_value_of_auto_increment(version: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, MySQL's information_schema keeps it for a day. MariaDB does not have the variable."""
    session = MagicMock(maria="Maria" in version, database="c")
    server = MagicMock()
    server.return_value.session.return_value.__enter__.return_value = session
    monkeypatch.setattr(mysql_table, "Server", server)
    with mysql_table.open_mysql(SourceTable(type="mysql", database="mysql://a@b/c", name="orders", column="id"), {}):
        statements = [call.args[0] for call in session.execute.call_args_list]
    assert ("SET SESSION information_schema_stats_expiry = 0" in statements) == expected


def test_a_password_in_the_address_is_refused() -> None:
    table = {"type": "mysql", "database": "mysql://reader:canary-4@localhost/shop", "name": "t", "column": "id"}
    fields = {"name": "p", "source": {"table": table}, "into": {"type": "kafka", "brokers": "b", "topic": "t"}}
    with pytest.raises(InvalidPipeline, match=r"source\.table\.database: contains a password") as caught:
        check_connector(Pipeline.model_validate(fields))
    assert "canary-4" not in str(caught.value)
