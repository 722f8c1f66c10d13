"""One exchange under servers that never finish it: it ends at its deadline, with an error that names why. Real sockets."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from resources.net.connections import Connections, Pool, TlsPool
from resources.net.http import Answer, HttpFailed, TooLarge, TooSlow, ask, authorization, get
from tests.certificates import certificates
from tests.patience import longer

#: What a server sends: pieces, with a pause behind each; None: it hangs up.
Script = Iterator[bytes | None]
READ = b"READ"  #: in a script: the next request is awaited
LIMIT_S = 0.4
PATIENCE_S = 600  # of a server: far beyond the limit, so that a client that waits for it is seen
HEAD = b"HTTP/1.1 200 OK\r\n"


class Hostile:
    """A server of one script.

    Attributes:
        ended: set when the client has hung up before the script was over.
    """

    def __init__(self, script: Callable[[], Script], pause: float = 0.02, reads: bool = True) -> None:
        self.ended = threading.Event()
        self._closed = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._script, self._pause, self._reads = script, pause, reads
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        until = time.monotonic() + PATIENCE_S
        try:
            if self._reads:
                peer.recv(65536)
            for piece in self._script():
                if piece is None or time.monotonic() > until or self._closed.is_set():
                    return
                if piece is READ:
                    peer.recv(65536)
                    continue
                peer.sendall(piece)
                if self._pause:
                    time.sleep(self._pause)
            while time.monotonic() < until and peer.recv(65536):
                pass
            self.ended.set()
        except OSError:
            self.ended.set()
        finally:
            peer.close()

    def get(self, largest: int = 1 << 20, limit_s: float = LIMIT_S) -> Answer:
        with pool(self.port) as ours:
            return get(ours, "/secret-path", {}, limit_s, largest)

    def close(self) -> None:
        self._closed.set()
        self._socket.close()


@contextmanager
def pool(port: int, kind: type[Pool] | type[TlsPool] = Pool, **more: Any) -> Iterator[Pool | TlsPool]:
    """Connections, closed at the end."""
    made = kind("127.0.0.1", port, **more)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Hostile]]:
    made: list[Hostile] = []

    def start(script: Callable[[], Script], **more: float) -> Hostile:
        made.append(Hostile(script, **more))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for one in made:
        one.close()


def drip(data: bytes) -> Script:
    return (bytes([byte]) for byte in data)


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
#: Servers that send something before each pause, for ever.
DRIPPED: dict[str, Callable[[], Script]] = {
    "status line": lambda: chain([b"HTTP/1.1 200 "], repeat(b"O")),
    "header": lambda: chain([HEAD, b"X: "], repeat(b"a")),
    "headers": lambda: chain([HEAD], (f"X-{n}: a\r\n".encode() for n in range(10**9))),
    "100 Continue": lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "100 Continue with headers": lambda: repeat(b"HTTP/1.1 100 Continue\r\nX: a\r\n\r\n"),
    "102 Processing": lambda: repeat(b"HTTP/1.1 100 Processing\r\n\r\n"),
    "body": lambda: chain([HEAD + b"Content-Length: 1000000\r\n\r\n"], repeat(b"a")),
    "body without a length": lambda: chain([HEAD + b"\r\n"], repeat(b"a")),
    "chunks": lambda: chain([CHUNKED], repeat(b"1\r\na\r\n")),
    "chunk extension": lambda: chain([CHUNKED, b"1;"], repeat(b"a")),
    "chunk extensions": lambda: chain([CHUNKED], repeat(b"1;x=y\r\na\r\n")),
    "chunk length": lambda: chain([CHUNKED], repeat(b"0")),
    "trailer": lambda: chain([CHUNKED, b"1\r\na\r\n0\r\nX: "], repeat(b"a")),
    "trailers": lambda: chain([CHUNKED, b"1\r\na\r\n0\r\n"], repeat(b"X: a\r\n")),
    "end of trailers": lambda: iter([CHUNKED, b"1\r\na\r\n0\r\n"]),
    "nothing": lambda: iter(()),
}


@pytest.mark.parametrize("what", DRIPPED)
def test_an_exchange_ends_however_slowly_the_server_sends(serve: Callable[..., Hostile], what: str) -> None:
    server = serve(DRIPPED[what])
    with pytest.raises(TooSlow, match=r"no complete answer within 0\.4 s"):
        server.get()
    assert server.ended.wait(PATIENCE_S / 2), "the connection was dropped, and not by the server"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("100 Continue", "more than 65,536 bytes before its body"),
        ("100 Continue with headers", "more than 65,536 bytes before its body"),
        ("chunk extensions", "the answer has more than 10 bytes"),
        ("trailers", "more than 65,6.. bytes with its framing"),
        ("chunks", "the answer has more than 10 bytes"),
    ],
)
def test_an_exchange_ends_however_much_the_server_sends(serve: Callable[..., Hostile], what: str, words: str) -> None:
    server = serve(DRIPPED[what], pause=0)
    with pytest.raises(HttpFailed, match=words) as failed:
        server.get(largest=10, limit_s=PATIENCE_S / 2)
    assert not isinstance(failed.value, TooSlow)
    assert isinstance(failed.value, TooLarge) == ("before" not in words)
    assert server.ended.wait(PATIENCE_S / 2)


@pytest.mark.parametrize(
    "head", [b"X: " + b"a" * 70_000 + b"\r\n\r\n", b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(80)) + b"\r\n"]
)
def test_headers_without_measure_are_no_answer(serve: Callable[..., Hostile], head: bytes) -> None:
    with pytest.raises(HttpFailed):
        serve(lambda: iter([HEAD + head])).get(limit_s=PATIENCE_S / 2)


def test_an_answer_in_pieces_is_read_whole(serve: Callable[..., Hostile]) -> None:
    """Interim answers, chunks of one byte, extensions and trailers are all allowed."""
    text = b"HTTP/1.1 100 Continue\r\nX: a\r\n\r\n" * 3 + CHUNKED + b"1;a=b\r\nx\r\n" * 5 + b"0\r\nX-Sum: 1\r\n\r\n"
    answer = serve(lambda: drip(text), pause=0).get(limit_s=PATIENCE_S / 2)
    assert (answer.status, answer.body, answer.sized) == (200, b"xxxxx", True)


def test_a_peer_that_reads_nothing_does_not_hold_a_request(serve: Callable[..., Hostile]) -> None:
    server = serve(lambda: repeat(b""), reads=False)
    with pool(server.port) as ours, pytest.raises(TooSlow):
        ask(ours, "POST", "/", {}, LIMIT_S, 10, b"x" * (32 << 20))


def test_redirects_are_an_answer(serve: Callable[..., Hostile]) -> None:
    server = serve(lambda: iter([b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"]))
    assert server.get(limit_s=PATIENCE_S / 2).redirects


@pytest.mark.parametrize("what", ["nothing", "record", "records"])
def test_a_tls_handshake_ends_too(serve: Callable[..., Hostile], what: str) -> None:
    scripts: dict[str, Callable[[], Script]] = {
        "nothing": lambda: iter(()),
        "record": lambda: chain([b"\x16\x03\x03\x3f\xff"], repeat(b"\x00")),
        "records": lambda: repeat(b"\x14\x03\x03\x00\x01\x01"),  # as middleboxes send: one change of cipher after the other
    }
    server = serve(scripts[what])
    trust = ssl.create_default_context()
    with pool(server.port, TlsPool, ssl_context=trust) as ours, pytest.raises(HttpFailed) as failed:
        get(ours, "/", {}, LIMIT_S, 10)
    assert isinstance(failed.value, TooSlow) or what == "records"
    assert server.ended.wait(PATIENCE_S / 2)


def test_bytes_within_tls_are_bounded_as_well(serve: Callable[..., Hostile], tmp_path: Path) -> None:
    certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "keys.pem")
    trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    def check(limit_s: float) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        secured, ended = threading.Event(), threading.Event()

        def talk() -> None:
            peer, _ = listening.accept()
            with suppress(OSError), peer, context.wrap_socket(peer, server_side=True) as secure:
                secure.recv(65536)
                secured.set()
                until = time.monotonic() + PATIENCE_S
                try:
                    for piece in chain([HEAD, b"X: "], repeat(b"a")):
                        if time.monotonic() > until:
                            return
                        secure.sendall(piece)
                        time.sleep(0.02)
                finally:
                    if time.monotonic() < until:
                        ended.set()

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        with listening, pool(listening.getsockname()[1], TlsPool, ssl_context=trust) as ours, pytest.raises(TooSlow):
            get(ours, "/", {}, limit_s, 10)
        thread.join(PATIENCE_S / 2)
        assert secured.is_set(), "the time was over before the handshake"
        assert ended.is_set()

    longer(check, 1, 5, 30)


def test_a_connection_that_is_used_again_has_a_deadline_of_its_own(serve: Callable[..., Hostile]) -> None:
    good = HEAD + b"Content-Length: 1\r\n\r\na"

    def check(limit_s: float) -> None:
        def script() -> Script:
            yield from (good, READ)
            time.sleep(limit_s * 1.5)  # beyond the first exchange's deadline
            yield from (good, READ)
            yield from DRIPPED["headers"]()

        server = serve(script)
        with pool(server.port) as ours:
            for until_s in (limit_s, PATIENCE_S / 2):
                assert get(ours, "/", {}, until_s, 10).body == b"a"
            assert ours.num_connections == 1
            with pytest.raises(TooSlow):
                get(ours, "/", {}, LIMIT_S, 10)

    longer(check, LIMIT_S, 5, 30)


def test_all_addresses_of_a_name_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would have the whole limit otherwise."""
    full = socket.socket()  # a backlog that is full answers no one
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    port = full.getsockname()[1]
    waiting = [socket.socket() for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    tried: list[float | None] = []
    real = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        if address == ("127.0.0.1", port):
            tried.append(self.gettimeout())
        real(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] * 50
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(TooSlow):
        get(Connections(retries=False), f"http://many.example:{port}/", {}, LIMIT_S, 10)
    assert len(tried) < 10, "the addresses behind the deadline are not tried"
    for one in [*waiting, full]:
        one.close()


def test_nothing_of_an_exchange_is_logged(serve: Callable[..., Hostile], caplog: pytest.LogCaptureFixture) -> None:
    """urllib3 warns of headers that it cannot read, with the URL: its path may be a secret."""
    with caplog.at_level(logging.DEBUG):
        serve(lambda: iter([HEAD + b"Content-Length: 1\r\nno header at all\r\n\r\na"])).get(limit_s=PATIENCE_S / 2)
    assert "secret-path" not in caplog.text


def test_what_a_server_echoes_shows_no_secret(serve: Callable[..., Hostile]) -> None:
    """A server of another protocol may repeat the request, whose first line has the parameters of the address."""
    headers = authorization("user", "secret-word", "")
    encoded = headers["Authorization"].split()[1]
    for echo in ("GET /list?key=secret-value HTTP/1.1", f"Authorization: Basic {encoded}", "X-Key: secret-header"):
        server = serve(lambda line=echo: iter([line.encode() + b"\r\n\r\n"]))
        with pool(server.port) as ours, pytest.raises(HttpFailed) as failed:
            get(ours, "/list?key=secret-value", {**headers, "X-Key": "secret-header"}, PATIENCE_S / 2, 10)
        assert "***" in str(failed.value)
        assert not any(text in str(failed.value) for text in ("secret", encoded))


def test_a_body_that_repeats_the_request_is_quoted_without_its_secrets(serve: Callable[..., Hostile]) -> None:
    headers = {**authorization("user", "secret-word", ""), "X-Key": 'secret-"quoted"-header'}
    encoded = headers["Authorization"].split()[1]
    inner = f"GET /list?key=secret-value; secret-value {headers} {encoded} secret+2 " + json.dumps(headers)
    for before in (0, 190):  # a cut at 200 characters goes through a secret
        text = ("x" * before + inner + encoded * 30).encode()
        server = serve(lambda body=text: iter([HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body]))
        with pool(server.port) as ours:
            answer = get(ours, "/list?key=secret-value&more=secret%2B2", headers, PATIENCE_S / 2, 10_000)
        quoted = answer.quoted(200, ("secret-word",))
        assert "***" in quoted or before
        assert len(quoted) <= 200 and "secret" not in quoted and encoded[:8] not in quoted
        assert "secret" not in repr(answer).replace(repr(answer.body), "")


def test_a_credential_that_no_header_can_have_is_not_quoted(serve: Callable[..., Hostile]) -> None:
    with pool(serve(lambda: iter([])).port) as ours, pytest.raises(HttpFailed, match="beyond Latin-1") as failed:
        get(ours, "/", authorization("", "", "to\u2603ken"), PATIENCE_S / 2, 10)
    assert "\u2603" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_nobody_listens() -> None:
    with socket.socket() as deaf:  # bound, so that nobody else gets the port
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with pool(port) as ours, pytest.raises(HttpFailed, match="Failed to establish a new connection") as failed:
            get(ours, "/", {}, PATIENCE_S / 2, 10)
    assert not isinstance(failed.value, TooSlow)
