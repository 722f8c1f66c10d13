from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.conformance import Conformance
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.place import PLACES as FIRST
from tests.resources.destinations.place import Place
from tests.resources.destinations.postgres_place import PostgresPlace

PLACES = {**FIRST, "delta": DeltaPlace, "iceberg": IcebergPlace}


@pytest.fixture(params=[*sorted(PLACES), "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return PostgresPlace(tmp_path, request.getfixturevalue("postgres"))
    return PLACES[request.param](tmp_path)


class TestDestinations(Conformance):
    pass
