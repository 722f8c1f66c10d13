"""Connector classes: their keys, and Connect's validation of a config."""

from __future__ import annotations

import pytest

from kpipe.errors import SchemaConflict
from kpipe_assets.rest.definitions import Parsed
from kpipe_assets.rest.problems import body_of
from kpipe_assets.rest.sinks import SINKS
from kpipe_assets.rest.translation import translate
from tests.kpipe_assets.rest.client import CONFIG, Client
from tests.kpipe_assets.rest.test_sinks import BASE, CONFLUENT, HTTP, OWN, S3


def test_the_classes(api: Client) -> None:
    found = api.get("/connector-plugins")
    assert found[0] == {"class": "kpipe", "type": "sink", "version": "0.1.0"}
    assert {plugin["class"] for plugin in found} == {"kpipe", *SINKS}
    assert api.get("/connector-plugins?connectorsOnly=false") == found


def test_the_keys_of_a_definition(api: Client) -> None:
    keys = {key["name"]: key for key in api.get("/connector-plugins/kpipe/config")}
    assert keys["source.brokers"]["importance"] == "MEDIUM", "files and tables as a source have no brokers"
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


@pytest.mark.parametrize(
    ("kind", "config", "keys"),
    [
        ("kpipe", {"batch.interval_ms": "x", "sourc.x": "1", "into.credentials.password": "canary"}, None),
        (CONFLUENT, {"connection.password": "canary", "batch.size": "0", "transforms": "a"}, None),
        (CONFLUENT, {"batch.size": "0"}, None),
        (S3, {"s3.bucket.name": "A bucket"}, None),
        (S3, {"s3.bucket.name": "A bucket", "flush.size": "0"}, {"flush.size"}),
    ],
)
def test_every_error_is_at_the_key_that_was_sent(api: Client, kind: str, config: dict[str, str], keys: set[str] | None) -> None:
    base = {**CONFIG, "name": "orders"} if kind == "kpipe" else {**BASE, **OWN[kind], "connector.class": kind}
    found = api.ask("PUT", f"/connector-plugins/{kind}/config/validate", {**base, **config}).json
    wrong = {item["value"]["name"]: item["value"]["errors"] for item in found["configs"] if item["value"]["errors"]}
    assert set(wrong) == (keys or set(config)), wrong
    assert found["error_count"] == len(wrong)
    assert all(key in message for key, messages in wrong.items() for message in messages), wrong
    assert "canary" not in str(wrong)


def test_a_user_name_is_no_secret(api: Client) -> None:
    config = {"connector.class": HTTP, **BASE, **OWN[HTTP], "auth.type": "basic", "connection.user": "u"}
    path = f"/connector-plugins/{HTTP}/config/validate"
    found = api.ask("PUT", path, {**config, "connection.password": "${env:HOME}"}).json
    assert found["error_count"] == 0, [item["value"]["errors"] for item in found["configs"] if item["value"]["errors"]]


def test_an_error_of_the_table_is_at_the_key_that_was_sent() -> None:
    draft = translate(SINKS[CONFLUENT], {**BASE, **OWN[CONFLUENT], "pk.mode": "record_value", "pk.fields": "id"})
    parsed = Parsed({}, keys=draft.keys)
    for field, key in ((("into", "key"), "pk.fields"), (("into", "table"), "topics"), (("columns",), "connector.class")):
        assert body_of(parsed.at_its_key(SchemaConflict("x").about(*field)))["field"] == key


def test_validate_expects_the_config_itself(api: Client) -> None:
    answer = api.ask("PUT", "/connector-plugins/kpipe/config/validate", {"name": "orders", "config": CONFIG})
    assert answer.status == 400
    assert "send the inner object" in answer.message


def test_a_wait_has_a_limit(api: Client) -> None:
    config = {**CONFIG, "name": "orders", "batch.interval_ms": "9" * 26}
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", config).json
    wrong = {item["value"]["name"]: item["value"]["errors"] for item in found["configs"] if item["value"]["errors"]}
    assert list(wrong) == ["batch.interval_ms"] and "less than or equal" in str(wrong)


def test_head_is_answered_as_get_without_a_body(api: Client) -> None:
    api.create()
    paths = [path for path, item in api.get("/openapi.json")["paths"].items() if "get" in item]
    assert len(paths) > 15
    filled = [path.format(connector="orders", name="orders", task="0", plugin="kpipe", logger="root") for path in paths]
    for path in [*filled, "/connectors/nobody", "/nothing", "/connectors/orders/"]:
        head, get = api.ask("HEAD", path), api.ask("GET", path)
        assert (head.status, head.text) == (get.status, ""), path
        assert head.headers["content-type"] == get.headers["content-type"], path
    assert api.ask("HEAD", "/kpipe/v1/sql").status == 405


def test_the_description_documents_the_errors_that_are_sent(api: Client) -> None:
    found = api.get("/openapi.json")
    operations = [operation for item in found["paths"].values() for operation in item.values()]
    assert all({"400", "401", "403"} <= operation["responses"].keys() for operation in operations)
    assert "HTTPValidationError" not in str(found)
    responses = found["paths"]["/connectors/{connector}"]["get"]["responses"]
    assert responses["404"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
    body = found["paths"]["/connectors/{connector}/offsets"]["patch"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["offsets"]["items"]["required"] == ["partition", "offset"]
