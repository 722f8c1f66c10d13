"""A web server for tests, which answers with a file, and can be told to misbehave."""

from __future__ import annotations

import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class FileServer:
    """On a port of its own.

    Args:
        keys: a file with its certificate and key (PEM): it speaks TLS.

    Attributes:
        url: its address, with the name of a file.
        body, kind: what it answers, and what it says that this is.
        asked: headers of the GETs so far, by lower-case name; with `path`.
        wanted: what the header Authorization must be; empty: anything.
        fault: instead of answering: `slow` (a byte now and then), `silent`, `huge`, `redirect`, `truncated`, `chunks_cut`,
            `endless` (no length), `gzip`, `chunked`, or an HTTP status.
    """

    def __init__(self, keys: Path | None = None) -> None:
        self.body, self.kind = b"", "text/csv"
        self.asked: list[dict[str, str]] = []
        self.wanted, self.fault = "", ""
        mine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                mine.asked.append({**{name.lower(): value for name, value in self.headers.items()}, "path": self.path})
                try:
                    mine._get(self)
                except OSError:  # the client has hung up
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        if keys is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if keys is not None else ''}://127.0.0.1:{self.port}/countries.csv"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, to: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
        to.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Type": self.kind, "Content-Length": str(len(body)), **given}.items():
            if value:
                to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)

    def _get(self, to: BaseHTTPRequestHandler) -> None:
        if self.wanted and to.headers.get("Authorization") != self.wanted:
            return self._answer(to, 401, b"no")
        match self.fault:
            case "":
                return self._answer(to, 200, self.body)
            case "slow":
                to.send_response(200)
                to.send_header("Content-Length", "1000")
                to.end_headers()
                for _ in range(300):
                    to.wfile.write(b"a")
                    to.wfile.flush()
                    time.sleep(0.1)
            case "silent":
                time.sleep(30)
            case "huge":
                return self._answer(to, 200, b"code,name\n" + b"x" * (3 << 20))
            case "redirect":
                return self._answer(to, 302, b"", Location="http://169.254.169.254/secrets")
            case "truncated":
                to.close_connection = True
                return self._answer(to, 200, self.body, Content_Length=str(len(self.body) + 100))
            case "endless":
                to.close_connection = True
                return self._answer(to, 200, self.body, Content_Length="", Connection="close")
            case "gzip":
                return self._answer(to, 200, self.body, Content_Encoding="gzip")
            case "chunked" | "chunks_cut":
                self._answer(to, 200, b"", Content_Length="", Transfer_Encoding="chunked")
                to.wfile.write(f"{len(self.body):x}\r\n".encode() + self.body + b"\r\n")
                if self.fault == "chunked":
                    to.wfile.write(b"0\r\n\r\n")
                else:
                    to.close_connection = True
            case status:
                return self._answer(to, int(status), b"an error")
        return None
