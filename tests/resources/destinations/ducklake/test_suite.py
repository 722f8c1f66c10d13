from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import Conformance
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from tests.resources.destinations.ducklake_place import DuckLakePlace


@pytest.fixture(params=["duckdb", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DuckLakePlace:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return DuckLakePlace(tmp_path, request.param, server)


class TestDuckLake(Conformance):
    pass


class TestDuckLakeKeys(KeyedConformance):
    pass


class TestDuckLakeBackfills(KeyedBackfills):
    pass
