from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.conformance import Conformance
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.place import PLACES as FIRST
from tests.resources.destinations.place import Place
from tests.resources.destinations.postgres_place import PostgresPlace

PLACES = {**FIRST, "delta": DeltaPlace, "iceberg": IcebergPlace}


# Iceberg goes the way of Delta but for its snapshots, and each of these takes half a second: all of them in `make chaos`.
SLOW = [pytest.param("iceberg", marks=pytest.mark.chaos)]


@pytest.fixture(params=[*sorted(PLACES.keys() - {"iceberg"}), "postgres", *SLOW])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return PostgresPlace(tmp_path, request.getfixturevalue("postgres"))
    return PLACES[request.param](tmp_path)


class TestDestinations(Conformance):
    pass
