"""Clients of Kafka Connect that others wrote, against a served home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_connect import KafkaConnect  # type: ignore[import-untyped]
from requests.exceptions import HTTPError

from resources.home import Home
from tests.kpipe_assets.rest.client import CONFIG, Client, serving

TOKEN = "tOkEn-42"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Client]:
    with serving(Home.at(tmp_path / "home").make(), TOKEN) as client:
        yield client


def test_the_python_client_drives_a_connector(guarded: Client) -> None:
    """kafka-connect-py: every method but those of several connectors at once."""
    connect = KafkaConnect(guarded.url, auth=f"kpipe:{TOKEN}")
    assert connect.get_cluster_info()["commit"].startswith("kpipe-")
    assert connect.create_connector({"name": "orders", "config": CONFIG})["name"] == "orders"
    with pytest.raises(HTTPError, match="409"):
        connect.create_connector({"name": "orders", "config": CONFIG})
    assert connect.list_connectors() == ["orders"]
    assert connect.list_connectors(state="UNASSIGNED") == ["orders"]
    assert connect.list_connectors(expand="info")["orders"]["info"]["type"] == "sink"
    assert connect.get_connector("orders")["config"]["source.topic"] == "orders"
    assert connect.get_connector_status("orders")["tasks"][0]["id"] == 0
    assert connect.update_connector("orders", {**CONFIG, "where": "id > 1"})["config"]["where"] == "id > 1"
    assert connect.get_connector_config("orders")["where"] == "id > 1"
    connect.pause_connector("orders")
    assert connect.get_connector_status("orders")["connector"]["state"] == "PAUSED"
    connect.resume_connector("orders")
    connect.restart_connector("orders")
    connect.restart_connector("orders", include_tasks=True)
    assert connect.list_connector_tasks("orders")[0]["id"] == {"connector": "orders", "task": 0}
    assert connect.get_connector_task_status("orders", 0)["state"] == "UNASSIGNED"
    connect.restart_connector_task("orders", 0)
    assert connect.list_connector_topics("orders") == {"orders": {"topics": []}}
    connect.reset_connector_topics("orders")
    assert connect.validate_connector_config("kpipe", {**CONFIG, "name": "orders"})["error_count"] == 0
    assert "kpipe" in {plugin["class"] for plugin in connect.list_connector_plugins()}
    connect.stop_connector("orders")
    assert connect.get_connector_status("orders")["connector"]["state"] == "STOPPED"
    connect.delete_connector("orders")
    assert connect.list_connectors() == []
    with pytest.raises(HTTPError, match="401"):
        KafkaConnect(guarded.url).list_connectors()


def test_its_command_line_does_too(guarded: Client, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"name": "orders", "config": CONFIG}))
    environment = {**os.environ, "KAFKA_CONNECT_URL": guarded.url, "KAFKA_CONNECT_BASIC_AUTH": f"kpipe:{TOKEN}"}

    def kc(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "kc"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kc("create", "--config-file", str(file))
    assert json.loads(kc("list")) == ["orders"]
    kc("pause", "orders")
    assert json.loads(kc("status", "orders"))["connector"]["state"] == "PAUSED"
    kc("delete", "orders")
    assert json.loads(kc("list")) == []
