"""A REST catalogue that answers with settings of its own choice: it may refuse and lie, and runs no code here."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from resources.destinations.iceberg.catalogue import Rest
from resources.destinations.lakehouse.folder import LocalFolder
from resources.secrets import Secret


@pytest.fixture
def catalogue() -> Iterator[Callable[[dict[str, Any]], tuple[str, list[str]]]]:
    """`catalogue(overrides)`: address of a server that gives these settings, and the paths and tokens that came."""
    servers: list[HTTPServer] = []

    def start(overrides: dict[str, Any]) -> tuple[str, list[str]]:
        came: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                came.append(f"{self.path} {self.headers.get('Authorization')} {self.headers.get('X-Theirs')}")
                body = json.dumps({"defaults": overrides, "overrides": overrides, "namespaces": []}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", came

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_it_does_not_choose_the_class_that_signs_requests(catalogue: Any, tmp_path: Path) -> None:
    """The library imports the class that `auth` names, and calls it with arguments of the same answer."""
    mark = tmp_path / "ran"
    command = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    uri, came = catalogue({"auth": {"type": "custom", "impl": "subprocess.call", "custom": {"args": command}}})
    opened = Rest(uri, {"token": Secret("t")}).opened(LocalFolder(tmp_path / "lake"))
    assert opened.list_namespaces() == []
    assert not mark.exists()
    assert came[-1].split()[1:3] == ["Bearer", "t"], "our own token is still what is sent"


def test_it_sends_credentials_nowhere_else(catalogue: Any, tmp_path: Path) -> None:
    theirs, stolen = catalogue({})
    settings = {
        "uri": theirs,
        "oauth2-server-uri": theirs,
        "credential": "x:y",
        "header.X-Theirs": "1",
        "rest.sigv4-enabled": "true",
    }
    uri, came = catalogue({**settings, "prefix": "ours"})
    opened = Rest(uri, {"token": Secret("t")}).opened(LocalFolder(tmp_path / "lake"))
    assert opened.list_namespaces() == []
    assert stolen == []
    assert came[-1] == "/v1/ours/namespaces Bearer t None", "a prefix is theirs to choose"
