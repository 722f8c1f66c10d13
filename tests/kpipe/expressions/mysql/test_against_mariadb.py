"""Compiled expressions give what a MariaDB gave, in every record: see recorded.py."""

from __future__ import annotations

import json
import math
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
from tests.kpipe.expressions.mysql.recorded import answers, expressions, names
from tests.kpipe.expressions.mysql.records import COLUMNS, DUCKDB, ROWS, TYPES

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


def same(ours: str | None, theirs: str | None) -> bool:
    """Whether two printed values are one: a fraction of a second may end in zeros, a DOUBLE may have more digits."""
    if ours is None or theirs is None or ours == theirs:
        return ours == theirs
    fraction = re.compile(r"(\d\d:\d\d:\d\d)(?:\.(\d*?)0*)?\Z")
    if fraction.search(ours) and fraction.search(theirs):
        return fraction.sub(_seconds, ours) == fraction.sub(_seconds, theirs)
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=4e-15) and ("e" in (ours + theirs).lower() or "." in ours)
    except ValueError:
        return False


def same_document(ours: str | None, theirs: str | None) -> bool:
    """Whether two printed documents are one, to the last digit and in the order of keys.

    MariaDB prints `{"a": 1}`, SingleStore and kpipe `{"a":1}`: only the spaces between the parts may differ.
    """
    if ours is None or theirs is None:
        return ours == theirs
    one, other = (
        json.loads(said, parse_float=str, parse_int=str, object_pairs_hook=lambda pairs: ["object", *map(list, pairs)])
        for said in (ours, theirs)
    )
    return bool(one == other)


def _seconds(match: re.Match[str]) -> str:
    return f"{match[1]}.{match[2]}" if match[2] else match[1]


CASES = [pytest.param(family, said, id=f"{family}: {said}") for family in names() for said in expressions(family)]


@each_case(("family", "said"), CASES)
def test_every_record_gives_the_servers_value(engine: duckdb.DuckDBPyConnection, family: str, said: str) -> None:
    theirs = answers(family)[said]
    value = compiled(said, RESOLVE)
    sql, equal = text(value).sql, same_document if value.kind == "json" else same
    if isinstance(theirs, str):  # an overflow, say: the record is refused in both
        with pytest.raises(duckdb.Error):
            engine.execute(f"SELECT {sql} FROM records").fetchall()
        return
    ours = [row[0] for row in engine.execute(f"SELECT {sql} FROM records ORDER BY place").fetchall()]
    used = [name for name in COLUMNS if re.search(rf"(?<!\w){name}(?![\w(])", said)]
    wrong = [
        f"{ {name: value for name, value in zip(COLUMNS, ROWS[at], strict=True) if name in used} }: {a!r}, MariaDB {b!r}"
        for at, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if not equal(a, b)
    ]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(ours)} records", *wrong[:12]])
