"""A schema registry for tests: those of Confluent's paths that kpipe asks, with their answers and error codes, over real HTTP.

It misbehaves when told so, and stands in where there is no real one: Confluent's server is not on Maven Central, Karapace not in
the package index. With Apicurio (`make registry`), or with the one that `KPIPE_TEST_REGISTRY` names, tests of what a good
registry says run against that.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import urllib3
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from resources.decode.protobuf.proto_compiler import compiled

_CONTENT = "application/vnd.schemaregistry.v1+json"


class LocalRegistry:
    """The stand-in, on a port of its own.

    Attributes:
        url: its address.
        asked: paths of the GETs so far.
        wanted: what the header Authorization must be; empty: anything.
        fault: instead of answering: `slow`, `redirect`, `huge`, `page` (HTML), or an HTTP status.
        garbles: whether it decodes the serialized bytes as UTF-8, as Apicurio's does where a schema has no package.
        serializes: whether it gives Protobuf's schemas in that form, as Confluent's does; else as they were registered; None: it
            fails when it is asked to, as Apicurio's does where a schema has a package.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.wanted, self.fault = "", ""
        self.serializes: bool | None = True
        self.garbles = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry._get(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if registry.wanted and self.headers.get("Authorization") != registry.wanted:
                    return registry.answer(self, 401, {"error_code": 40101, "message": "Unauthorized"})
                if registry.fault.isdecimal():
                    return registry.answer(self, int(registry.fault), {"error_code": 40901, "message": "said by the server"})
                number = registry._register(unquote(self.path.split("/")[2]), body)
                return registry.answer(self, 200, {"id": number})

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:  # a client that hangs up
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, to: BaseHTTPRequestHandler, status: int, body: Any, kind: str = _CONTENT, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        to.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(data)

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        known = next((number for number, item in self.schemas.items() if item == body), None)
        number = known or len(self.schemas) + 1
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _get(self, to: BaseHTTPRequestHandler) -> None:
        if self.wanted and to.headers.get("Authorization") != self.wanted:
            return self.answer(to, 401, {"error_code": 40101, "message": "Unauthorized"})
        if self.fault == "slow":
            to.send_response(200)
            to.send_header("Content-Length", "1000")
            to.end_headers()
            for _ in range(100):
                try:
                    to.wfile.write(b" ")
                    to.wfile.flush()
                except OSError:
                    return None
                time.sleep(0.1)
            return None
        if self.fault == "huge":
            return self.answer(to, 200, {"schema": "x" * (9 << 20)})
        if self.fault == "redirect":
            return self.answer(to, 302, b"", Location="http://127.0.0.1:1/schemas/ids/1")
        if self.fault == "page":
            return self.answer(to, 404, b"<html>nothing here</html>", "text/html")
        if self.fault:
            return self.answer(to, int(self.fault), {"error_code": 50001, "message": "Error in the backend data store"})
        path, _, query = to.path.partition("?")
        number = re.fullmatch(r"/schemas/ids/(\d+)", path)
        version = re.fullmatch(r"/subjects/([^/]+)/versions/(\d+|latest)", path)
        if query and self.serializes is None:
            return self.answer(to, 500, {"error_code": 500, "message": "expected M.proto to have a path ending with t/M.proto"})
        written = self._serialized if query == "format=serialized" and self.serializes else lambda item: item
        if number and int(number[1]) in self.schemas:
            return self.answer(to, 200, written(self.schemas[int(number[1])]))
        if number:
            return self.answer(to, 404, {"error_code": 40403, "message": "Schema not found"})
        ids = self.subjects.get(unquote(version[1])) if version else None
        at = (len(ids or ()) if version[2] == "latest" else int(version[2])) if version else 0
        if version and ids and at <= len(ids):
            own = {"subject": unquote(version[1]), "version": at, "id": ids[at - 1]}
            return self.answer(to, 200, {**own, **written(self.schemas[ids[at - 1]])})
        return self.answer(to, 404, {"error_code": 40401 if not ids else 40402, "message": "Not found"})

    def _serialized(self, item: dict[str, Any]) -> dict[str, Any]:
        """Protobuf's text as a FileDescriptorProto in base64."""
        if item.get("schemaType") != "PROTOBUF":
            return item
        others: dict[str, str] = {}

        def collect(references: list[dict[str, Any]]) -> None:
            for one in references:
                found = self.schemas[self.subjects[one["subject"]][one["version"] - 1]]
                collect(found.get("references", []))
                others[one["name"]] = found["schema"]

        collect(item.get("references", []))
        data, name = compiled(item["schema"], others)
        (made,) = [file for file in FileDescriptorSet.FromString(data).file if file.name == name]
        made.name = "default"  # what Confluent's calls a schema that was registered without a name
        raw = made.SerializeToString()
        return {**item, "schema": raw.decode("utf-8", "replace") if self.garbles else base64.b64encode(raw).decode()}


def register(url: str, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
    """Register a schema as producers do; gives its id."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body: dict[str, Any] = {"schema": text, **({"schemaType": kind} if kind != "AVRO" else {})}
    if references:
        body["references"] = references
    path = f"{url}/subjects/{subject}/versions"
    found = urllib3.request("POST", path, json=body, headers={"Content-Type": _CONTENT}, timeout=600)  # it may have just begun
    assert found.status == 200, found.data
    return int(found.json()["id"])


def framed(number: int, payload: bytes) -> bytes:
    """A payload in the wire format."""
    return b"\0" + number.to_bytes(4, "big") + payload
