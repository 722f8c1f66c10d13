"""The suites of all destinations over those without a server; the others have a module each, so that they run side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import Conformance
from resources.testing.place import Place
from tests.resources.destinations.place import PLACES


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


class TestDestinations(Conformance):
    pass
