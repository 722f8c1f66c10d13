"""Commits to PostgreSQL while processes die, the network fails, or the server crashes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import (
    DestinationBusy,
    DestinationError,
    Fenced,
    OutcomeUnknown,
)
from resources.destinations.postgres import PostgresEngine
from resources.destinations.postgres.connection import IDLE, Server
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.destinations.sql.ledger import history_tables, ledger_table
from resources.secrets import Secret
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.faults.proxy import Proxy, cut_after, drop_response, rst
from tests.resources.destinations.place import at
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PASSWORD, PostgresServer

OFTEN = ("commit.begin", "commit.data", "commit.before", "commit.after")
STEPS = [
    pytest.param(point, marks=() if point in OFTEN else pytest.mark.chaos)
    for point in failpoints.POINTS
    if point.startswith("commit.") or point == "readback"
]


# -- processes
COMMIT = """
import pickle, sys
from pathlib import Path
from kpipe.errors import KpipeError
from resources.destinations.postgres import PostgresEngine
from resources.destinations.postgres.connection import IDLE, Server
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.destinations.postgres.connection import IDLE, Server
from resources.secrets import Secret
address, password, staging, recorded, idle = sys.argv[1:]
server = Server(address, {"password": Secret(password)}, "kpipe tests", 20, float(idle))
try:
    destination = SqlDestination(PostgresEngine(server, (Path(staging),)), "tweets", [TargetTable("tweets")])
    destination.commit(pickle.loads(Path(recorded).read_bytes()))
except KpipeError as error:
    sys.exit(type(error).__name__)
"""


def process(place: PostgresPlace, commit: Commit, fault: str, idle_s: float = 60) -> subprocess.Popen[str]:
    recorded = place.staging / f"{uuid.uuid4().hex}.pickle"
    recorded.write_bytes(pickle.dumps(commit))
    arguments = [place.server.address(place.schema), PASSWORD, str(place.staging), str(recorded), str(idle_s)]
    environment = {**os.environ, failpoints.VARIABLE: fault}
    return subprocess.Popen([sys.executable, "-c", COMMIT, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_the_middle_of_a_commit(place: PostgresPlace, step: str) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()
    commit = batch(place, ledger, {0: 12, 1: 7}, dead=[(0, 11)])
    killed = process(place, commit, f"{step}:1:kill")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    landed = step in ("commit.after", "readback")
    # The backend of the killed process may still be at it: a look that waits for it, as a commit's own does.
    with destination.engine.server.session() as session:
        destination.engine.await_commits(session, "tweets")
    assert (len(place.rows()), destination.ledger()[1].seq) == (len(rows) + 3 * landed, ledger.seq + landed)
    assert destination.commit(commit).seq == ledger.seq + 1
    assert len(place.rows()) == len(rows) + 3 and place.dead_letters() == 1 and proof(destination).ok


@pytest.mark.parametrize("step", ["commit.data", "commit.before"])
def test_stopped_in_the_middle_of_a_commit(place: PostgresPlace, step: str) -> None:
    """A process that does not go on loses its locks; its successor commits; when it goes on, it has changed nothing."""
    destination = loaded(place)
    ledger = destination.ledger()[1]
    engine = PostgresEngine(place.server.server(place.schema, None, 0.2), (place.staging,))
    impatient = SqlDestination(engine, "tweets", [TargetTable("tweets")])
    commit = batch(place, ledger, {0: 15})
    zombie = process(place, batch(place, ledger, {0: 12}), f"{step}:1:stop", idle_s=10)  # locks that the impatient one finds
    try:
        os.waitpid(zombie.pid, os.WUNTRACED)
        with pytest.raises(DestinationBusy, match="pg_terminate_backend"):
            impatient.commit(commit)
        assert destination.commit(commit).seq == 3
        zombie.send_signal(signal.SIGCONT)
        assert zombie.communicate(timeout=600)[1].strip().splitlines()[-1] in ("Fenced", "DestinationBusy")
    finally:
        zombie.kill()
        zombie.communicate()
    assert positions(destination)[0] == 15 and len(place.rows()) == 20 and proof(destination).ok


def test_a_commit_that_postgresql_rolls_back_is_not_believed(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()

    def swallowing(connection: Any, *_: object) -> None:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1/0")

    monkeypatch.setattr(history_tables, "history", swallowing)
    with pytest.raises(DestinationError, match="expected COMMIT, found ROLLBACK"):
        destination.commit(batch(place, ledger, {0: 12}))
    assert (destination.ledger()[1], place.rows()) == (ledger, rows)


@pytest.fixture
def far(postgres: PostgresServer, tmp_path: Path) -> Any:
    with Proxy(postgres.port) as proxy:
        yield PostgresPlace(tmp_path, postgres, proxy.port), proxy


def test_the_answer_to_commit_is_lost(far: tuple[PostgresPlace, Proxy]) -> None:
    place, proxy = far
    destination = begun(place)
    proxy.now(drop_response(marker=b"COMMIT\0"))
    assert destination.commit(batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 3)])).seq == 2
    assert proxy.struck == 1 and len(place.rows()) == 9 and proof(destination).ok


@pytest.mark.parametrize("count", [2_000, 20_000, 60_000])
def test_a_connection_that_is_cut_on_the_way(far: tuple[PostgresPlace, Proxy], count: int) -> None:
    place, proxy = far
    destination = begun(place)
    ledger = destination.ledger()[1]
    commit = batch(place, ledger, {0: 3000}, values={"id": 1, "text": "x" * 30})
    proxy.now(cut_after(count, "up", times=1))
    with pytest.raises(DestinationBusy) as caught:
        destination.commit(commit)
    assert proxy.struck == 1 and caught.value.retriable
    with destination.engine.server.session() as session:
        destination.engine.await_commits(session, "tweets")
    assert (destination.ledger()[1], place.rows()) == (ledger, [])
    assert destination.commit(commit).seq == 2 and len(place.rows()) == 3000 and proof(destination).ok


def test_the_network_is_gone_while_the_outcome_is_asked_for(far: tuple[PostgresPlace, Proxy]) -> None:

    place, proxy = far
    begun(place)
    server = place.server.server(place.schema, proxy.port, 1)
    destination = SqlDestination(PostgresEngine(server, (place.staging,)), "tweets", [TargetTable("tweets")])
    commit = batch(place, destination.ledger()[1], {0: 10})
    at("commit.after", lambda: proxy.now(rst()))
    with pytest.raises(OutcomeUnknown, match=commit.id):
        destination.commit(commit)
    proxy.now(rst(0))
    assert destination.commit(commit).seq == 2 and len(place.rows()) == 10 and proof(destination).ok


@pytest.mark.parametrize("step", ["commit.data", "commit.before", "commit.after", "readback"])
def test_the_server_crashes_and_comes_back(own: PostgresServer, tmp_path: Path, step: str) -> None:
    place = PostgresPlace(tmp_path, own)
    destination = loaded(place)
    destination.engine.server.timeout.seconds = 300  # a busy machine needs long to start a server
    ledger = destination.ledger()[1]
    commit = batch(place, ledger, {0: 12})
    later: list[threading.Timer] = []

    def crash() -> None:
        own.stop(signal.SIGQUIT)
        later.append(threading.Timer(0.5, own.start))
        later[0].start()

    at(step, crash)
    try:
        seq = destination.commit(commit).seq
    except DestinationBusy as error:
        assert step in ("commit.data", "commit.before") and error.retriable
        seq = destination.commit(commit).seq
    finally:
        later[0].join()
    assert seq == 3 and len(place.rows()) == 17 and proof(destination).ok


@pytest.fixture(scope="module")
def own() -> Any:
    """A server that may crash."""
    with PostgresServer() as server:
        yield server


def test_a_replica_is_refused(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only as a replica is; a real one would take another server."""
    destination = loaded(place)
    place.server.sql("ALTER ROLE loader SET default_transaction_read_only = on")
    IDLE.close_all()  # the setting applies to new connections
    try:
        with pytest.raises(DestinationError, match="read-only"):
            destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert proof(destination).ok
    finally:
        place.server.sql("ALTER ROLE loader RESET default_transaction_read_only")


def test_sessions_that_the_server_has_ended_are_not_used(place: PostgresPlace) -> None:
    destination = loaded(place)
    ledger = destination.ledger()[1]
    sessions = "FROM pg_stat_activity WHERE usename = 'loader'"
    assert place.server.sql(f"SELECT pg_terminate_backend(pid) {sessions}"), "a connection was idle"
    while place.server.sql(f"SELECT pid {sessions}"):  # they end a moment later
        time.sleep(0.01)
    assert destination.commit(batch(place, ledger, {0: 12})).seq == 3
    assert len(place.rows()) == 17 and proof(destination).ok


def test_a_commit_is_read_back_through_a_new_connection(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = loaded(place)
    opened: list[int] = []
    connect = Server.connect

    def counting(self: Server) -> psycopg.Connection[Any]:
        raw = connect(self)
        opened.append(raw.info.backend_pid)
        return raw

    ledger = destination.ledger()[1]
    monkeypatch.setattr(Server, "connect", counting)
    destination.commit(batch(place, ledger, {0: 12}))
    assert len(opened) == 1, "the connection of the ledger's read commits, and another one reads back"


def test_connections_are_shared_by_pipelines_with_the_same_secrets_only(place: PostgresPlace) -> None:
    IDLE.close_all()
    address, right, wrong = place.server.address(place.schema), {"password": Secret(PASSWORD)}, {"password": Secret("x")}
    with Server(address, right, "kpipe one").session() as session:
        (one,) = session.execute("SELECT pg_backend_pid()").fetchone()
    with Server(address, right, "kpipe two").session() as session:
        (two,) = session.execute("SELECT pg_backend_pid()").fetchone()
        assert session.execute("SHOW application_name").fetchone() == ("kpipe two",)
        with Server(address, right, "kpipe three").session() as other:
            assert other.execute("SELECT pg_backend_pid()").fetchone() != (two,)
    assert one == two
    with pytest.raises(DestinationError, match="rejects"), Server(address, wrong, "kpipe two").session():
        pass


def test_a_connection_is_not_kept_after_an_error(place: PostgresPlace) -> None:
    server = Server(place.server.address(place.schema), {"password": Secret(PASSWORD)}, "kpipe one")
    with pytest.raises(psycopg.Error), server.session() as session:
        (broken,) = session.execute("SELECT pg_backend_pid()").fetchone()
        session.execute("SELECT 1 / 0")
    with server.session() as session:
        assert session.execute("SELECT pg_backend_pid()").fetchone() != (broken,)


def test_a_race_of_processes(place: PostgresPlace) -> None:
    """Two with the same plan at once: one lands, the other is fenced."""
    destination = loaded(place)
    ledger = destination.ledger()[1]
    racers = [process(place, batch(place, ledger, {0: 12}), f"{failpoints.POINTS[0]}:1:kill") for _ in range(3)]
    answers = sorted(racer.communicate(timeout=600)[1].strip() for racer in racers)
    assert answers == ["", Fenced.__name__, Fenced.__name__]
    assert len(place.rows()) == 17 and proof(destination).ok


def test_the_ledger_is_read_as_one_state(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit lands between the pipeline's row and its lanes: of two states the seal would say that hands had been at them."""
    destination = loaded(place)
    before = destination.ledger()
    read, left = ledger_table.lanes, [batch(place, before[1], {0: 12})]

    def late(*asked: Any) -> Any:
        while left:
            place.open().commit(left.pop())
        return read(*asked)

    monkeypatch.setattr(ledger_table, "lanes", late)
    assert destination.ledger() == before and left == []
    assert positions(destination) == {0: 12, 1: 5}
