"""kpipe's suite over the shelf."""

from __future__ import annotations

from pathlib import Path

import pytest
from kpipe_shelf.place import ShelfPlace

from resources.testing.conformance import Conformance
from resources.testing.killed import Killed


@pytest.fixture
def place(tmp_path: Path) -> ShelfPlace:
    return ShelfPlace(tmp_path)


class TestConformance(Conformance):
    pass


class TestKilled(Killed):
    pass
