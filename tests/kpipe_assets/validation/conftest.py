"""A session of statements on a home of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.home import Home
from tests.kpipe_assets.validation.statements import TABLES, execute


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose database holds the tables."""
    place = Home(tmp_path / "home")
    monkeypatch.setenv("KPIPE_HOME", str(place.path))
    execute(place, TABLES)
    return place
