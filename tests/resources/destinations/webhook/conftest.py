"""A webhook's receiver and its destination."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resources.destinations.webhook_place import WebhookPlace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WebhookPlace]:
    made = WebhookPlace(tmp_path)
    yield made
    made.close()
