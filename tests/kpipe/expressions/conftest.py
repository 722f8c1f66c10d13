"""An engine that computes expressions."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from resources.duckdb_engine.in_memory import register
from tests.kpipe.expressions.values import RECORD


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'America/New_York'")  # the machine's zone must not matter
    register(connection)
    connection.execute("CREATE TABLE record AS " + RECORD)
    yield connection
    connection.close()
