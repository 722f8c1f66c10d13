"""Connections to MariaDB are used again, but not for the read-back, and not after anything that stays in a session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pymysql
import pytest

from kpipe.errors import DestinationError
from resources.destinations.credentials import Rotating
from resources.destinations.mysql.connection import IDLE, Server
from resources.destinations.mysql.session import Session
from resources.secrets import Secret
from resources.testing.keyed import RULES, Write, commit_of
from resources.testing.place import batch, begin
from resources.testing.state import loaded, proof
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.servers.mariadb import PASSWORD, MariaServer


@pytest.fixture
def place(tmp_path: Path, mariadb: MariaServer) -> MySQLPlace:
    IDLE.close_all()
    return MySQLPlace(tmp_path, mariadb)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of connections that were opened."""
    ids: list[int] = []
    connect = Server.connect

    def counting(self: Server) -> pymysql.Connection:
        raw = connect(self)
        ids.append(raw.thread_id())
        return raw

    monkeypatch.setattr(Server, "connect", counting)
    return ids


def id_of(session: Session) -> int:
    return int(session.execute("SELECT connection_id()").fetchone()[0])


def server(place: MySQLPlace, name: str = "kpipe t", **secrets: Any) -> Server:
    address = place.server.address(place.database)
    return Server(address, {"password": Secret(PASSWORD)} | secrets, name)


def test_a_commit_is_read_back_through_a_new_connection(place: MySQLPlace, opened: list[int]) -> None:
    destination = loaded(place)
    ledger = destination.ledger()[1]
    before = len(opened)
    destination.commit(batch(place, ledger, {0: 12}))
    assert len(opened) == before + 1, "the connection of the ledger's read commits, and another one reads back"
    assert len(place.rows()) == 17 and proof(destination).ok


def test_a_connection_of_a_pipeline_is_used_again_with_its_own_settings(place: MySQLPlace) -> None:
    mine = server(place)
    with mine.session() as session:
        one = id_of(session)
        session.execute("SET @@sql_mode = ''")
    with Server(place.server.address(place.database), {"password": Secret(PASSWORD)}, "kpipe t", 7).session() as session:
        assert id_of(session) == one
        mode, wait = session.execute("SELECT @@sql_mode, @@innodb_lock_wait_timeout").fetchone()
        assert "STRICT_ALL_TABLES" in mode and wait == 7
        with mine.session() as other:
            assert id_of(other) != one, "it is in use"
    with server(place, "kpipe other").session() as session:
        assert id_of(session) != one, "the server shows the name of its pipeline"
    with mine.session(fresh=True) as session:
        assert id_of(session) != one
    with pytest.raises(DestinationError, match="rejects"), server(place, password=Secret("x")).session():
        pass


def test_an_open_transaction_is_rolled_back(place: MySQLPlace) -> None:
    place.sql("CREATE TABLE other (x BIGINT)")
    with server(place).session() as session:
        one = id_of(session)
        session.execute("INSERT INTO other VALUES (1)")
    with server(place).session() as session:
        assert id_of(session) == one and session.execute("SELECT count(*) FROM other").fetchone() == (0,)
    place.sql("DROP TABLE other")  # no lock is left


def test_a_connection_is_not_kept_after_an_error_or_a_temporary_table(place: MySQLPlace) -> None:
    with pytest.raises(ZeroDivisionError), server(place).session() as session:
        one = id_of(session)
        raise ZeroDivisionError
    with server(place).session() as session:
        two = id_of(session)
        session.execute("CREATE TEMPORARY TABLE mine (x BIGINT)")
    with server(place).session() as session:
        three = id_of(session)
        session.execute("SET SESSION max_sort_length = 2048")
    with server(place).session() as session:
        assert len({one, two, three, id_of(session)}) == 4


def test_a_session_that_the_server_has_ended_is_not_used(place: MySQLPlace) -> None:
    with server(place).session() as session:
        one = id_of(session)
    place.server.sql(f"KILL {one}")
    while place.server.sql(f"SELECT 1 FROM information_schema.processlist WHERE id = {one}"):
        time.sleep(0.01)
    with server(place).session() as session:
        assert id_of(session) != one


def test_connections_with_passwords_that_rotate_are_not_kept(place: MySQLPlace, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    mine = Server(place.server.address(place.database), Rotating({"password": f"{{{{ file('{file}') }}}}"}), "kpipe t")
    with mine.session() as session:
        one = id_of(session)
    with mine.session() as session:
        assert id_of(session) != one


def test_upserts_keep_no_temporary_tables(place: MySQLPlace) -> None:
    rule = RULES["replace"]
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    for first in (0, 2):
        writes = [Write(0, first, 1, "a"), Write(0, first + 1, 2, "b")]
        destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
    assert proof(destination).ok
