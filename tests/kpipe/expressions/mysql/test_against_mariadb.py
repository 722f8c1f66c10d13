"""Compiled expressions give the servers' values in every record: MariaDB's, or MySQL's where the page of functions says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case
from tests.kpipe.expressions.mysql.recorded import expressions, names, same, same_document
from tests.kpipe.expressions.mysql.records import COLUMNS, DUCKDB, ROWS, TYPES
from tests.kpipe.expressions.mysql.server_rules import expected

RESOLVE = of_columns(Columns.of({name: TYPES[name.rstrip("2")] for name in COLUMNS}))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")  # the machine's zone must not matter
        connection.execute(f"CREATE TABLE records (place INTEGER, {DUCKDB})")
        register(connection)
        marks = ", ".join(["?"] * (len(COLUMNS) + 1))
        connection.executemany(f"INSERT INTO records VALUES ({marks})", [[at, *row] for at, row in enumerate(ROWS)])
        yield connection


CASES = [pytest.param(family, said, id=f"{family}: {said}") for family in names() for said in expressions(family)]


@each_case(("family", "said"), CASES)
def test_every_record_gives_the_servers_value(engine: duckdb.DuckDBPyConnection, family: str, said: str) -> None:
    theirs = expected(family, said)
    value = compiled(said, RESOLVE)
    # The servers' bytes that are not UTF-8 are recorded as 0x...
    shown = f"coalesce(TRY(decode({value.sql})), '0x' || lower(hex({value.sql})))"
    sql, equal = shown if value.kind == "blob" else text(value).sql, same_document if value.kind == "json" else same
    if isinstance(theirs, str):  # an overflow, say: the record is refused in both
        with pytest.raises(duckdb.Error):
            engine.execute(f"SELECT {sql} FROM records").fetchall()
        return
    ours = [row[0] for row in engine.execute(f"SELECT {sql} FROM records ORDER BY place").fetchall()]
    used = [name for name in COLUMNS if re.search(rf"(?<!\w){name}(?![\w(])", said)]
    wrong = [
        f"{ {name: value for name, value in zip(COLUMNS, ROWS[at], strict=True) if name in used} }: {a!r}, the server {b!r}"
        for at, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if not equal(a, b)
    ]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(ours)} records", *wrong[:12]])
