"""The place of a test that runs in each database that keys can be written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace, Place
from tests.resources.destinations.postgres_place import PostgresPlace

__all__ = ["database"]


def database(request: pytest.FixtureRequest, folder: Path) -> Place:
    """Return the place that a fixture's parameter names: `duckdb`, `postgres` or `mysql`."""
    if request.param == "mysql":
        return MySQLPlace(folder, request.getfixturevalue("mariadb"))
    return DuckDBPlace(folder) if request.param == "duckdb" else PostgresPlace(folder, request.getfixturevalue("postgres"))
