"""The conformance suite for keys, over table formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from tests.resources.destinations.test_conformance_lakes import PLACES

# The others differ in the catalogue or the store.
_ALWAYS = ("iceberg",)
_KEYED = [name for name, (place, _) in PLACES.items() if place.keyed]


@pytest.fixture(params=[name if name in _ALWAYS else pytest.param(name, marks=pytest.mark.chaos) for name in _KEYED])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made, servers = PLACES[request.param]
    return made(tmp_path, *map(request.getfixturevalue, servers))


class TestLakeBackfills(KeyedBackfills):
    pass


class TestLakeKeys(KeyedConformance):
    pass
