from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import Conformance
from resources.testing.defaults import Defaults
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer


@pytest.fixture
def place(tmp_path: Path, postgres: PostgresServer) -> Place:
    return PostgresPlace(tmp_path, postgres)


class TestPostgres(Conformance):
    pass


class TestPostgresBackfills(KeyedBackfills):
    pass


class TestPostgresKeys(KeyedConformance):
    pass


class TestPostgresKeptValues(KeptValues):
    pass


class TestPostgresDefaults(Defaults):
    pass
