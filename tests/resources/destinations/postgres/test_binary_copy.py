"""Rows in PostgreSQL's binary format are the rows that lines of CSV are, for every type and at its edges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from kpipe.errors import DestinationError
from kpipe.schema.columns import Columns, Scalar, Type
from resources.destinations.postgres import binary_copy
from resources.destinations.postgres.types import sql_type
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.staged_reader import reader
from resources.duckdb_engine.sql_types import sql_type as duckdb_type
from resources.native import library
from tests.servers.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled part")

EDGES: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127", "0"],
    "UTINYINT": ["255"],
    "SMALLINT": ["-32768", "32767"],
    "USMALLINT": ["65535"],
    "INTEGER": ["-2147483648", "2147483647", "-1"],
    "UINTEGER": ["4294967295"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "-1", "256"],
    "UBIGINT": ["18446744073709551615", "10000", "0"],
    "HUGEINT": ["-170141183460469231731687303715884105727", "100000000", "9999"],
    "FLOAT": ["'nan'", "'-inf'", "-0.0", "1e-45", "3.4028234663852886e38"],
    "DOUBLE": ["'nan'", "'inf'", "-0.0", "5e-324", "0.1", "1.7976931348623157e308"],
    "DECIMAL(38,0)": ["-99999999999999999999999999999999999999", "10000", "0", "9"],
    "DECIMAL(38,38)": ["'-0.99999999999999999999999999999999999999'", "'0.00000000000000000000000000000000000001'"],
    "DECIMAL(7,3)": ["-9999.999", "0.001", "0.100", "-0.010", "1000.000"],
    "DECIMAL(18,5)": ["1.00001", "12345678.00000", "0.00010"],
    "VARCHAR": ["''", "'a\tb\nc\\d\"e,f'", "'\u00e9\u20ac\U0001f600'", "'NULL'", "'\\N'"],
    "BLOB": ["''::BLOB", "'\\x00\\xFF\\x0A'::BLOB"],
    "DATE": ["'4713-01-01 (BC)'", "'1969-12-31'", "'2000-01-01'", "'9999-12-31'", "'infinity'", "'-infinity'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'"],
    "TIMESTAMP": ["'1999-12-31 23:59:59.999999'", "'0044-03-15 (BC) 00:00:00'", "'infinity'", "'-infinity'", "'9999-12-31'"],
    "TIMESTAMP WITH TIME ZONE": ["'2000-01-01 00:00:00.000001+00'", "'1970-01-01 00:00:00+00'", "'infinity'", "'-infinity'"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "JSON": ["'{\"a\": [1, 2.50, null]}'", "'\"x\"'", "'12345678901234567890123'"],
    "BIGINT[]": ["[1, NULL, -9223372036854775808]", "[]"],
    "STRUCT(a VARCHAR, b DOUBLE, c BLOB)": ["{'a': 'q\"', 'b': 0.1, 'c': '\\x00'::BLOB}", "{'a': NULL, 'b': NULL, 'c': NULL}"],
}
NAMES = [f"c{at}" for at in range(len(EDGES))]
KINDS = Columns.of(dict(zip(NAMES, EDGES, strict=True)))
TEXT = Scalar("VARCHAR")


def match(name: str, kind: Type) -> Match:
    """As Spark's tasks stage it: these are texts in their files."""
    return name, TEXT if str(kind) in ("HUGEINT", "JSON", "UUID") else kind, kind


MATCHES = [match(*column) for column in KINDS]


@pytest.fixture
def session(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.address(postgres.schema()), password=PASSWORD, autocommit=True) as connection:
        yield connection


def typed(kinds: list[str]) -> Columns:
    return Columns.of({f"c{at}": kind for at, kind in enumerate(kinds)})


def staged(folder: Path, rows: list[list[str]], kinds: list[str]) -> str:
    """A Parquet file with these expressions."""
    path = folder / "rows.parquet"
    with duckdb.connect() as connection:
        columns = ", ".join(f"c{at} {duckdb_type(match(*column)[1])}" for at, column in enumerate(typed(kinds)))
        connection.execute(f"CREATE TABLE t ({columns})")
        for row in rows:
            connection.execute(f"INSERT INTO t VALUES ({', '.join(row)})")
        connection.execute(f"COPY t TO '{path}'")
    return str(path)


def copied(session: psycopg.Connection, table: str, made: str, how: str, blocks: Iterator[Any]) -> list[tuple[Any, ...]]:
    session.execute(f"DROP TABLE IF EXISTS {table}")
    session.execute(f"CREATE TABLE {table} ({made})")
    with session.cursor().copy(f"COPY {table} FROM STDIN (FORMAT {how})") as copy:
        for block in blocks:
            copy.write(block)
    return session.execute(f"SELECT t::text, count(*) FROM {table} AS t GROUP BY 1 ORDER BY 1").fetchall()


def both(session: psycopg.Connection, path: str, matches: list[Match], plain: bool = False) -> list[tuple[Any, ...]]:
    """Rows as the binary format has brought them, after those of CSV were found to be the same."""
    made = ", ".join(f"{name} {'json' if plain else sql_type(have)}" for name, _, have in matches)
    with reader([Path(path).parent]) as engine:
        csv = copied(session, "csv", made, "csv", csv_copy.blocks(engine, csv_copy.lines(matches), [[path]]))
        found = copied(session, "bin", made, "binary", binary_copy.blocks(engine, matches, [plain] * len(matches), [path]))
    assert found == csv
    return found


def test_every_type_at_its_edges(session: psycopg.Connection, tmp_path: Path) -> None:
    longest = max(map(len, EDGES.values()))
    rows = [[values[at] if at < len(values) else "NULL" for values in EDGES.values()] for at in range(longest + 1)]
    found = both(session, staged(tmp_path, rows, list(EDGES)), MATCHES)
    assert sum(count for _, count in found) == len(rows)


def test_many_blocks_of_rows_with_nulls_anywhere(session: psycopg.Connection, tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "rows.parquet"
    picks = []
    for at, (name, kind) in enumerate(KINDS):
        values = EDGES[str(kind)]
        which = f"[{', '.join(values)}][1 + (hash(i, {at}, 1) % {len(values)})::INT]"
        picks.append(f"CASE WHEN hash(i, {at}) % 5 > 0 THEN CAST({which} AS {duckdb_type(match(name, kind)[1])}) END AS {name}")
    pick = ", ".join(picks)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {pick} FROM range({20_000 + chance.randrange(999)}) AS r(i)) TO '{path}'")
    found = both(session, str(path), MATCHES)
    assert sum(count for _, count in found) >= 20_000 and len(found) > 15_000


def test_numbers_of_every_length(session: psycopg.Connection, tmp_path: Path) -> None:
    chance = random.Random(11)
    rows = []
    for digits in range(1, 38):
        number = chance.randrange(10 ** (digits - 1), 10**digits)
        rows.append([str(number), f"-{number}", f"{number / 10**19:.19f}" if digits < 16 else "0.0000000000000000001"])
    kinds = ["HUGEINT", "DECIMAL(38,0)", "DECIMAL(38,19)"]
    found = both(session, staged(tmp_path, rows, kinds), [match(*column) for column in typed(kinds)])
    assert len(found) == len(rows)


def test_a_column_of_json_is_not_one_of_jsonb(session: psycopg.Connection, tmp_path: Path) -> None:
    text = '{"b": 1,   "a": 2, "a": 3}'  # which jsonb would not keep
    path = staged(tmp_path, [[f"'{text}'"]], ["JSON"])
    assert both(session, path, [match(*column) for column in typed(["JSON"])], plain=True)[0][0].count("a") == 2


def test_wider_columns_take_what_is_narrower(session: psycopg.Connection, tmp_path: Path) -> None:
    narrow, wide = ["TINYINT", "INTEGER", "UINTEGER", "FLOAT"], ["SMALLINT", "BIGINT", "UBIGINT", "DOUBLE"]
    matches = [(name, kind, have) for (name, kind), (_, have) in zip(typed(narrow), typed(wide), strict=True)]
    path = staged(tmp_path, [["-5", "7", "4000000000", "0.5"]], narrow)
    assert both(session, path, matches) == [("(-5,7,4000000000,0.5)", 1)]


@pytest.mark.parametrize(
    ("kind", "value"), [("DATE", "'5877641-06-25 (BC)'"), ("TIMESTAMP", "make_timestamp(-9223372022400000000)")]
)
def test_before_all_times_is_refused_and_not_another_time(
    session: psycopg.Connection, tmp_path: Path, kind: str, value: str
) -> None:
    path, have = staged(tmp_path, [[value]], [kind]), Scalar(kind)
    with reader([tmp_path]) as engine, pytest.raises(psycopg.DataError, match="out of range"):
        copied(session, "bin", f"c {sql_type(have)}", "binary", binary_copy.blocks(engine, [("c0", have, have)], [False], [path]))


def test_no_rows(session: psycopg.Connection, tmp_path: Path) -> None:
    kinds = ["BIGINT", "VARCHAR"]
    assert both(session, staged(tmp_path, [], kinds), [match(*column) for column in typed(kinds)]) == []


def test_a_number_that_is_none_is_an_error(session: psycopg.Connection, tmp_path: Path) -> None:
    """DuckDB writes such a column as DOUBLE: `1.5e+30` must not become other digits."""
    path, kind = staged(tmp_path, [["1.5e30"]], ["DOUBLE"]), Scalar("HUGEINT")
    with reader([tmp_path]) as engine, pytest.raises(DestinationError, match="a number is invalid"):
        copied(session, "bin", "c0 numeric", "binary", binary_copy.blocks(engine, [("c0", kind, kind)], [False], [path]))
