"""The suite on MySQL's own server (`make mysql`); the other file runs it on MariaDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.errors import SchemaConflict
from resources.testing.conformance import Conformance
from resources.testing.defaults import Defaults
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from resources.testing.state import begun
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.chaos


@pytest.fixture
def place(tmp_path: Path, mysql: MySQLServer) -> Place:
    return MySQLPlace(tmp_path, mysql)


class TestMySQLServer(Conformance):
    pass


class TestMySQLServerBackfills(KeyedBackfills):
    pass


class TestMySQLServerKeys(KeyedConformance):
    pass


class TestMySQLServerKeptValues(KeptValues):
    pass


class TestMySQLServerDefaults(Defaults):
    pass


def test_a_column_of_mysqls_type_json_is_refused_with_the_statement_that_changes_it(tmp_path: Path, mysql: MySQLServer) -> None:
    """It would make a DOUBLE of 12345678901234567890.1234; the statement of the hint makes a column that does not."""
    place = MySQLPlace(tmp_path, mysql)
    begun(place)
    mysql.sql("CREATE TABLE tweets (id bigint, doc json)", database=place.database)
    with pytest.raises(SchemaConflict, match="type json, which changes numbers") as error:
        place.open().columns()
    mysql.sql(error.value.hint.partition(";")[0].replace('"', "`"), database=place.database)
    found = place.open().columns()
    assert found is not None and [(name, str(kind)) for name, kind in found] == [("id", "BIGINT"), ("doc", "JSON")]
