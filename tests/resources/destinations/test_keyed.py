from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.keyed import KeyedConformance
from tests.resources.destinations.place import PLACES, Place
from tests.resources.destinations.postgres_place import PostgresPlace


@pytest.fixture(params=[*sorted(name for name, place in PLACES.items() if place.keyed), "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return PostgresPlace(tmp_path, request.getfixturevalue("postgres"))
    return PLACES[request.param](tmp_path)


class TestKeyedDestinations(KeyedConformance):
    pass
