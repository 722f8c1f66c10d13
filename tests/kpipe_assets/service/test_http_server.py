"""The HTTP server of the service over sockets: how many connections it keeps, how long, and how it ends."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.service import http_server
from kpipe_assets.service.http_server import HttpServer
from kpipe_assets.service.http_settings import HttpSettings, read_token
from resources.home import Home
from tests.certificates import certificates
from tests.kpipe_assets.rest.client import Client
from tests.kpipe_assets.service.serving import until


class Site:
    """A server in this process, and its client."""

    def __init__(
        self, home: Home, certificate: str | None = None, key: str | None = None, token_file: Path | None = None, token: str = ""
    ) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        sent = token or (None if token_file is None else read_token(token_file))
        settings = HttpSettings(
            Rules("127.0.0.1", port, token=sent), certificate, key, token_file=None if token_file is None else str(token_file)
        )
        self.lines: list[str] = []
        self.server = HttpServer(home, settings, listening.detach(), lambda: {"one": {"running": True}}, self.lines.append)
        self.server.start()
        self.client = Client(home, port)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.client.port), timeout=300)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(Home.at(tmp_path / "home").make())
    try:
        assert made.client.get("/health")["pipelines"] == {"one": {"running": True}}
        yield made
    finally:
        made.server.stop()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_that_send_nothing_are_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(http_server, "_IDLE_S", 0.2)
        with site.connect() as silent, site.connect() as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
            assert is_closed(silent) and is_closed(slow)
    assert site.client.get("/health")["status"] == "running"


def test_a_request_that_takes_long_is_answered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the header too may come after the shortest of these times, and such a connection is closed."""
    answers = []
    for idle_s in (0.2, 2.0, 20.0, 100.0):
        monkeypatch.setattr(http_server, "_IDLE_S", idle_s)
        answers.append(_late_body(site, 3 * idle_s))
        if answers[-1]:
            break
    assert answers[-1].startswith(b"HTTP/1.1 400 "), ("the config is missing", answers)


def _late_body(site: Site, wait_s: float) -> bytes:
    """The answer to a request whose body comes later than its header; empty if the connection was closed."""
    with site.connect() as connection, suppress(ConnectionError):
        head = f"POST /connectors HTTP/1.1\r\nHost: 127.0.0.1:{site.client.port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 2\r\n\r\n".encode())
        time.sleep(wait_s)
        connection.sendall(b"{}")
        return connection.recv(1000)
    return b""


@pytest.mark.parametrize("tls", [False, True])
def test_more_connections_than_the_bound_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    """Also of clients that never begin the handshake."""
    monkeypatch.setattr(http_server, "_CONNECTIONS", 3)
    certificates(tmp_path)
    pair = (str(tmp_path / "broker.pem"), str(tmp_path / "broker.key")) if tls else ()
    site = Site(Home.at(tmp_path / "home").make(), *pair)
    connections = [site.connect() for _ in range(8)]
    try:
        assert all(is_closed(connection) for connection in connections[3:])
        for connection in connections:
            connection.close()
        until(lambda: _answers(site, tls))  # the server has not noticed the ends yet
    finally:
        site.server.stop()


def _answers(site: Site, tls: bool) -> bool:
    """Whether a further client is served."""
    try:
        return bool(_served(site)) if tls else site.client.get("/health")["status"] == "running"
    except OSError:
        return False


def test_health_tells_that_the_service_ends(site: Site) -> None:
    site.server.ending()
    answer = site.client.ask("GET", "/health")
    assert (answer.status, answer.json["status"]) == (503, "ending")
    site.server.stop()
    with pytest.raises(OSError):
        site.client.get("/health")


def test_a_renewed_certificate_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_RENEWAL_S", 0.1)
    certificates(tmp_path)
    used, key = tmp_path / "used.pem", tmp_path / "used.key"
    site = Site(
        Home.at(tmp_path / "home").make(), str(_copied(tmp_path / "broker.pem", used)), str(_copied(tmp_path / "broker.key", key))
    )
    try:
        before = _served(site)
        _copied(tmp_path / "other.pem", used)  # the key is not there yet
        until(lambda: any("is not renewed" in line for line in site.lines))
        assert _served(site) == before, "the old pair stays in use"
        _copied(tmp_path / "other.key", key)
        until(lambda: site.lines[-1] == "the certificate was renewed")
        assert _served(site) == ssl.PEM_cert_to_DER_cert((tmp_path / "other.pem").read_text()) != before
    finally:
        site.server.stop()


def test_a_renewed_token_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_RENEWAL_S", 0.1)
    file, first, second = tmp_path / "token", "first-token-of-this-test", "second-token-of-this-test"
    file.write_text(f"{first}\n")
    site = Site(Home.at(tmp_path / "home").make(), token_file=file)

    def status(token: str) -> int:
        site.client.headers = {"Authorization": f"Bearer {token}"}
        return site.client.ask("GET", "/connectors").status

    try:
        assert (status(first), status(second)) == (200, 401)
        file.write_text("short")
        until(lambda: any("the token is not renewed" in line for line in site.lines))
        assert status(first) == 200, "the old token stays in use"
        file.write_text(second)
        until(lambda: site.lines[-1] == "the token was renewed")
        assert (status(first), status(second)) == (401, 200)
        assert not any(token in line for line in site.lines for token in (first, second, "short"))
    finally:
        site.server.stop()


@pytest.mark.parametrize("usable", [True, False])
def test_a_process_that_is_started_again_uses_the_token_of_now(tmp_path: Path, usable: bool) -> None:
    """The supervisor sends each process the token that it read itself."""
    file, first, second = tmp_path / "token", "first-token-of-this-test", "second-token-of-this-test"
    file.write_text(second if usable else "short")
    site = Site(Home.at(tmp_path / "home").make(), token_file=file, token=first)
    try:
        for token, is_valid in ((first, not usable), (second, usable)):
            site.client.headers = {"Authorization": f"Bearer {token}"}
            assert site.client.ask("GET", "/connectors").status == (200 if is_valid else 401)
        assert len(site.lines) == (not usable), site.lines
    finally:
        site.server.stop()


def _copied(source: Path, target: Path) -> Path:
    fresh = target.with_suffix(".new")
    fresh.write_bytes(source.read_bytes())
    return fresh.replace(target)


def _served(site: Site) -> bytes:
    """The certificate that a client gets."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", site.client.port), timeout=300))
