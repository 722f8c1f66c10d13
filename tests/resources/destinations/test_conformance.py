from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources.destinations.conformance import Conformance
from tests.resources.destinations.place import PLACES, Place


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


class TestDestinations(Conformance):
    pass
