"""The manuals' examples give the manuals' values, or are refused with a reason and an alternative.

`manual_examples.txt` has a section for each chapter of a manual, and in it lines of the form `expression ==> value`. A value
is the text that the server prints; `\\N` is NULL, and `refused` an expression that kpipe does not take, or that fails.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case

_BETWEEN = " ==> "


def _examples() -> Iterator[Any]:
    section = ""
    for line in Path(__file__).with_name("manual_examples.txt").read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            section = line[3:]
        elif line:
            expression, _, value = line.partition(_BETWEEN)
            yield pytest.param(expression, value, id=f"{section}: {expression}")


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")  # the machine's zone must not matter
        register(connection)
        yield connection


@each_case(("expression", "expected"), list(_examples()))
def test_the_manuals_example(engine: duckdb.DuckDBPyConnection, expression: str, expected: str) -> None:
    if expected == "refused":
        _refused(engine, expression)
        return
    value = compiled(expression, of_columns(Columns.of({})))
    row = engine.execute(f"SELECT {text(value).sql}").fetchone()
    assert row is not None
    found = row[0]
    wanted = None if expected == "\\N" else expected
    assert found == wanted or _equal(found, wanted, value.kind), f"{found!r}, the manual {wanted!r}"


def _refused(engine: duckdb.DuckDBPyConnection, expression: str) -> None:
    """Check that an expression is refused with a hint, or fails for a record, and never gives a value."""
    try:
        sql = text(compiled(expression, of_columns(Columns.of({})))).sql
    except Untranslated as error:
        assert error.what
        assert error.hint, f"no alternative: {error.what}"
        return
    with pytest.raises(duckdb.Error):
        engine.execute(f"SELECT {sql}").fetchall()


def _equal(found: str | None, wanted: str | None, kind: str) -> bool:
    """Whether two texts are one DOUBLE of many digits, or one JSON document with other spaces."""
    if found is None or wanted is None:
        return False
    if kind == "json":
        return bool(_document(found) == _document(wanted))
    digits = len(re.sub(r"\D", "", wanted))
    return kind == "double" and digits >= 12 and math.isclose(float(found), float(wanted), rel_tol=1e-12)


def _document(said: str) -> Any:
    return json.loads(said, parse_float=str, parse_int=str, object_pairs_hook=lambda pairs: ["object", *map(list, pairs)])
