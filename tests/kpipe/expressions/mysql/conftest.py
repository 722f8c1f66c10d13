"""An engine that computes compiled expressions."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from resources.duckdb_engine.in_memory import register
from tests.kpipe.expressions.mysql.json_answers import RESOLVE, Ask


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """The printed value of an expression, of which `doc` and `said` are the document that is given."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        register(connection)
        connection.execute("CREATE TABLE record (doc JSON, said VARCHAR)")

        def asked(expression: str, document: str | None = None) -> str | None:
            connection.execute("DELETE FROM record")
            connection.execute("INSERT INTO record VALUES (TRY_CAST(? AS JSON), ?)", [document, document])
            sql = text(compiled(expression, RESOLVE)).sql
            found = connection.execute(f"SELECT {sql} FROM record").fetchall()[0][0]
            return None if found is None else str(found)

        yield asked
