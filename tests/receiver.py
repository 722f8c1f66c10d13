"""A receiver of webhooks for tests: a real HTTP server that remembers what it took, and can be told to misbehave."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Got:
    """A request that arrived whole.

    Attributes:
        key: its Idempotency-Key.
        body: its bytes.
        headers: by lower-case name.
        fault: how it was answered; empty: taken.
        at: seconds, monotonic.
    """

    key: str
    body: bytes
    headers: dict[str, str] = field(repr=False)
    fault: str
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def took(self) -> bool:
        """Whether it had an effect, whatever was answered."""
        return self.fault in ("", "lost", "cut", "huge", "slow", "201")


#: Says how a request is answered. `lost`: taken, and the connection is reset instead of an answer. `cut`: taken, and reset in
#: the middle of it. `reset`: not taken, and reset. `hang`: nothing until the end. `slow`: taken, a byte now and then. `huge`:
#: taken, with an endless answer. `redirect`, `429:SECONDS` (Retry-After), or an HTTP status.
Fault = Callable[["Got"], str]


class Receiver:
    """On a port of its own.

    Attributes:
        url: its address.
        got: all requests, in the order in which they arrived.
        faults: answers to the next requests, whichever they are; then `fault` is asked.
        fault: see `Fault`.
        most: requests that waited for their answer at the same time; one whose answer has begun is none of them.
        pause: seconds before each answer.
    """

    def __init__(self, context: Any = None) -> None:
        self.got: list[Got] = []
        self.faults: list[str] = []
        self.fault: Fault = lambda _: ""
        self.most = self._now = 0
        self.pause = 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()
        mine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the second write of an answer waits 40 ms for the client's ACK of the first

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # who sent it was killed meanwhile
                    self.close_connection = True
                    return
                with mine._lock:
                    mine._now += 1
                    mine.most = max(mine.most, mine._now)
                mine._ended.wait(mine.pause)
                with mine._lock:  # before the answer: who has got it sends the next request at once
                    mine._now -= 1
                try:
                    mine._post(self, body)
                except OSError:  # the client has hung up
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.port}/hook?from=kpipe"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """No more answers."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def taken(self) -> list[Got]:
        """What a receiver that honours keys has: each key once, in the order in which it came first."""
        with self._lock:
            return list({one.key: one for one in reversed([one for one in self.got if one.took])}.values())[::-1]

    def _post(self, to: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in to.headers.items()}
        one = Got(headers.get("idempotency-key", ""), body, headers, "", time.monotonic())
        with self._lock:
            fault = self.faults.pop(0) if self.faults else self.fault(one)
            self.got.append(Got(one.key, body, headers, fault, one.at))
        match fault:
            case "":
                self._answer(to, 200, b'{"ok":true}')
            case "lost" | "reset":
                self._reset(to)
            case "cut":
                self._answer(to, 200, b"only half", 1000)
                self._reset(to)
            case "hang":
                self._ended.wait()
                to.close_connection = True
            case "slow":
                self._answer(to, 200, b"", 1000)
                for _ in range(100):
                    to.wfile.write(b"a")
                    to.wfile.flush()
                    if self._ended.wait(0.1):
                        break
            case "huge":
                self._answer(to, 200, b"", 1 << 30)
                for _ in range(1 << 14):
                    to.wfile.write(b"x" * 65536)
            case "redirect":
                self._answer(to, 302, b"", Location="http://169.254.169.254/secrets")
            case _ if ":" in fault:
                status, _, wait = fault.partition(":")
                self._answer(to, int(status), b"later", Retry_After=wait)
            case status:
                self._answer(to, int(status), b"no: \x00 " + body[:40])

    def _answer(self, to: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        to.send_response(status)
        to.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(body)
        to.wfile.flush()

    def _reset(self, to: BaseHTTPRequestHandler) -> None:
        """Hang up so that the client hears of it at once (RST)."""
        to.close_connection = True
        to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        to.connection.close()
