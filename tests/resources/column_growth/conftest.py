"""Tables that records with very many columns go to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpipe import failpoints
from resources.home import Home
from resources.testing.place import Place
from tests.resources.column_growth.wide_records import FIELDS
from tests.resources.destinations.databases import database
from tests.resources.several import Bench


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Callable[..., Bench]:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **{**FIELDS, **fields})
