"""Kafka Connect's offsets: a recorded answer, wrong ones, and a server whose connector runs or is stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kpipe.errors import CredentialsRefused, InvalidPipeline, SourceError
from resources.adoption.connect_offsets import connect_offsets

RECORDED = Path(__file__).parent / "recorded" / "connect_offsets.json"
SECRET = "hunter2"


def entry(topic: object = "t", partition: object = 0, offset: object = 5) -> dict[str, object]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": offset}}


def test_a_recorded_answer() -> None:
    found = connect_offsets(str(RECORDED), {})
    assert found.offsets == {("orders", 0): 25, ("orders", 1): 25}
    assert not found.problems


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("{broken", "expected"),
        ("[]", "expected"),
        ("[" * 100_000, "expected"),
        (json.dumps({"offsets": [entry()]}).replace('"kafka_offset": 5', '"kafka_offset": 3, "kafka_offset": 5'), "expected"),
        ('{"error_code": 404, "message": "Connector x not found"}', "expected"),
        ({"offsets": [{"partition": {"filename": "a"}, "offset": {"position": 3}}]}, "not the offsets of a sink connector"),
        ({"offsets": [entry(offset=None)]}, "not the offsets of a sink connector"),
        ({"offsets": [entry(partition=True)]}, "not the offsets of a sink connector"),
        ({"offsets": [entry(offset=-1)]}, "not the offsets of a sink connector"),
        ({"offsets": [entry(), entry(offset=6)]}, "t/0 is duplicated"),
    ],
)
def test_wrong_answers(tmp_path: Path, answer: object, problem: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(answer if isinstance(answer, str) else json.dumps(answer))
    with pytest.raises(InvalidPipeline) as error:
        connect_offsets(str(path), {})
    assert problem in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="No such file"):
        connect_offsets(str(tmp_path / "none.json"), {})


class Worker(ThreadingHTTPServer):
    """Answers for a connector `ice`."""

    state = "STOPPED"
    tasks: tuple[str, ...] = ()
    password = ""
    broken = False


class _Handler(BaseHTTPRequestHandler):
    server: Worker

    def do_GET(self) -> None:
        status, body = 200, RECORDED.read_bytes()
        if self.path.endswith("/status"):
            tasks = [{"id": at, "state": state} for at, state in enumerate(self.server.tasks)]
            body = json.dumps({"name": "ice", "connector": {"state": self.server.state}, "tasks": tasks}).encode()
        if self.server.password and not self.headers.get("Authorization"):
            status, body = 401, b"{}"
        if self.server.broken:
            status, body = 404, b'{"error_code":404,"message":"Connector ice not found"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def worker() -> Iterator[Worker]:
    server = Worker(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def url(worker: Worker) -> str:
    return f"http://127.0.0.1:{worker.server_address[1]}/connectors/ice/offsets"


def test_a_stopped_connector(worker: Worker) -> None:
    found = connect_offsets(url(worker), {})
    assert found.offsets == {("orders", 0): 25, ("orders", 1): 25}
    assert not found.problems


@pytest.mark.parametrize(("state", "tasks"), [("RUNNING", ("RUNNING",)), ("PAUSED", ("RUNNING",)), ("RUNNING", ("FAILED",))])
def test_a_connector_that_may_still_commit(worker: Worker, state: str, tasks: tuple[str, ...]) -> None:
    worker.state, worker.tasks = state, tasks
    assert "connector ice is not stopped" in connect_offsets(url(worker), {}).problems[0]


def test_credentials(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PASSWORD", SECRET)
    worker.password = SECRET
    with pytest.raises(CredentialsRefused, match="HTTP 401"):
        connect_offsets(url(worker), {})
    given = {"username": "{{ env('CONNECT_USER') }}", "password": "{{ env('CONNECT_PASSWORD') }}"}
    monkeypatch.setenv("CONNECT_USER", "me")
    assert connect_offsets(url(worker), given).offsets
    with pytest.raises(InvalidPipeline, match="unencrypted") as error:
        connect_offsets("http://connect:8083/connectors/ice/offsets", given)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "place", ["http://h:8083/connectors/ice", "http:///connectors/ice/offsets", "http://u:p@h/connectors/x/offsets"]
)
def test_wrong_urls(place: str) -> None:
    with pytest.raises(InvalidPipeline) as error:
        connect_offsets(place, {})
    assert "u:p" not in str(error.value)


def test_servers_that_fail(worker: Worker) -> None:
    worker.broken = True
    with pytest.raises(SourceError, match="HTTP 404"):
        connect_offsets(url(worker), {})
    place = url(worker)
    worker.shutdown()
    worker.server_close()
    with pytest.raises(SourceError, match="does not answer"):
        connect_offsets(place, {})
