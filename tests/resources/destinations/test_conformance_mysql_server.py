"""The suite on MySQL's own server (`make mysql`); the other file runs it on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kpipe.errors import SchemaConflict
from resources.testing.conformance import Conformance
from resources.testing.defaults import Defaults
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import RULES, KeyedConformance, Write, commit_of, contents
from resources.testing.keyed import begun as keyed
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from resources.testing.state import begun
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.servers.mariadb import ROLE
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.chaos


@pytest.fixture
def place(tmp_path: Path, mysql: MySQLServer) -> Iterator[Place]:
    """With the right to see all foreign keys: a table of the tests has an expression as a default."""
    mysql.sql(f"GRANT PROCESS ON *.* TO {ROLE}@'%'")
    yield MySQLPlace(tmp_path, mysql)
    mysql.sql(f"REVOKE PROCESS ON *.* FROM {ROLE}@'%'")


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


def test_a_default_that_an_update_cannot_apply_is_refused(tmp_path: Path, mysql: MySQLServer) -> None:
    """MySQL's UPDATE with a join assigns NULL for DEFAULT if that is an expression."""
    place, rule = MySQLPlace(tmp_path, mysql), RULES["replace"]
    columns = "id bigint, text text, n bigint, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp datetime(6)"
    place.sql(f"CREATE TABLE tweets ({columns}, made datetime(6) DEFAULT current_timestamp(6))")
    destination = keyed(place, rule, 1)
    for at, text in enumerate("ab"):
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, at, 1, text)], rule))
    assert contents(place)[1][0] == "b" and place.rows()[0]["made"] is not None
    place.sql("ALTER TABLE tweets ADD COLUMN e varchar(9) DEFAULT (upper('x'))")
    with pytest.raises(SchemaConflict, match=r"column .e..*expression.*GRANT PROCESS"):
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 2, 1, "c")], rule))
    assert contents(place)[1][0] == "b"
