"""A schema of the test in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> PostgresPlace:
    return PostgresPlace(tmp_path, postgres)
