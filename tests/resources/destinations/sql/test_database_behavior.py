"""What DuckDB and PostgreSQL do, and our commits are written around. An upgrade that changes it is to be noticed.

Numbers are those of the findings that docs/explanation/reliability.md lists under "Libraries".
"""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.servers.postgres import PASSWORD, PostgresServer


@pytest.fixture
def two(tmp_path: Path) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    """Two connections of one process to one file."""
    one = duckdb.connect(str(tmp_path / "x.duckdb"))
    one.execute("CREATE TABLE lane (part INTEGER PRIMARY KEY, next BIGINT); INSERT INTO lane VALUES (0, 100)")
    return one, one.cursor()


def test_8_duckdb_says_yes_to_the_commit_of_a_transaction_that_has_failed(
    two: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection],
) -> None:
    one, other = two
    one.execute("BEGIN; UPDATE lane SET next = 200")
    with pytest.raises(duckdb.ConversionException):
        one.execute("INSERT INTO lane SELECT CAST('x' AS INTEGER), 0")
    one.execute("COMMIT")  # says nothing
    assert other.execute("SELECT next FROM lane").fetchall() == [(100,)]


def test_9_an_update_that_matches_nothing_is_no_error(two: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]) -> None:
    one, _ = two
    assert one.execute("UPDATE lane SET next = 300 WHERE next = 99 RETURNING 1").fetchall() == []


def test_duckdb_lets_one_of_two_updates_through_and_both_of_two_inserts(
    two: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection],
) -> None:
    """So the compare-and-swap updates a row; a look and an insert behind it would fence nobody."""
    one, other = two
    one.execute("CREATE TABLE log (x BIGINT); BEGIN; UPDATE lane SET next = 200 WHERE next = 100")
    other.execute("BEGIN")
    with pytest.raises(duckdb.TransactionException, match=r"[Cc]onflict"):
        other.execute("UPDATE lane SET next = 200 WHERE next = 100")
    one.execute("COMMIT")
    other.execute("ROLLBACK; BEGIN; INSERT INTO log SELECT next FROM lane")
    one.execute("BEGIN; INSERT INTO log SELECT next FROM lane; COMMIT")
    other.execute("COMMIT")
    assert one.execute("SELECT x FROM log").fetchall() == [(200,), (200,)]


def test_16_duckdb_takes_names_for_files_and_for_variables(tmp_path: Path) -> None:
    """Quotes do not help; `closed` (resources/duckdb_engine/sandbox.py) switches both off."""
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    secret = duckdb.sql("SELECT 2 AS a")
    with duckdb.connect() as connection:
        assert connection.execute(f'SELECT * FROM "{path}"').fetchall() == [(1,)]
        assert duckdb.sql('SELECT * FROM "secret"').fetchall() == [(2,)]
        del secret
        connection.execute("SET enable_external_access = false")
        with pytest.raises(duckdb.PermissionException):
            connection.execute(f'SELECT * FROM "{path}"')


def test_8_postgres_answers_the_commit_of_a_transaction_that_has_failed_with_rollback(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.address(postgres.schema()), password=PASSWORD, autocommit=True) as connection:
        connection.execute("CREATE TABLE lane (next bigint)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO lane VALUES (1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1/0")
        assert connection.execute("COMMIT").statusmessage == "ROLLBACK"
        assert connection.execute("SELECT count(*) FROM lane").fetchone() == (0,)


def test_9_postgres_loser_waits_and_then_matches_nothing(postgres: PostgresServer) -> None:
    address = postgres.address(postgres.schema())
    with (
        psycopg.connect(address, password=PASSWORD, autocommit=True) as one,
        psycopg.connect(address, password=PASSWORD, autocommit=True) as other,
    ):
        one.execute("CREATE TABLE lane (next bigint)")
        one.execute("INSERT INTO lane VALUES (100)")
        one.execute("BEGIN")
        one.execute("UPDATE lane SET next = 200 WHERE next = 100")
        changed: list[int] = []
        loser = threading.Thread(
            target=lambda: changed.append(other.execute("UPDATE lane SET next = 200 WHERE next = 100").rowcount)
        )
        loser.start()
        loser.join(0.3)
        assert loser.is_alive(), "it did not wait for the row"
        one.execute("COMMIT")
        loser.join(300)
        assert changed == [0]


@pytest.mark.parametrize("text", [r'{"a": "\u0000"}', r'{"a": "\ud800"}'])
def test_postgres_jsonb_refuses_what_json_allows(postgres: PostgresServer, text: str) -> None:
    with psycopg.connect(postgres.address(postgres.schema()), password=PASSWORD, autocommit=True) as connection:
        with pytest.raises(psycopg.DataError):
            connection.execute("SELECT %s::jsonb", [text])
        connection.execute("SELECT %s::json", [text])
