"""REST, `/metrics` and `/health` of a started `kpipe serve`, on a real Kafka and Spark."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka_connect import KafkaConnect  # type: ignore[import-untyped]

from resources.home import Home
from resources.java import JavaHome
from tests.certificates import certificates
from tests.commandline import Kpipe
from tests.kpipe_assets.rest.client import Client
from tests.kpipe_assets.service.serving import Serving, rows, serving, until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TOKEN = "a-token-for-this-test"


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, java: JavaHome) -> Iterator[Kpipe]:
    """A fresh home, with the session's Kafka; the service has its own Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


def client(kpipe: Kpipe, service: Serving, **more: Any) -> Client:
    """A client of the service, when it answers."""
    service.wait_for("serving the pipelines")
    found = re.search(r"https?://127\.0\.0\.1:(\d+)", next(line for line in service.lines if "serving the pipelines" in line))
    assert found is not None
    return Client(Home(kpipe.home), int(found[1]), **more)


def config(topic: str, table: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "kpipe",
        "topics": topic,
        "columns.id": "BIGINT",
        "into.table": table,
        "batch.interval_ms": "100",
        **more,
    }


def ids(first: int, last: int) -> list[str]:
    return [json.dumps({"id": number}) for number in range(first, last)]


def runs(home: Path, name: str) -> list[str]:
    return sorted(file.name for file in home.glob(f"state/{name}.*.run"))


@pytest.fixture(scope="module")
def shared(
    brokers: str, java: JavaHome, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[tuple[Kpipe, Serving]]:
    """A service that needs a token, which two tests use, and its home."""
    folder = tmp_path_factory.mktemp("shared")
    kpipe, token = Kpipe(folder / "home", brokers), folder / "token"
    token.write_text(TOKEN)
    with serving(kpipe, "--port", str(free_port()), "--token-file", str(token), "--brokers", brokers) as service:
        yield kpipe, service
    kpipe.kill()


def test_a_connector_lives_over_http(shared: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]) -> None:
    (kpipe, service), name = shared, topic(2)
    write(name, ids(0, 20))
    api = client(kpipe, service, headers={"Authorization": f"Bearer {TOKEN}"})
    created = api.ask("POST", "/connectors", {"name": "one", "config": config(name, "one")})
    assert created.status == 201, created
    service.wait_for("one: started")
    assert api.state("one") == "RUNNING"
    until(lambda: rows(kpipe, "one") == 20, lambda: str(service.lines[-20:]))
    status = api.get("/connectors/one/status")
    assert status["tasks"] == [{"id": 0, "state": "RUNNING", "worker_id": f"127.0.0.1:{api.port}"}]
    assert api.get("/kpipe/v1/pipelines/one/status")["run_by"] == [f"kpipe serve (pid {service.process.pid})"]
    health = api.get("/health")
    assert health["status"] == "running" and health["pipelines"]["one"]["running"] is True
    assert api.get("/connectors/one/topics") == {"one": {"topics": [name]}}

    # counts of /metrics are those of the ledger
    write(name, ["no JSON"])
    until(lambda: _metric(api, "kpipe_records_total") == 21)
    sums = "SELECT sum(messages), sum(rows_streamed), max(batch_id) FROM kpipe_batches WHERE pipeline_name = 'one'"
    assert _metric(api, "kpipe_rows_total") == 20 == rows(kpipe, "one") and kpipe.sql(
        sums.split(",")[0] + sums[sums.index(" FROM") :]
    )
    assert _metric(api, "kpipe_dead_letters") == 1
    assert _metric(api, "kpipe_pipeline_state", 'state="running"') == 1

    # a restart ends the run after its batch, and begins another
    before, seen = runs(kpipe.home, "one"), len(service.lines)
    assert api.ask("POST", "/connectors/one/tasks/0/restart").status == 204
    until(lambda: runs(kpipe.home, "one") not in ([], before))
    assert api.state("one") == "RUNNING"
    service.wait_for("one: ended after", seen)
    service.wait_for("one: started", seen)

    seen = len(service.lines)
    assert api.ask("PUT", "/connectors/one/pause").status == 202
    until(lambda: api.state("one") == "PAUSED")
    service.wait_for("one: ended after", seen)
    assert not runs(kpipe.home, "one")
    write(name, ids(20, 30))
    changed = api.ask("PUT", "/connectors/one/config", config(name, "one", **{"set.id": "CAST(id AS BIGINT) + 1000"}))
    assert changed.status == 200, changed
    assert rows(kpipe, "one") == 20 and api.state("one") == "PAUSED", "it stays paused"
    seen = len(service.lines)
    assert api.ask("PUT", "/connectors/one/resume").status == 202
    until(lambda: rows(kpipe, "one") == 30)
    assert kpipe.sql("SELECT count(*) FROM one WHERE id >= 1020") == [(10,)]

    # of a running one
    service.wait_for("one: started", seen)
    seen = len(service.lines)
    again = api.ask("PATCH", "/connectors/one/config", {"set.id": "CAST(id AS BIGINT) + 5000"})
    assert again.status == 200, again
    service.wait_for("one: ended after", seen)
    write(name, ids(30, 40))
    until(lambda: rows(kpipe, "one") == 40)
    assert kpipe.sql("SELECT count(*) FROM one WHERE id >= 5030") == [(10,)]

    assert api.ask("PUT", "/connectors/one/stop").status == 204
    until(lambda: api.state("one") == "STOPPED")
    skipped = {"partition": {"kafka_topic": name, "kafka_partition": 0}, "offset": {"kafka_offset": 45}}
    write(name, ids(40, 60))
    moved = api.ask("PATCH", "/connectors/one/offsets", {"offsets": [skipped]})
    assert moved.status == 200, moved
    assert api.ask("PUT", "/connectors/one/resume").status == 202
    until(lambda: skipped | {"offset": {"kafka_offset": 61}} in api.get("/connectors/one/offsets")["offsets"])
    assert rows(kpipe, "one") == 40 + 61 - 45

    # one that fails says so, and why; the other goes on
    api.ask("POST", "/connectors", {"name": "bad", "config": config("no-such-topic", "bad")})
    until(lambda: api.state("bad") == "FAILED" and "no-such-topic" in str(api.get("/connectors/bad/status")))
    assert api.state("one") == "RUNNING"
    for each in ("bad", "one"):
        assert api.ask("DELETE", f"/connectors/{each}").status == 204
    assert api.get("/connectors") == [] and not runs(kpipe.home, "one")
    assert kpipe.json("status") == []


def _metric(api: Client, metric: str, label: str = "") -> float:
    """Sum of a metric's samples."""
    text = api.ask("GET", "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric + "{") and label in line)


def test_a_client_of_connect_drives_the_service(
    shared: tuple[Kpipe, Serving], topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """kafka-connect-py, which others wrote, with Basic."""
    (kpipe, service), name = shared, topic(1)
    write(name, ids(0, 10))
    connect = KafkaConnect(client(kpipe, service).url, auth=f"kpipe:{TOKEN}")
    assert connect.create_connector({"name": "other", "config": config(name, "other")})["name"] == "other"
    until(lambda: rows(kpipe, "other") == 10)
    assert connect.get_connector_status("other")["connector"]["state"] == "RUNNING"
    assert connect.list_connectors(state="RUNNING") == ["other"]
    connect.pause_connector("other")
    until(lambda: connect.get_connector_status("other")["connector"]["state"] == "PAUSED")
    write(name, ids(10, 20))
    connect.resume_connector("other")
    until(lambda: rows(kpipe, "other") == 20)
    connect.restart_connector("other", include_tasks=True)
    assert connect.list_connector_topics("other") == {"other": {"topics": [name]}}
    connect.stop_connector("other")
    until(lambda: connect.get_connector_status("other")["connector"]["state"] == "STOPPED")
    connect.delete_connector("other")
    assert connect.list_connectors() == []


def test_the_service_ends_in_order_and_leaves_nothing_behind(shared: tuple[Kpipe, Serving]) -> None:
    """The last test of the shared service."""
    kpipe, service = shared
    client(kpipe, service)  # it is ready
    assert service.end() == 0
    assert not kpipe.left_behind()


def test_only_clients_with_the_token_are_served(
    kpipe: Kpipe, tmp_path: Path, topic: Callable[..., str], free_port: Callable[[], int]
) -> None:
    """Over TLS, from a browser of someone else, without the token, and in what other users can read of the processes."""
    certificates(tmp_path)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    kpipe.define("one", topic(1))
    options = (
        "--token-file",
        str(token),
        "--tls-certificate",
        str(tmp_path / "broker.pem"),
        "--tls-key",
        str(tmp_path / "broker.key"),
    )
    with serving(kpipe, "--port", str(free_port()), *options) as service:
        tls = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        api = client(kpipe, service, tls=tls, headers={"Authorization": f"Bearer {TOKEN}"})
        assert api.url in service.lines[0]
        assert api.get("/connectors") == ["one"] and api.get("/health")["pipelines"] == {}
        with pytest.raises(ssl.SSLCertVerificationError):
            client(kpipe, service, tls=ssl.create_default_context()).get("/health")

        stranger = client(kpipe, service, tls=tls)
        assert stranger.get("/health") == {"status": "running"}
        for path in ("/", "/connectors", "/metrics", "/openapi.json", "/kpipe/v1/pipelines", "/admin/loggers"):
            assert stranger.ask("GET", path).status == 401, path
        for path in ("/connectors", "/kpipe/v1/sql"):
            assert stranger.ask("POST", path, {"statement": "DROP PIPELINE one"}).status == 401

        own = f"https://127.0.0.1:{api.port}"
        hostile: list[tuple[dict[str, str], int]] = [
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"https://127.0.0.1:{api.port + 1}"}, 403),
            ({"Host": "rebound.example"}, 403),
            ({"Host": f"rebound.example:{api.port}", "Origin": f"https://rebound.example:{api.port}"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site", "Origin": own}, 403),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded", "Origin": own}, 415),
        ]
        for headers, status in hostile:
            statement = {"statement": "DROP PIPELINE one"}
            assert api.ask("POST", "/kpipe/v1/sql", statement, headers=headers).status == status, headers
            for path in ("/connectors", "/metrics", "/health"):
                expected = 200 if status == 415 else status
                assert api.ask("GET", path, headers=headers).status == expected, (path, headers)
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAA"}
        assert stranger.ask("GET", "/connectors", headers=upgrade).status == 401, "no websockets"
        for path in ("/connectors", "/health", "/metrics", "/kpipe/v1/sql"):
            assert api.ask("POST", path, raw=b" " * (1 << 20) + b"{}").status == 413, path
        assert api.get("/connectors") == ["one"]

        supervisor = psutil.Process(service.process.pid)
        for process in (supervisor, *supervisor.children(recursive=True)):
            words = [*process.cmdline(), *process.environ().values()]
            assert not any(TOKEN in word for word in words), process
        assert service.end() == 0
        assert not any(TOKEN in line for line in service.lines)
    assert not any(TOKEN in file.read_text(errors="replace") for file in kpipe.home.rglob("*") if file.is_file())


@pytest.mark.chaos
def test_it_ends_after_the_requests_in_progress_and_restarts_with_everything(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], free_port: Callable[[], int]
) -> None:
    name, other = topic(1), topic(1)
    write(name, ids(0, 10))
    with serving(kpipe, "--port", str(free_port()), "--brokers", kpipe.brokers) as service:
        api = client(kpipe, service)
        api.ask("POST", "/connectors", {"name": "one", "config": config(name, "one")})
        until(lambda: rows(kpipe, "one") == 10)
        body = {"name": "paused", "config": config(other, "paused", **{"my.own.key": "x"}), "initial_state": "PAUSED"}
        assert api.ask("POST", "/connectors", body).status == 400
        del body["config"]["my.own.key"]  # type: ignore[attr-defined]
        assert api.ask("POST", "/connectors", body).status == 201

        data = json.dumps({"name": "late", "config": config(other, "late")}).encode()
        with socket.create_connection(("127.0.0.1", api.port), timeout=300) as connection:
            head = f"POST /connectors HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[:20])
            until(lambda: api.get("/health")["status"] == "running")
            service.process.terminate()
            service.wait_for("ending after the current batches")
            connection.sendall(data[20:])
            answer = connection.recv(100_000)
            assert answer.startswith(b"HTTP/1.1 201 "), answer
        assert service.process.wait(300) == 0
        assert not kpipe.left_behind()
    write(name, ids(10, 20))
    write(other, ids(0, 5))
    with serving(kpipe, "--port", str(free_port()), "--brokers", kpipe.brokers) as service:
        api = client(kpipe, service)
        until(lambda: rows(kpipe, "one") == 20 and rows(kpipe, "late") == 5)
        assert {each: api.state(each) for each in api.get("/connectors")} == {
            "late": "RUNNING",
            "one": "RUNNING",
            "paused": "PAUSED",
        }
        assert api.get("/connectors/one/config")["topics"] == name, "as it came"
        # killed: the next process serves the same socket, with the same settings
        worker = service.worker()
        worker.kill()
        service.wait_for("it starts again")
        assert api.state("paused") == "PAUSED"
        write(name, ids(20, 30))
        until(lambda: rows(kpipe, "one") == 30)
        assert service.end() == 0
    assert kpipe.sql("SELECT count(*), count(DISTINCT id), max(id) FROM one") == [(30, 30, 29)]
    assert kpipe.json("verify", "one")[-1]["ok"]
