"""A DuckDB file of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.place import DuckDBPlace


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)
