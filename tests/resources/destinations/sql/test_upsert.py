from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.defaults import Defaults
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from tests.resources.destinations.place import PLACES


@pytest.fixture(params=sorted(name for name, place in PLACES.items() if place.keyed))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


class TestBackfills(KeyedBackfills):
    pass


class TestKeyedDestinations(KeyedConformance):
    pass


class TestKeptValues(KeptValues):
    pass


class TestDefaults(Defaults):
    pass
