"""Lookups asked of the destination: DuckDB and PostgreSQL, through connections that cannot write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, InvalidPipeline, LookupFailed, NotAvailable
from resources.destinations.postgres.connection import Session
from resources.duckdb_engine import in_memory
from resources.home import Home
from resources.lookups.reference_table import Reference
from resources.lookups.table_source import asking
from tests.patience import longer
from tests.servers.postgres import PASSWORD, PostgresServer

Read = Callable[..., Reference]


def asks(home: Home, into: dict[str, Any]) -> Any:
    pipeline = Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": into})
    return {"ask": asking(pipeline, home), "into": into}


@pytest.fixture
def duck(tmp_path: Path) -> tuple[dict[str, Any], Callable[[str], Any]]:
    home = Home(tmp_path / "home").make()

    def run(statement: str) -> Any:
        with duckdb.connect(str(home.data / "kpipe.duckdb")) as connection:
            return connection.execute(statement).fetchall()

    run("CREATE TABLE dims AS SELECT n AS \"K y\", 'v' || n AS v, uuid() AS u, n::HUGEINT AS h FROM range(3) AS t(n)")
    return asks(home, {"table": "t"}), run


def test_a_table_and_a_query_of_duckdb(read: Read, duck: Any) -> None:
    asked, run = duck
    found = read("v", "u", "h", table="dims", key="k y", **asked)
    assert found.columns.to_dict() == {"K y": "BIGINT", "v": "VARCHAR", "u": "VARCHAR", "h": "DECIMAL(38,0)"}
    assert [(row["K y"], row["v"], row["h"]) for row in found.table.to_pylist()] == [(n, f"v{n}", Decimal(n)) for n in range(3)]
    again = read("v", "u", "h", table="dims", key="k y", **asked)
    assert again.version.sha256 == found.version.sha256, "the same rows are the same version"
    run("INSERT INTO dims VALUES (7, 'x', NULL, NULL)")
    newer = read("v", query='SELECT "K y" + 1 AS k, v FROM dims -- all of them\n;', key="k", **asked)
    assert [row["k"] for row in newer.table.to_pylist()] == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"table": "nothing"}, "nothing"),
        ({"table": 'dims"; DROP TABLE dims; --'}, "cannot be read"),
        ({"query": "SELECT 1 AS k, 2 AS v; SELECT 2"}, "not one SELECT"),
        ({"query": "DROP TABLE dims"}, "not one SELECT"),
        ({"query": "WITH x AS (SELECT 1) INSERT INTO dims SELECT 1, 'a', NULL, NULL"}, "not one SELECT"),
        ({"query": "SELEC 1"}, "query: "),
        ({"query": "SELECT 1 AS k) AS q; DROP TABLE dims; --"}, "query: "),
        ({"query": "SELECT column0 AS k, column1 AS v FROM read_csv('/etc/passwd')"}, "cannot be read"),
        ({"query": "SELECT 1 AS k, getenv('HOME') AS v"}, "cannot be read"),
        ({"query": "SELECT n % 2 AS k, n AS v FROM range(5) AS t(n)"}, "duplicate key k '[01]'"),
        ({"query": "SELECT 1 AS k, INTERVAL 1 DAY AS v"}, "has type INTERVAL"),
        ({"query": "SELECT range AS k, repeat('x', 1000) AS v FROM range(5000)", "max_mb": 1}, "larger than 1 MiB"),
    ],
)
def test_what_duckdb_is_not_asked(read: Read, duck: Any, fields: dict[str, Any], words: str) -> None:
    asked, run = duck
    with pytest.raises(InvalidPipeline, match=words):
        read("v", key="k", **fields, **asked)
    assert run("SELECT count(*) FROM dims") == [(3,)]


def test_a_database_that_is_not_there_or_is_held(read: Read, tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="create the table first"):
        read("v", table="dims", key="k", **asks(Home(tmp_path / "other").make(), {"table": "t"}))
    assert DestinationBusy.retriable
    with pytest.raises(NotAvailable, match="delta"):
        read("v", table="dims", key="k", **asks(Home(tmp_path / "other"), {"table": "t", "type": "delta"}))


@pytest.fixture
def pg(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[dict[str, Any], str]:
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    schema = postgres.schema()
    into = {
        "type": "postgres", "database": postgres.address(schema), "table": "t",
        "credentials": {"password": "{{ env('PG_PASSWORD') }}"},
    }  # fmt: skip
    postgres.sql(f"""CREATE TABLE {schema}.dims (k int, "V 1" text, n numeric(10,2), d date, at timestamptz, b boolean, j jsonb,
        u uuid, f float8, c varchar(5), free numeric, raw bytea)""")
    postgres.sql(f"""INSERT INTO {schema}.dims VALUES
        (2, 'a', 1.50, '2026-11-21', '2026-11-21 10:00:00+02', true, '{{"x": 1}}', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
         1e300, 'cc', 1, '\\x00'), (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""")
    postgres.sql(f"GRANT ALL ON {schema}.dims TO loader")
    return asks(Home(tmp_path / "home").make(), into), schema


def test_a_table_of_postgres_with_its_types(read: Read, pg: Any) -> None:
    asked, _ = pg
    found = read("v 1", "n", "d", "at", "b", "j", "u", "f", "c", table="dims", key="k", **asked)
    assert found.columns.to_dict() == {
        "k": "INTEGER", "V 1": "VARCHAR", "n": "DECIMAL(10,2)", "d": "DATE", "at": "TIMESTAMP WITH TIME ZONE", "b": "BOOLEAN",
        "j": "VARCHAR", "u": "VARCHAR", "f": "DOUBLE", "c": "VARCHAR",
    }  # fmt: skip
    empty, full = found.table.to_pylist()
    assert [value for name, value in empty.items() if name != "k"] == [None] * 9
    assert full == {
        "k": 2, "V 1": "a", "n": Decimal("1.50"), "d": date(2026, 11, 21), "at": datetime(2026, 11, 21, 8, tzinfo=timezone.utc),
        "b": True, "j": '{"x": 1}', "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "f": 1e300, "c": "cc",
    }  # fmt: skip


@pytest.mark.parametrize("column", ["k", "v"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'NaN'::numeric(10,2)", "v: 'NaN' is not a DECIMAL(10,2)"),
        ("""'{"a":1,"a":2}'::json""", """v: '{"a":1,"a":2}' is not a JSON"""),
        ("'294276-12-31'::timestamp", "v: '294276-12-31 00:00:00' is not a TIMESTAMP"),
        ("'0044-03-15 BC'::date", ("0044-03-15 (BC)",)),
        ("'0044-03-15 00:00 BC'::timestamptz", ("0044-03-15 (BC) 00:00:00+00",)),
        ("'0044-03-15 23:59:59.5 BC'::timestamp", ("0044-03-15 (BC) 23:59:59.5",)),
        ("'20226-07-01'::date", ("20226-07-01",)),
        ("'-infinity'::date", ("-infinity",)),
        ("'infinity'::timestamptz", ("infinity",)),
        ("'infinity'::timestamp", ("infinity",)),
        ("'24:00'::time", ("24:00:00",)),
        ("'NaN'::float8", ("nan",)),
    ],
)
def test_a_value_of_postgres_is_read_or_named(read: Read, pg: Any, column: str, value: str, expected: str | tuple[str]) -> None:
    """A value that became NULL would be missing from rows without an error; as a key, the error would call it NULL."""
    asked, _ = pg
    query = f"SELECT 1 AS k, {value} AS v" if column == "v" else f"SELECT {value} AS k, 1 AS v"
    if isinstance(expected, str):
        with pytest.raises(InvalidPipeline) as error:
            read("v", query=query, key="k", **asked)
        assert error.value.what.endswith(expected.replace("v: ", f"{column}: ", 1)) and error.value.what.startswith("lookups.l: ")
        return
    found = read("v", query=query, key="k", **asked).table
    shown = in_memory.query(f"SELECT CAST({column} AS VARCHAR) AS text FROM block", found)
    assert shown.column("text").to_pylist() == list(expected)


def test_a_query_of_postgres(read: Read, pg: Any) -> None:
    asked, _ = pg
    query = "SELECT k, count(*) OVER () AS n, '100%' AS v FROM dims -- all\n;"
    assert read("n", "v", query=query, key="k", **asked).table.to_pylist() == [
        {"k": 1, "n": 2, "v": "100%"},
        {"k": 2, "n": 2, "v": "100%"},
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"table": "nothing"}, "nothing"),
        ({"table": 'dims"; DROP TABLE dims; --'}, "cannot be read"),
        ({"query": "SELECT 1 AS k, 2 AS v) AS q; COMMIT; DROP TABLE dims; SELECT (1"}, "cannot be read"),
        ({"query": "SELECT 1 AS k, 2 AS v; DROP TABLE dims"}, "cannot be read"),
        ({"query": "DELETE FROM dims RETURNING k, 1 AS v"}, "cannot be read"),
        ({"query": "WITH gone AS (DELETE FROM dims RETURNING k) SELECT k, 1 AS v FROM gone"}, "cannot be read"),
        ({"query": "SELECT k, setval('s', 9) AS v FROM dims"}, "read-only transaction"),
        ({"query": "SELECT k, free AS v FROM dims"}, "has type numeric"),
        ({"query": "SELECT k, raw AS v FROM dims"}, "has type bytea"),
        ({"query": "SELECT n AS k, repeat('x', 1000) AS v FROM generate_series(1, 5000) AS n", "max_mb": 1}, "larger than 1 MiB"),
    ],
)
def test_what_postgres_is_not_asked(read: Read, pg: Any, postgres: PostgresServer, fields: dict[str, Any], words: str) -> None:
    asked, schema = pg
    postgres.sql(f"CREATE SEQUENCE {schema}.s OWNED BY NONE; GRANT ALL ON {schema}.s TO loader")
    with pytest.raises(InvalidPipeline, match=words):
        read("v", key="k", **fields, **asked)
    assert postgres.sql(f"SELECT count(*) FROM {schema}.dims") == [(2,)]


def test_large_rows_of_postgres_are_read_in_small_steps(read: Read, pg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is compared after each step, so the size of a step depends on that of the rows."""
    asked, _ = pg
    steps = list[int]()
    execute = Session.execute

    def counted(self: Session, query: Any, *values: Any) -> Any:
        if str(query).startswith("FETCH "):
            steps.append(int(str(query).split()[1]))
        return execute(self, query, *values)

    monkeypatch.setattr(Session, "execute", counted)
    small = read("v", query="SELECT n AS k, 'x' AS v FROM generate_series(1, 30000) AS n", key="k", **asked)
    assert len(small.table) == 30_000 and steps == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
    steps.clear()
    large = "SELECT n AS k, repeat('x', CASE WHEN n > 300 THEN 100000 ELSE 1 END) AS v FROM generate_series(1, 5000) AS n"
    with pytest.raises(InvalidPipeline, match="larger than 60 MiB"):
        read("v", query=large, key="k", max_mb=60, **asked)
    assert steps[:3] == [100, 200, 400] and max(steps[3:]) <= 42


def test_a_query_that_takes_too_long_is_worth_another_try(read: Read, pg: Any) -> None:
    asked, _ = pg

    def check(limit_s: float) -> None:
        with pytest.raises(LookupFailed, match="took too long"):
            read("v", query="SELECT 1 AS k, pg_sleep(100)::text AS v", key="k", timeout_s=limit_s, **asked)

    longer(check, 3, 60)  # connecting takes a part of it
