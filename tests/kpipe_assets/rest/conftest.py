"""A served home without Kafka: definitions, states and errors need none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.home import Home
from tests.kpipe_assets.rest.client import Client, serving


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a server on a fresh home."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with serving(Home.at(tmp_path / "home").make()) as client:
        yield client
