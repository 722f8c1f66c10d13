"""A database that takes connections and says nothing: CREATE and ALTER wait a few seconds, and name it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kpipe_assets.statements.execute import Session
from kpipe_assets.validation.case import PATIENCE_S, Case
from resources.destinations.mysql import MySQLEngine
from resources.destinations.postgres import PostgresEngine
from resources.destinations.sql.destination import SqlDestination
from resources.home import Home


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def tried(server: socket.socket) -> int:
    """Number of connections since the last call; none of them got an answer."""
    number = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            number += 1
    return number


@pytest.mark.parametrize("extra", ["", "SKIP DUPLICATE KEY ERRORS"])
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_create_and_alter_go_on_after_a_few_seconds(silent: socket.socket, kind: str, extra: str, tmp_path: Path) -> None:
    from kpipe.sql.parser import read

    port = silent.getsockname()[1]
    address = f"{'postgresql' if kind == 'postgres' else kind}://loader@127.0.0.1:{port}/shop"
    home = Home(tmp_path / "home").make()
    for text in (
        f"CREATE PIPELINE p AS LOAD DATA KAFKA '127.0.0.1:1/t' {extra} INTO TABLE t IN {kind} '{address}' FORMAT JSON",
        "ALTER PIPELINE p SET BATCH_INTERVAL 7",
    ):
        with Session(home) as session:
            said = " ".join(result.message for result in session.execute(read(text)))
        assert tried(silent) == 1, "it waits once"
        assert f"127.0.0.1:{port}/shop did not answer within {PATIENCE_S:g} s" in said
        assert "the table could not be read" in said and "were not checked" in said
    assert home.pipeline("p").batch.interval_ms == 7


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_runs_wait_longer(kind: str, tmp_path: Path) -> None:
    from kpipe.sql.parser import read
    from kpipe.sql.statements import Create
    from resources.destinations import open_destination

    address = f"{'postgresql' if kind == 'postgres' else kind}://loader@127.0.0.1:1/shop"
    made = read(f"CREATE PIPELINE p AS LOAD DATA KAFKA 'k:1/t' INTO TABLE t IN {kind} '{address}' FORMAT JSON")
    assert isinstance(made, Create)
    home = Home(tmp_path)
    own, hurried = open_destination(made.pipeline, home), Case(made.pipeline, home).destination
    assert isinstance(own, SqlDestination) and isinstance(own.engine, (PostgresEngine, MySQLEngine))
    assert own.engine.server.timeout.seconds == 30
    assert isinstance(hurried, SqlDestination) and isinstance(hurried.engine, (PostgresEngine, MySQLEngine))
    assert hurried.engine.server.timeout.seconds == PATIENCE_S
