from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resources.testing.conformance import QUICK, Conformance, sampled
from resources.testing.defaults import Defaults
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from tests.resources.destinations.mysql_place import MySQLPlace

KEYED = ("test_last_write_wins_within_a_batch_over_its_parts", "test_deleted_and_written_again_in_one_batch")


@pytest.fixture
def place(tmp_path: Path, mariadb: Any) -> Place:
    return MySQLPlace(tmp_path, mariadb)


class TestMySQL(sampled(Conformance, QUICK)):
    pass


class TestMySQLBackfills(KeyedBackfills):
    pass


class TestMySQLKeys(sampled(KeyedConformance, KEYED)):
    pass


class TestMySQLKeptValues(KeptValues):
    pass


class TestMySQLDefaults(Defaults):
    pass
