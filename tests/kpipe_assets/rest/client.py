"""A server of the REST API on a socket of its own, and a plain client that no library makes more tolerant."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.rest.app import create_app
from resources.home import Home

CONFIG = {
    "connector.class": "kpipe",
    "source.brokers": "127.0.0.1:1",
    "source.topic": "orders",
    "columns.id": "BIGINT",
    "into.table": "orders",
}


@dataclass
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        """The message of an error, whose body must be Connect's."""
        assert self.json["error_code"] == self.status
        return str(self.json["message"])


@dataclass
class Client:
    """A client of a server.

    Attributes:
        tls: of a server with a certificate; None: without TLS.
    """

    home: Home
    port: int
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def connection(self) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=300, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, raw: bytes | None = None
    ) -> Answer:
        """Send a request as it is: the path is not encoded again."""
        connection = self.connection()
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            sent = {**({"Content-Type": "application/json"} if data is not None else {}), **self.headers, **(headers or {})}
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def create(self, name: str = "orders", state: str = "STOPPED", **more: Any) -> Answer:
        answer = self.ask("POST", "/connectors", {"name": name, "config": {**CONFIG, **more}, "initial_state": state})
        assert answer.status == 201, answer
        return answer

    def state(self, name: str = "orders") -> str:
        return str(self.get(f"/connectors/{name}/status")["connector"]["state"])


@contextmanager
def serving(home: Home, token: str | None = None, web: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Client]:
    """Serve a home in a thread while inside."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = create_app(home, Rules("127.0.0.1", port, (), token), **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none", **(web or {})))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        try:
            yield Client(home, port)
        finally:
            server.should_exit = True
            thread.join(300)
