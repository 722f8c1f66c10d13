"""The suites of all destinations over those without a server; the others have a module each, so that they run side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import Conformance
from resources.testing.place import Place
from tests.resources.destinations.place import PLACES, DuckDBPlace


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made = PLACES[request.param](tmp_path)
    if isinstance(made, DuckDBPlace) and "racing" in request.node.name:
        made.lock_timeout_s = 300  # the last waits for all others
    return made


class TestDestinations(Conformance):
    pass
