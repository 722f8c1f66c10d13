"""These tests need a DuckDB that an extension fits: tests/resources/destinations/test_ducklake.py runs them with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.errors import NotAvailable
from resources.destinations.ducklake.extension import check
from tests.resources.destinations.ducklake_place import EXTENSIONS, DuckLakePlace


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DuckLakePlace:
    kind = getattr(request, "param", "duckdb")
    try:
        check("the test", EXTENSIONS[kind])
    except NotAvailable as none:
        pytest.skip(f"{none} -> make ducklake; pytest tests/resources/destinations/test_ducklake.py")
    return DuckLakePlace(tmp_path, kind, request.getfixturevalue("postgres") if kind == "postgres" else None)
