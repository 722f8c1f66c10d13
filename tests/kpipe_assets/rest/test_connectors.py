"""Kafka Connect's REST API over a home: what each resource answers, in Connect's shapes and statuses."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kpipe.ledger.ledger import Lane, Ledger
from kpipe.topics import PartitionId, TopicId
from kpipe_assets import validation
from kpipe_assets.rest import connectors
from kpipe_assets.runs.status import note_state
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.validation import Case
from resources.home import Home
from tests.kpipe_assets.rest.client import CONFIG, Client


@contextmanager
def served(home: Home) -> Iterator[None]:
    """A process that evaluates the switch."""
    with (home.state / "ui.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_worker(api: Client) -> None:
    assert api.get("/") == {"version": "4.1.0", "commit": "kpipe-0.1.0", "kafka_cluster_id": ""}
    assert api.get("/health")["status"] == "running"
    assert api.get("/connectors") == []
    assert api.ask("GET", "/nothing").status == 404
    assert api.ask("POST", "/").status == 405


def test_a_connector_is_created_read_changed_and_deleted(api: Client) -> None:
    created = api.create()
    assert created.headers["location"] == "/connectors/orders"
    assert created.json == {"name": "orders", "config": {**CONFIG, "name": "orders"}, "tasks": [], "type": "sink"}
    assert api.home.pipeline("orders").columns == {"id": "BIGINT"}
    again = api.ask("POST", "/connectors", {"name": "orders", "config": CONFIG})
    assert (again.status, again.message) == (409, "Connector orders already exists")
    assert api.get("/connectors") == ["orders"]
    assert api.get("/connectors/orders/config") == {**CONFIG, "name": "orders"}, "as it came"

    put = api.ask("PUT", "/connectors/orders/config", {**CONFIG, "batch.interval_ms": "50", "tasks.max": "3"})
    assert put.status == 200
    assert put.json["config"]["tasks.max"] == "3"
    assert api.home.pipeline("orders").batch.interval_ms == 50
    patched = api.ask("PATCH", "/connectors/orders/config", {"batch.interval_ms": None, "where": "id > 1"})
    assert patched.status == 200
    assert (api.home.pipeline("orders").where, api.home.pipeline("orders").batch.interval_ms) == ("id > 1", 2500)
    assert "batch.interval_ms" not in api.get("/connectors/orders/config")

    fresh = api.ask("PUT", "/connectors/other/config", CONFIG)
    assert (fresh.status, fresh.headers["location"]) == (201, "/connectors/other")
    assert api.get("/connectors") == ["orders", "other"]
    assert api.ask("DELETE", "/connectors/other").status == 204
    gone = api.ask("DELETE", "/connectors/other")
    assert (gone.status, gone.message) == (404, "Connector other not found")
    assert not list(api.home.state.glob("other.connector*"))


def test_a_definition_that_was_changed_elsewhere_is_returned_as_it_is(api: Client) -> None:
    api.create()
    pipeline = api.home.pipeline("orders")
    api.home.save(pipeline.model_copy(update={"where": "id > 5"}))
    config = api.get("/connectors/orders/config")
    assert (config["where"], config["connector.class"], config["source.topic"]) == ("id > 5", "kpipe", "orders")
    assert api.ask("PUT", "/connectors/orders/config", config).status == 200
    assert api.home.pipeline("orders").where == "id > 5"


def test_nested_json_is_a_config_too(api: Client) -> None:
    nested = {
        "connector.class": "kpipe",
        "source": {"brokers": "127.0.0.1:1", "topic": "orders"},
        "columns": {"id": "BIGINT"},
        "into": {"table": "orders"},
    }
    answer = api.ask("PUT", "/connectors/orders/config", nested)
    assert answer.status == 201
    assert api.get("/connectors/orders/config") == {**CONFIG, "name": "orders"}
    assert api.get("/kpipe/v1/pipelines/orders")["definition"]["columns"] == {"id": "BIGINT"}


def test_secrets_are_references(api: Client) -> None:
    config = {
        **CONFIG,
        "source.config.security.protocol": "SASL_SSL",
        "source.config.sasl.mechanism": "PLAIN",
        "source.credentials.sasl.username": "me",
        "source.credentials.sasl.password": "hush-hush",
    }
    refused = api.ask("PUT", "/connectors/orders/config", config)
    assert refused.status == 400
    assert "${env:NAME}" in refused.message
    assert "hush" not in refused.text
    config["source.credentials.sasl.password"] = "${env:KAFKA_PASSWORD}"
    assert api.ask("PUT", "/connectors/orders/config", config).status == 201
    saved = api.home.pipeline("orders")
    assert saved.source.credentials["sasl.password"] == "{{ env('KAFKA_PASSWORD') }}"
    assert api.get("/connectors/orders/config")["source.credentials.sasl.password"] == "${env:KAFKA_PASSWORD}"

    literal = {"sasl.username": "me", "sasl.password": "hush-hush"}  # as in a file written by hand
    api.home.save(saved.model_copy(update={"source": saved.source.model_copy(update={"credentials": literal})}))
    for path in ("/connectors/orders", "/connectors/orders/config", "/connectors/orders/tasks", "/kpipe/v1/pipelines/orders",
                 "/connectors?expand=info"):  # fmt: skip
        assert "hush" not in api.ask("GET", path).text
    shown = api.get("/connectors/orders/config")
    assert shown["source.credentials.sasl.password"] == "***"
    assert api.ask("PUT", "/connectors/orders/config", {**shown, "where": "id > 1"}).status == 200
    assert api.home.pipeline("orders").source.credentials == literal, "the mask keeps what exists"
    assert "hush" not in "".join(item.read_text() for item in api.home.state.glob("*.json"))


def test_states(api: Client) -> None:
    api.create(state="RUNNING")
    status = api.get("/connectors/orders/status")
    assert status["connector"]["state"] == "UNASSIGNED"
    assert "kpipe serve" in status["connector"]["trace"]
    assert [task["id"] for task in status["tasks"]] == [0]
    with served(api.home):
        assert api.get("/connectors/orders/status") == {
            "name": "orders",
            "connector": {"state": "RUNNING", "worker_id": f"127.0.0.1:{api.port}"},
            "tasks": [{"id": 0, "state": "RUNNING", "worker_id": f"127.0.0.1:{api.port}"}],
            "type": "sink",
        }
        paused = api.ask("PUT", "/connectors/orders/pause")
        assert (paused.status, paused.text, api.state()) == (202, "", "PAUSED")
        assert api.get("/connectors/orders/tasks/0/status")["state"] == "PAUSED"
        assert api.ask("PUT", "/connectors/orders/pause").status == 202, "idempotent"
        assert api.ask("PUT", "/connectors/orders/resume").status == 202
        assert api.ask("PUT", "/connectors/orders/resume").status == 202
        assert api.state() == "RUNNING"
        assert api.ask("PUT", "/connectors/orders/stop").status == 204
        assert api.get("/connectors/orders/status")["tasks"] == []
        assert api.get("/connectors/orders")["tasks"] == []
        missing = api.ask("GET", "/connectors/orders/tasks/0/status")
        assert (missing.status, missing.message) == (404, "No status found for task orders-0")
    for name in ("pause", "resume", "stop"):
        assert api.ask("PUT", f"/connectors/nobody/{name}").message == "Connector nobody not found"
    assert api.ask("GET", "/connectors/nobody/status").message == "No status found for connector nobody"


def test_a_connector_with_an_invalid_definition_can_be_stopped(api: Client) -> None:
    api.create(state="RUNNING")
    (api.home.pipelines / "orders.yaml").write_text("nonsense: 1\n")
    for name, status in (("pause", 202), ("stop", 204)):
        with SensorStates(api.home) as sensor_states:
            sensor_states.turn("orders", True)
        assert api.ask("PUT", f"/connectors/orders/{name}").status == status
        with SensorStates(api.home) as sensor_states:
            assert sensor_states.on() == frozenset()
    assert api.ask("PUT", "/connectors/orders/resume").status == 400


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_the_initial_state(api: Client, state: str) -> None:
    api.create(state=state)
    assert api.state() == state
    wrong = api.ask("POST", "/connectors", {"name": "b", "config": CONFIG, "initial_state": "paused!"})
    assert (wrong.status, "initial_state" in wrong.message) == (400, True)


def test_a_failed_connector(api: Client) -> None:
    api.create(state="RUNNING")
    api.home.note("orders", "error", "topic orders: gone")
    with served(api.home):
        status = api.get("/connectors/orders/status")
        assert (status["connector"]["state"], status["tasks"][0]["trace"]) == ("FAILED", "topic orders: gone")
        answer = api.ask("POST", "/connectors/orders/restart?includeTasks=true&onlyFailed=True")
        assert (answer.status, answer.json["connector"]["state"]) == (202, "RESTARTING")
        assert api.state() == "RUNNING"
        api.home.note("orders", "error", "again")
        assert api.ask("POST", "/connectors/orders/tasks/0/restart").status == 204
        assert api.state() == "RUNNING"
        assert api.ask("POST", "/connectors/orders/restart").status == 204
        assert api.ask("POST", "/connectors/orders/tasks/1/restart").message == "Task orders-1 not found"
        assert api.ask("POST", "/connectors/orders/tasks/x/restart").status == 404
        note_state(api.home, "orders", "needs_operator")
        assert api.state() == "FAILED"
        assert api.ask("PUT", "/connectors/orders/stop").status == 204
        assert api.state() == "STOPPED", "so that its offsets can be changed"


def test_lists_with_details(api: Client) -> None:
    api.create("a")
    api.create("b", state="PAUSED")
    (api.home.pipelines / "c.yaml").write_text("no pipeline")
    found = api.get("/connectors?expand=status&expand=info&expand=other")
    assert {name: entry["status"]["connector"]["state"] for name, entry in found.items()} == {
        "a": "STOPPED", "b": "PAUSED", "c": "FAILED"
    }  # fmt: skip
    assert "not a pipeline" in found["c"]["status"]["connector"]["trace"]
    assert found["a"]["info"]["config"]["source.topic"] == "orders"
    assert found["c"]["info"]["config"] == {"connector.class": "kpipe", "name": "c"}
    assert api.ask("GET", "/connectors/c/config").status == 400
    assert api.ask("DELETE", "/connectors/c").status == 204, "an unreadable definition can be deleted"


def test_tasks(api: Client) -> None:
    api.create(state="PAUSED")
    (task,) = api.get("/connectors/orders/tasks")
    assert task["id"] == {"connector": "orders", "task": 0}
    assert list(api.get("/connectors/orders/tasks-config")) == ["orders-0"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "config: field required"),
        ({"name": "x", "config": {}}, "connector type"),
        ({"name": "x", "config": {**CONFIG, "name": "y"}}, "doesn't match connector name"),
        ({"name": "my-sink", "config": CONFIG}, "is not a pipeline's name"),
        ({"name": "../x", "config": CONFIG}, "is not a pipeline's name"),
        ({"config": CONFIG}, "is not a pipeline's name"),
        ({"name": "x", "config": {**CONFIG, "connector.class": "org.example.Sink"}}, "Failed to find any class"),
        ({"name": "x", "config": {**CONFIG, "sourc.topic": "a"}}, "unknown field sourc.topic"),
        ({"name": "x", "config": {**CONFIG, "batch.interval_ms": "soon"}}, "batch.interval_ms"),
        ({"name": "x", "config": {**CONFIG, "into.type": "jdbc"}}, "is not available"),
        ({"name": "x", "config": {**CONFIG, "where": "id >"}}, "where"),
        ({"name": "x", "config": CONFIG, "more": 1}, "more"),
        ([], "body"),
    ],
)
def test_a_wrong_body_is_named(api: Client, body: Any, words: str) -> None:
    answer = api.ask("POST", "/connectors", body)
    assert answer.status in (400, 422), answer
    assert words in answer.message
    assert api.get("/connectors") == []


def test_every_error_of_a_config_is_reported(api: Client) -> None:
    answer = api.ask("PUT", "/connectors/x/config", {**CONFIG, "batch.interval_ms": "-1", "delivery": "twice"})
    assert answer.status == 400
    assert answer.message.startswith(
        "Connector configuration is invalid and contains the following 2 error(s):\nbatch.interval_ms:"
    )
    assert "`/connector-plugins/kpipe/config/validate`" in answer.message


def test_topics_of_connect_are_read(api: Client) -> None:
    plain = {key: value for key, value in CONFIG.items() if key != "source.topic"}
    assert api.ask("PUT", "/connectors/a/config", {**plain, "topics": "x, y"}).status == 201
    assert api.home.pipeline("a").source.topics == ["x", "y"]
    assert api.get("/connectors/a/config")["topics"] == "x, y"
    assert api.ask("PUT", "/connectors/b/config", {**plain, "topics.regex": "shop"}).status == 201
    assert api.home.pipeline("b").source.topic_pattern == "^(?:shop)$"
    both = api.ask("PUT", "/connectors/c/config", {**CONFIG, "topics": "x"})
    assert (both.status, "also given" in both.message) == (400, True)


def test_topics_of_a_connector_that_has_read_nothing(api: Client) -> None:
    api.create()
    assert api.get("/connectors/orders/topics") == {"orders": {"topics": []}}
    assert api.ask("PUT", "/connectors/orders/topics/reset").status == 202
    assert api.ask("GET", "/connectors/x/topics").status == 404


@pytest.mark.parametrize("ids", [("a", "b"), ("b", "a")])
def test_a_recreated_topic_is_active_when_it_is_read(api: Client, monkeypatch: pytest.MonkeyPatch, ids: tuple[str, str]) -> None:
    old, new = (PartitionId(TopicId("c", topic_id, "web"), 0) for topic_id in ids)

    def read(offset: int) -> None:
        lanes = (Lane(old, 0, 5), Lane(new, 0, offset))
        found = SimpleNamespace(ledger=lambda: ("", Ledger("orders", 1, {lane.key: lane for lane in lanes})))
        monkeypatch.setattr(connectors, "open_destination", lambda *_: found)

    api.create()
    read(1)
    assert api.ask("PUT", "/connectors/orders/topics/reset").status == 202
    assert api.get("/connectors/orders/topics") == {"orders": {"topics": []}}
    read(2)
    assert api.get("/connectors/orders/topics") == {"orders": {"topics": ["web"]}}


def test_loggers(api: Client) -> None:
    levels = api.get("/admin/loggers")
    assert levels["root"]["level"] in ("WARN", "INFO", "DEBUG", "ERROR", "TRACE")
    assert api.ask("PUT", "/admin/loggers/kpipe.rest", {"level": "debug"}).json == ["kpipe.rest"]
    assert api.get("/admin/loggers/kpipe.rest")["level"] == "DEBUG"
    assert api.get("/admin/loggers/kpipe.rest")["last_modified"] > 0
    assert api.ask("PUT", "/admin/loggers/kpipe.rest?scope=cluster", {"level": "INFO"}).status == 204
    assert api.ask("GET", "/admin/loggers/no.such").message == "Logger no.such not found."
    assert api.ask("PUT", "/admin/loggers/kpipe.rest", {"level": "loud"}).message == "invalid log level 'loud'."
    assert api.ask("PUT", "/admin/loggers/kpipe.rest", {}).status == 400


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_edit_of_another_process_meanwhile_is_kept(api: Client, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    api.create()
    edited = api.home.pipeline("orders").model_copy(update={"where": "id > 5"})

    def meanwhile(case: Case) -> list[str]:
        api.home.save(edited)
        return []

    monkeypatch.setattr(validation, "validate_case", meanwhile)
    answer = api.ask(method, "/connectors/orders/config", {**CONFIG, "batch.interval_ms": "50"})
    assert (answer.status, answer.json["error"]) == (409, "DefinitionChanged")
    assert "orders was changed at the same time: nothing was written" in answer.message
    assert api.home.pipeline("orders") == edited
    assert api.ask("PATCH", "/connectors/orders/config", {"batch.interval_ms": "50"}).status == 200
    assert (api.home.pipeline("orders").where, api.home.pipeline("orders").batch.interval_ms) == ("id > 5", 50)
