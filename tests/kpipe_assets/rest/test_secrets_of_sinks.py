"""Literal secrets in configs of Connect's sinks: rejected, and in no response; references are stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kpipe_assets.rest.definitions import Parsed, parse
from kpipe_assets.rest.worker import Worker
from resources.home import Home
from tests.kpipe_assets.rest.test_sinks import BASE, CONFLUENT, DEBEZIUM, HTTP, ICEBERG, OWN, S3

SECRETS = ("SEKRET", "dTpTRUtSRVQ=")
BASIC = {"auth.type": "basic", "connection.user": "u"}


def parsed(tmp_path: Path, kind: str, config: dict[str, str]) -> Parsed:
    return parse(Worker(Home.at(tmp_path)), "orders", {**BASE, **OWN[kind], "connector.class": kind, **config})


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (CONFLUENT, {"connection.password": "SEKRET"}),
        (CONFLUENT, {"connection.password": "SEKRET${env:X}"}),
        (CONFLUENT, {"connection.password": "${env:X:-SEKRET}"}),
        (CONFLUENT, {"connection.password": "${env:X:SEKRET}"}),
        (DEBEZIUM, {"connection.password": "{{ env('X', 'SEKRET') }}"}),
        (CONFLUENT, {"connection.url": "jdbc:postgresql://h/d?user=x&password=SEKRET"}),
        (CONFLUENT, {"connection.url": "jdbc:postgresql://u:SEKRET@h/d"}),
        (CONFLUENT, {"consumer.override.sasl.jaas.config": 'x required password="SEKRET";'}),
        (CONFLUENT, {"consumer.override.sasl.password": "SEKRET"}),
        (CONFLUENT, {"value.converter.basic.auth.user.info": "u:SEKRET"}),
        (CONFLUENT, {"value.converter.schema.registry.url": "https://u:SEKRET@r"}),
        (CONFLUENT, {"key.converter.schema.registry.url": "https://u:SEKRET@r"}),
        (CONFLUENT, {"header.converter": "Bearer SEKRET"}),
        (ICEBERG, {"iceberg.catalog.token": "Bearer SEKRET"}),
        (ICEBERG, {"iceberg.catalog.uri": "https://u:SEKRET@c/"}),
        (S3, {"aws.secret.access.key": "SEKRET"}),
        (HTTP, {**BASIC, "connection.password": "SEKRET"}),
        *(
            (HTTP, {"headers": text})
            for text in (
                "X-A:1,Authorization:SEKRET", "X-A:1|X-Pass:SEKRET", "X-A:Bearer SEKRET", "X-A:Basic dTpTRUtSRVQ=",
                "Cookie:sid=SEKRET;b=${env:HOME}", "Cookie:${env:X:-SEKRET}", "X-A:${env:X:SEKRET}",
                "X-Key:{{ env('X', 'SEKRET') }}",
            )
        ),
        (HTTP, {"headers": "X-A:1,Api-Key:SEKRET", "header.separator": ","}),
        *(
            (HTTP, {"http.api.url": text})
            for text in ("https://h/x?token=SEKRET", "https://h/x?a=1&sig=SEKRET", "https://u:SEKRET@h/", "https://SEKRET@h/")
        ),
    ],
)  # fmt: skip
def test_a_literal_is_rejected_and_repeated_nowhere(tmp_path: Path, kind: str, config: dict[str, str]) -> None:
    found = parsed(tmp_path, kind, config)
    assert set(found.errors) & set(config) and found.pipeline is None, found.errors
    shown = json.dumps(found.errors) + json.dumps(dict(found.config))
    assert not any(secret in shown for secret in SECRETS), shown


@pytest.mark.parametrize("value", ["${env:X}", "Bearer ${file:/run/token}", "${env:U}:${env:P}"])
def test_references_of_headers_are_credentials(tmp_path: Path, value: str) -> None:
    config = {"headers": f"X-A:{value}|X-Pass:{value}|X-B:2", **BASIC, "connection.password": "${command:/bin/get x}"}
    found = parsed(tmp_path, HTTP, config)
    assert found.pipeline is not None, found.errors
    assert {*found.pipeline.into.credentials} == {"header.X-A", "header.X-Pass", "username", "password"}
    assert found.pipeline.into.headers == {"X-B": "2"}
    shown = {**found.config, "connection.user": "u"}
    assert found.config["connection.user"] == "***" and {key: shown[key] for key in config} == config
