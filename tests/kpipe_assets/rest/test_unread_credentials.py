"""A check of a definition reads no file and runs no command of `into.credentials`; a run does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Commit
from kpipe.sql.parser import read
from kpipe_assets.rest.configs import masked
from kpipe_assets.statements.execute import Session
from resources.destinations.webhook import WebhookDestination
from tests.kpipe_assets.rest.client import CONFIG, Client
from tests.kpipe_assets.rest.test_sinks import BASE, CONFLUENT, OWN

_INTO: dict[str, dict[str, str]] = {
    "postgres": {"into.database": "postgresql://u@127.0.0.1:1/x", "into.credentials.password": "SECRET"},
    "mysql": {"into.database": "mysql://u@127.0.0.1:1/x", "into.credentials.password": "SECRET"},
    "kafka": {
        "into.brokers": "127.0.0.1:1",
        "into.topic": "copy",
        "into.config.security.protocol": "SASL_SSL",
        "into.config.sasl.mechanism": "PLAIN",
        "into.credentials.sasl.username": "SECRET",
        "into.credentials.sasl.password": "SECRET",
    },
    "parquet": {
        "into.database": "s3://bucket/key",
        "into.credentials.access.key.id": "SECRET",
        "into.credentials.secret.access.key": "SECRET",
    },
    "parquet ": {"into.database": "gs://bucket/key", "into.credentials.service.account.key": "SECRET"},
    "delta": {"into.database": "gs://bucket/key", "into.credentials.service.account.key": "SECRET"},
    "delta ": {"into.database": "abfss://container@account.dfs.core.windows.net/key", "into.credentials.account.key": "SECRET"},
    "iceberg": {
        "into.database": "s3://bucket/key",
        "into.catalog": "https://127.0.0.1:1/",
        "into.credentials.catalog.token": "SECRET",
        "into.credentials.access.key.id": "SECRET",
        "into.credentials.secret.access.key": "SECRET",
    },
    "webhook": {"into.url": "https://127.0.0.1:1/", "into.credentials.signing_secret": "SECRET"},
    "webhook ": {"into.credentials.url": "SECRET", "into.credentials.header.X-Key": "SECRET"},
}


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, Callable[[], bool]]:
    """A reference to a program, and whether the program has run."""
    program, trace = tmp_path / "program", tmp_path / "trace"
    program.write_text(f"#!/bin/sh\n: > {trace}\necho {'0' * 32}\n")
    program.chmod(0o755)
    return f"${{command:{program}}}", trace.exists


def _config(kind: str, secret: str) -> dict[str, Any]:
    given = {key: value.replace("SECRET", secret) for key, value in _INTO[kind].items()}
    return {**CONFIG, "into.type": kind.strip(), **given}


@pytest.mark.parametrize("kind", _INTO)
def test_checks_and_create_run_no_command(api: Client, command: tuple[str, Callable[[], bool]], kind: str) -> None:
    reference, has_run = command
    config = _config(kind, reference)
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", {**config, "name": "orders"}).json
    assert (found["error_count"], has_run()) == (0, False), found
    api.create(**config)
    assert api.ask("PUT", "/connectors/orders/config", {**config, "batch.interval_ms": "50"}).status == 200
    assert api.get("/connectors?expand=status&expand=info")["orders"]["info"]["name"] == "orders"
    assert not has_run()


@pytest.mark.parametrize("kind", _INTO)
def test_nothing_is_read_before_the_first_batch(api: Client, command: tuple[str, Callable[[], bool]], kind: str) -> None:
    """Start, pause, detach and delete; there is no ledger yet that could contain a state."""
    reference, has_run = command
    config = _config(kind, reference)
    for state in ("STOPPED", "RUNNING"):
        api.create(state=state, **config)
        assert api.state() == ("UNASSIGNED" if state == "RUNNING" else "STOPPED")
        assert api.ask("POST", "/connectors/orders/restart").status == 204
        assert api.ask("PUT", "/connectors/orders/pause").status == 202
        assert api.ask("PUT", "/connectors/orders/resume").status == 202
        assert "detached" in _executed(api, "DETACH PIPELINE orders")
        dropped = _executed(api, "DROP PIPELINE orders") if state == "STOPPED" else ""
        assert api.ask("DELETE", "/connectors/orders").status == (404 if dropped else 204)
        assert not has_run()
        if dropped:
            assert dropped == f"pipeline orders dropped; rows, history and ledger stay in {kind.strip()}, table orders"


def test_a_batch_of_a_webhook_that_is_not_finished_is_named_without_its_credentials(
    api: Client, command: tuple[str, Callable[[], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, has_run = command
    api.create(**_config("webhook", reference))
    commit = Commit("b7", "orders", ())
    monkeypatch.setattr(WebhookDestination, "unfinished", lambda _: commit)
    assert "batch b7 is not finished: a new pipeline orders with this ledger" in _executed(api, "DROP PIPELINE orders")
    assert not has_run()


@pytest.mark.parametrize("kind", _INTO)
def test_a_missing_file_is_found_by_the_run_only(api: Client, kind: str) -> None:
    config = _config(kind, "${file:/nonexistent}")
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", {**config, "name": "orders"}).json
    assert found["error_count"] == 0, [item for item in found["configs"] if item["value"]["errors"]]


def test_a_translated_sink_runs_no_command(api: Client, command: tuple[str, Callable[[], bool]]) -> None:
    reference, has_run = command
    config = {**BASE, **OWN[CONFLUENT], "connector.class": CONFLUENT, "connection.password": reference}
    assert api.ask("PUT", "/connector-plugins/JdbcSink/config/validate", config).json["error_count"] == 0
    body = {"name": "orders", "config": config, "initial_state": "STOPPED"}
    assert api.ask("POST", "/connectors", body).status == 201
    assert not has_run()


def test_a_statement_runs_no_command(api: Client, command: tuple[str, Callable[[], bool]]) -> None:
    reference, has_run = command
    options = json.dumps({"into": {"database": "postgresql://u@127.0.0.1:1/x", "credentials": {"password": reference}}})
    create = (
        "CREATE PIPELINE s AS LOAD DATA KAFKA '127.0.0.1:1/orders' SKIP DUPLICATE KEY ERRORS INTO TABLE orders IN postgres"
        f" (id <- id) FORMAT JSON OPTIONS '{options}'"
    )
    assert "were not checked" in _executed(api, create)
    assert "were not checked" in _executed(api, "ALTER PIPELINE s SET BATCH_INTERVAL 60")
    assert not has_run()


def _executed(api: Client, text: str) -> str:
    statement = read(text)
    with Session(api.home) as session:
        (result,) = session.execute(statement)
        return result.message


def test_an_unset_variable_is_named_by_its_field(api: Client) -> None:
    config = {**_config("postgres", "${env:KPIPE_TEST_UNSET}"), "name": "orders"}
    found = api.ask("PUT", "/connector-plugins/kpipe/config/validate", config).json
    wrong = {item["value"]["name"]: item["value"]["errors"] for item in found["configs"] if item["value"]["errors"]}
    assert list(wrong) == ["into.credentials.password"], wrong


def test_a_header_that_may_be_a_secret_is_never_stored_or_shown(api: Client) -> None:
    config = {**CONFIG, "into.type": "webhook", "into.url": "https://h/x", "into.headers.X-Api-Key": "canary"}
    for answer in (
        api.ask("PUT", "/connector-plugins/kpipe/config/validate", {**config, "name": "orders"}),
        api.ask("POST", "/connectors", {"name": "orders", "config": config}),
        api.ask("PUT", "/connectors/orders/config", config),
    ):
        assert "into.credentials.header.X-Api-Key" in answer.text and "canary" not in answer.text
    assert api.get("/connectors") == []
    given = {"source": {"brokers": "b", "topic": "t"}, "into": {"headers": {"X-Api-Key": "canary", "X-A": "1"}}}
    assert masked(given)["into"]["headers"] == {"X-Api-Key": "***", "X-A": "1"}
