"""MariaDB as a server: it crashes, its transactions deadlock, its connections are encrypted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.mysql.connection import Server
from resources.secrets import Secret
from resources.testing.keyed import RULES, Write, commit_of, contents
from resources.testing.place import batch, begin
from resources.testing.state import loaded, proof
from tests.certificates import certificates
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import at
from tests.servers.mariadb import PASSWORD, ROLE, MariaServer


@pytest.fixture(scope="module")
def own() -> Iterator[MariaServer]:
    """A server that may crash."""
    with MariaServer() as server:
        yield server


@pytest.mark.parametrize("step", ["commit.data", "commit.before", "commit.after", "readback"])
def test_the_server_is_killed_and_comes_back(own: MariaServer, tmp_path: Path, step: str) -> None:
    place = MySQLPlace(tmp_path, own)
    destination = loaded(place)
    destination.engine.server.timeout.seconds = destination.engine.server.lock_timeout_s = 300  # a busy machine starts it slowly
    commit = batch(place, destination.ledger()[1], {0: 12}, dead=[(0, 11)])
    later: list[threading.Timer] = []

    def crash() -> None:
        own.stop(signal.SIGKILL)
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
    assert seq == 3 and len(place.rows()) == 16 and place.dead_letters() == 1 and proof(destination).ok


def test_a_deadlock_is_tried_again(mariadb: MariaServer, tmp_path: Path) -> None:
    """Another client holds a row that the batch needs, and wants one that the commit holds: the server ends the commit."""
    place, rule = MySQLPlace(tmp_path, mariadb), RULES["replace"]
    place.sql("CREATE TABLE other (x BIGINT)")
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], rule))
    commit = commit_of(place, destination.ledger()[1], [Write(0, 2, 1, "c"), Write(0, 3, 3, "d")], rule)
    rival = mariadb.admin(database=place.database, autocommit=False)
    waiting: list[threading.Thread] = []

    def hold() -> None:
        with rival.cursor() as cursor:
            cursor.executemany("INSERT INTO other VALUES (%s)", [(x,) for x in range(900)])  # who has changed less is ended
            cursor.execute("SELECT * FROM tweets WHERE id = 1 FOR UPDATE")
        waiting.append(threading.Thread(target=want))
        waiting[0].start()
        deadline = time.monotonic() + 300
        while not mariadb.sql("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def want() -> None:
        with rival.cursor() as cursor:
            cursor.execute("SELECT * FROM kpipe_pipelines FOR UPDATE")
        rival.commit()

    before = deadlocks(mariadb)
    at("commit.data", hold)
    done = destination.commit(commit)
    waiting[0].join(300)
    rival.close()
    assert deadlocks(mariadb) == before + 1
    assert (done.seq, done.commit.totals.inserted, done.commit.totals.updated) == (3, 1, 1)
    assert {key: row[0] for key, row in contents(place).items()} == {1: "c", 2: "b", 3: "d"} and proof(destination).ok
    assert place.sql("SELECT count(*) AS n FROM other") == [{"n": 900}]


def deadlocks(server: MariaServer) -> int:
    return int(server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaServer, Path]]:
    """A server that takes encrypted connections only, and its authority."""
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder)
    with MariaServer() as server:
        for name in ("ca.pem", "broker.pem", "broker.key"):
            shutil.copy(folder / name, server.folder / name)
            if os.geteuid() == 0:
                shutil.chown(server.folder / name, "mysql")
        server.stop()
        server.settings = (
            f"ssl-ca={server.folder / 'ca.pem'}", f"ssl-cert={server.folder / 'broker.pem'}",
            f"ssl-key={server.folder / 'broker.key'}", "require-secure-transport=ON",
        )  # fmt: skip
        server.start()
        yield server, folder


def test_connections_are_encrypted_and_the_server_is_the_one(guarded: tuple[MariaServer, Path]) -> None:
    server, folder = guarded
    database = server.database()

    def opened(options: str) -> Any:
        address = f"mysql://{ROLE}@127.0.0.1:{server.port}/{database}{options}"
        with Server(address, {"password": Secret(PASSWORD)}, "t", lock_timeout_s=60).session() as session:
            return session.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'").fetchone()[1]

    authority, other = folder / "ca.pem", folder / "other.pem"
    for mode in ("VERIFY_IDENTITY", "VERIFY_CA"):
        assert opened(f"?ssl-mode={mode}&ssl-ca={authority}")
        with pytest.raises(DestinationError, match=r"rejects the connection: .*certificate"):
            opened(f"?ssl-mode={mode}&ssl-ca={other}")
    assert opened("?ssl-mode=REQUIRED")
    for plain in ("", "?ssl-mode=DISABLED"):  # near by, nothing is encrypted unless asked for; this server wants it
        with pytest.raises(DestinationError, match="rejects the connection: Access denied"):
            opened(plain)


def test_a_name_that_is_not_the_certificates_is_refused(guarded: tuple[MariaServer, Path]) -> None:
    server, folder = guarded
    database = server.database()
    for mode, fine in (("VERIFY_CA", True), ("VERIFY_IDENTITY", False)):
        address = f"mysql://{ROLE}@localhost:{server.port}/{database}?ssl-mode={mode}&ssl-ca={folder / 'ca.pem'}"
        place = Server(address, {"password": Secret(PASSWORD)}, "t", lock_timeout_s=60)
        if fine:
            with place.session() as session:
                assert session.execute("SELECT 1").fetchone() == (1,)
        else:
            with pytest.raises(DestinationError, match=r"rejects the connection: .*localhost"), place.session():
                pass


def test_a_server_that_encrypts_nothing_is_refused_where_that_is_asked(mariadb: MariaServer) -> None:
    address = f"{mariadb.address(mariadb.database())}?ssl-mode=REQUIRED"
    with (
        pytest.raises(DestinationError, match=r"rejects the connection: .*SSL"),
        Server(address, {"password": Secret(PASSWORD)}, "t", lock_timeout_s=60).session(),
    ):
        pass


class Rogue:
    """A server that greets, lets everybody in, and answers statements by asking for a file of the client's.

    Args:
        path: of the file.
        nth: first statement that is answered so, from 1; those before it are answered with OK.

    Attributes:
        asked: how often it has asked.
        got: what it was sent after logins: statements, or what is in the file.
    """

    def __init__(self, path: Path, nth: int) -> None:
        self._path, self._nth = path, nth
        self.got: list[bytes] = []
        self.asked = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # close alone would leave who accepts asleep
        self._listening.close()
        self._thread.join(300)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        greeting = (
            b"\x0a5.7.40-rogue\0" + struct.pack("<I", 1) + b"saltsalt\0" + struct.pack("<H", 0xFFFF) + b"\x2d\x02\x00"
            + struct.pack("<H", 0x00FF) + b"\x15" + bytes(10) + b"saltsaltsalt\0" + b"mysql_native_password\0"
        )  # fmt: skip
        ok = b"\0\0\0\x02\0\0\0"
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client, client.makefile("rb") as stream:
                    self._send(client, 0, greeting)
                    self._read(stream)  # who logs in
                    self._send(client, 2, ok)
                    for number in count(1):
                        number_of, statement = self._read(stream)
                        if not statement or statement[:1] == b"\x01":  # gone
                            break
                        self.got.append(statement)
                        if number >= self._nth:
                            self._send(client, number_of + 1, b"\xfb" + str(self._path).encode())
                            self.asked += 1
                            continue
                        self._send(client, number_of + 1, ok)

    @staticmethod
    def _send(client: socket.socket, number: int, payload: bytes) -> None:
        client.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)

    @staticmethod
    def _read(stream: Any) -> tuple[int, bytes]:
        head = stream.read(4)
        if len(head) < 4:
            return 0, b""
        return head[3], stream.read(int.from_bytes(head[:3], "little"))


@pytest.mark.parametrize("nth", [1, 2])
def test_a_server_that_asks_for_a_file_is_given_none(tmp_path: Path, nth: int) -> None:
    """Any server may ask for one in place of an answer (LOAD DATA LOCAL), also where the client never sent such a statement."""
    secret = tmp_path / "secret"
    secret.write_text("canary-of-a-file")
    rogue = Rogue(secret, nth)
    try:
        server = Server(f"mysql://{ROLE}@127.0.0.1:{rogue.port}/d", {"password": Secret(PASSWORD)}, "t", lock_timeout_s=60)
        with pytest.raises(DestinationError, match="requested a file of this machine") as caught, server.session():
            pass
        assert not caught.value.retriable
    finally:
        rogue.close()
    assert rogue.asked and rogue.got and not any(b"canary" in sent for sent in rogue.got)
