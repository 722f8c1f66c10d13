"""Positions over REST with a real Kafka: seek, plan, test, load, verify, read again on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kpipe_assets.rest import app as application
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.rest.client import Client, serving


def config(brokers: str, topic: str) -> dict[str, str]:
    fields = {"source.brokers": brokers, "topics": topic, "columns.id": "BIGINT", "into.table": "orders"}
    return {"connector.class": "kpipe", **fields}


def offsets(api: Client) -> dict[int, int]:
    found = api.get("/connectors/orders/offsets")["offsets"]
    return {item["partition"]["kafka_partition"]: item["offset"]["kafka_offset"] for item in found}


def entry(topic: str, partition: Any, offset: Any) -> dict[str, Any]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": offset}


@pytest.mark.broker
@pytest.mark.spark
def test_a_connector_from_creation_to_proof(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_ANSWER_S", 300.0)  # brokers on a busy machine
    name = topic(2)
    for partition in range(2):
        write(name, [json.dumps({"id": 10 * partition + at}) for at in range(10)], partition)
    with serving(Home.at(kpipe.home).make()) as api:
        created = {"name": "orders", "config": config(kpipe.brokers, name), "initial_state": "STOPPED"}
        assert api.ask("POST", "/connectors", created).status == 201
        path = "/kpipe/v1/pipelines/orders"
        cluster = api.get("/")["kafka_cluster_id"]
        assert len(cluster) == 22, "from the brokers, as there is no commit"
        assert api.ask("POST", f"{path}/plan").json["ranges"] == [
            {"partition": "0", "start": 0, "end": 10},
            {"partition": "1", "start": 0, "end": 10},
        ]
        tested = api.ask("POST", f"{path}/test", {"limit": 2}).json
        assert len(tested["rows"]) == 4 and "nothing was written" in tested["message"]

        moved = api.ask("PATCH", "/connectors/orders/offsets", {"offsets": [entry(name, "0", {"kafka_offset": "4"})]})
        assert (moved.status, moved.json) == (
            200,
            {"message": "The offsets for this connector have been altered successfully"},
        ), moved
        assert offsets(api) == {0: 4, 1: 0}
        beyond = api.ask("PATCH", "/connectors/orders/offsets", {"offsets": [entry(name, 0, {"kafka_offset": 99})]})
        assert (beyond.status, "has no offset 99" in beyond.message) == (400, True)
        missing = api.ask("PATCH", "/connectors/orders/offsets", {"offsets": [entry(name, 7, {"kafka_offset": 1})]})
        assert missing.status == 400, missing
        assert api.ask("PATCH", "/connectors/orders/offsets", {"offsets": [entry(name, 0, None)]}).status == 200
        assert offsets(api) == {0: 0, 1: 0}, "null: as a new pipeline would begin"
        assert api.ask("PATCH", "/connectors/orders/offsets", {"offsets": [entry(name, 0, {"kafka_offset": 4})]}).status == 200

        kpipe("run", "orders")
        assert offsets(api) == {0: 10, 1: 10}
        assert api.get("/connectors/orders/topics") == {"orders": {"topics": [name]}}
        assert api.ask("PUT", "/connectors/orders/topics/reset").status == 202
        assert api.get("/connectors/orders/topics") == {"orders": {"topics": []}}
        proof = api.ask("POST", f"{path}/verify").json
        assert (proof["ok"], proof["rows"], proof["skipped"]) == (True, 16, [f"{name}/0 [0, 4)"])
        assert api.get("/")["kafka_cluster_id"] == cluster
        assert api.get(f"{path}/batches")["batches"][0]["rows_inserted"] == 16
        assert api.get(f"{path}/status")["lag"] == 0

        filled = api.ask("POST", f"{path}/backfill", {"partition": "0"})
        assert (filled.status, "backfill" in filled.json["message"]) == (200, True)
        kpipe("run", "orders")
        assert api.ask("POST", f"{path}/verify").json["rows"] == 20

        for method, body in (("PATCH", {"offsets": [entry(name, 1, {"kafka_offset": 5})]}), ("DELETE", None)):
            refused = api.ask(method, "/connectors/orders/offsets", body)
            assert (refused.status, "?reread=true" in refused.message) == (400, True), refused
        assert offsets(api) == {0: 10, 1: 10}
        again = api.ask("PATCH", "/connectors/orders/offsets?reread=true", {"offsets": [entry(name, 1, {"kafka_offset": 5})]})
        assert again.status == 200, again
        kinds = api.ask("POST", "/kpipe/v1/sql", {"statement": "SELECT kind FROM kpipe_commits ORDER BY seq"}).json["rows"]
        assert ["jump"] in kinds and ["reread"] in kinds, "the ledger records every decision"
        assert api.ask("DELETE", "/connectors/orders/offsets?reread=true").json == {
            "message": "The offsets for this connector have been reset successfully"
        }
        assert offsets(api) == {0: 0, 1: 0}
        assert api.ask("DELETE", "/connectors/orders").status == 204
