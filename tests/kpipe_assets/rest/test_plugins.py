"""Connector classes: their keys, and Connect's validation of a config."""

from __future__ import annotations

import pytest

from kpipe_assets.rest.sinks import SINKS
from tests.kpipe_assets.rest.client import CONFIG, Client
from tests.kpipe_assets.rest.test_sinks import BASE, CONFLUENT, HTTP, OWN


def test_the_classes(api: Client) -> None:
    found = api.get("/connector-plugins")
    assert found[0] == {"class": "kpipe", "type": "sink", "version": "0.1.0"}
    assert {plugin["class"] for plugin in found} == {"kpipe", *SINKS}
    assert api.get("/connector-plugins?connectorsOnly=false") == found


def test_the_keys_of_a_definition(api: Client) -> None:
    keys = {key["name"]: key for key in api.get("/connector-plugins/kpipe/config")}
    assert keys["source.brokers"]["required"]
    assert (keys["batch.interval_ms"]["type"], keys["batch.interval_ms"]["default_value"]) == ("LONG", "2500")
    assert keys["source.credentials"]["type"] == keys["into.credentials"]["type"] == "PASSWORD"
    assert keys["source.topics"]["type"] == "LIST"
    assert not {key for key in keys if key.startswith(("also.", "lookups."))}, "their keys have a name or a number in between"
    assert keys["batch.exponential"]["type"] == "BOOLEAN"
    assert keys["source.topic"]["documentation"] == "name of a topic."
    expected = {"name", "type", "required", "default_value", "importance", "documentation", "group", "width", "display_name",
                "dependents", "order"}  # fmt: skip
    assert all(key.keys() == expected for key in keys.values())
    for plugin in ("JdbcSink", "JdbcSinkConnector", CONFLUENT):
        assert "connection.url" in {key["name"] for key in api.get(f"/connector-plugins/{plugin}/config")}
    assert api.ask("GET", "/connector-plugins/nothing/config").status == 404


def test_a_valid_config(api: Client) -> None:
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", {**CONFIG, "name": "orders"}).json
    assert (found["name"], found["error_count"]) == ("kpipe", 0), found
    values = {item["value"]["name"]: item["value"] for item in found["configs"]}
    assert values["source.topic"] == {
        "name": "source.topic",
        "value": "orders",
        "recommended_values": [],
        "errors": [],
        "visible": True,
    }
    assert values["columns.id"]["value"] == "BIGINT"
    assert all(item["definition"]["name"] == item["value"]["name"] for item in found["configs"])
    assert api.get("/connectors") == []


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"batch.interval_ms": "x"}, "batch.interval_ms"),
        ({"where": "id >"}, "where"),
        ({"set.a": "nothing(1"}, "set.a"),
        ({"columns.id": "NUMBERISH"}, "columns"),
        ({"sourc.x": "1"}, "sourc.x"),
        ({"source.credentials.sasl.password": "secret"}, "source.credentials.sasl.password"),
    ],
)
def test_an_error_is_at_its_key(api: Client, config: dict[str, str], key: str) -> None:
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", {**CONFIG, "name": "orders", **config}).json
    wrong = {item["value"]["name"]: item["value"]["errors"] for item in found["configs"] if item["value"]["errors"]}
    assert any(name.startswith(key) for name in wrong), wrong
    assert found["error_count"] == 1
    assert "secret" not in str(wrong).replace("is a secret", "")


def test_a_sinks_config(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "x")
    config = {"connector.class": CONFLUENT, **BASE, **OWN[CONFLUENT]}
    path = "/connector-plugins/io.confluent.connect.jdbc.JdbcSinkConnector/config/validate"
    assert api.ask("PUT", path, {**config, "connector.class": "JdbcSinkConnector"}).json["error_count"] == 0
    found = api.ask("PUT", path, {**config, "transforms": "a", "pk.mode": "record_key"}).json
    wrong = {item["value"]["name"] for item in found["configs"] if item["value"]["errors"]}
    assert (wrong, found["error_count"]) == ({"transforms", "pk.mode"}, 2)
    other = api.ask("PUT", "/connector-plugins/kpipe/config/validate", config)
    assert other.message == f"Included connector type {CONFLUENT} does not match request type kpipe"


def test_a_sinks_config_makes_a_connector(api: Client) -> None:
    config = {"connector.class": "io.confluent.connect.http.HttpSinkConnector", **BASE, **OWN[HTTP]}
    answer = api.ask("POST", "/connectors", {"name": "orders", "config": config, "initial_state": "STOPPED"})
    assert answer.status == 201, answer
    assert api.get("/connectors/orders/config") == config
    assert api.home.pipeline("orders").into.url == "https://h/orders"
