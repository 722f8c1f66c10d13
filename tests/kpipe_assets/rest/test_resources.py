"""kpipe's own resources and OpenAPI, without Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe_assets.rest import offsets as positions_api
from kpipe_assets.rest.worker import Worker
from resources.sources import open_source
from tests.kpipe_assets.rest.client import Client


def test_pipelines_in_pages(api: Client) -> None:
    for name in ("a", "b", "c"):
        api.create(name)
    first = api.get("/kpipe/v1/pipelines?limit=2")
    assert ([item["pipeline"] for item in first["pipelines"]], first["next"]) == (["a", "b"], "b")
    assert api.get("/kpipe/v1/pipelines?limit=2&after=b") == {"pipelines": [{"pipeline": "c", "state": "stopped"}]}
    assert api.ask("GET", "/kpipe/v1/pipelines?limit=1001").status == 400
    assert api.get("/kpipe/v1/pipelines/a")["definition"]["source"] == {"brokers": "127.0.0.1:1", "topic": "orders"}


def test_a_pipeline_that_has_read_nothing(api: Client) -> None:
    api.create()
    path = "/kpipe/v1/pipelines/orders"
    assert api.get(f"{path}/batches") == {"batches": []}
    assert api.get(f"{path}/errors?limit=5") == {"errors": []}
    nothing = api.ask("POST", f"{path}/verify")
    assert (nothing.status, nothing.json["error"], "nothing committed yet" in nothing.message) == (400, "InvalidPipeline", True)
    assert api.get("/connectors/orders/offsets") == {"offsets": []}
    for method, rest in (("GET", ""), ("GET", "/batches"), ("POST", "/verify"), ("POST", "/errors/retry"), ("POST", "/plan")):
        assert api.ask(method, f"/kpipe/v1/pipelines/nobody{rest}").message == "pipeline nobody not found"
    for body in ({"partition": "x"}, {"start": 5}, {"start": 5, "end": 5}, {"start": -1, "end": 2}, {"more": 1}):
        assert api.ask("POST", f"{path}/backfill", body).status == 400, body
    for seek in ({}, {"to": "soon"}, {"to": {"a": 1}}, {"to": {"0": -1}}, {"to": {}}, {"to": {"0": 1 << 70}}):
        assert api.ask("POST", f"{path}/seek", seek).status == 400, seek
    assert api.ask("POST", f"{path}/test", {"limit": 0}).status == 400


def test_statements(api: Client) -> None:
    api.create()

    def sql(statement: str, **more: int) -> tuple[int, str]:
        answer = api.ask("POST", "/kpipe/v1/sql", {"statement": statement, **more})
        return answer.status, answer.text

    answer = api.ask("POST", "/kpipe/v1/sql", {"statement": "SHOW PIPELINES"})
    assert answer.json == {"message": "", "columns": ["pipeline", "state"], "rows": [["orders", "stopped"]]}
    many = api.ask("POST", "/kpipe/v1/sql", {"statement": "SELECT range AS n, 'ü' AS t FROM range(5000)", "limit": 2})
    assert many.json == {"message": "", "columns": ["n", "t"], "rows": [[0, "ü"], [1, "ü"]], "truncated": True}
    large = api.ask("POST", "/kpipe/v1/sql", {"statement": "SELECT repeat('x', 7000000) FROM range(6)"})
    assert len(large.json["rows"]) == 2 and large.json["truncated"] is True, "16 MiB at most"
    assert "the first row of the result is too large" in sql("SELECT repeat('x', 20000000)")[1]
    odd = api.ask("POST", "/kpipe/v1/sql", {"statement": "SELECT 'NaN'::DOUBLE AS a, '\\xFF'::BLOB AS b, DATE '2026-01-01' AS c"})
    assert odd.json["rows"] == [[None, {"hex": "ff"}, "2026-01-01"]]
    assert sql("START PIPELINE orders")[0] == 200
    assert api.state() == "UNASSIGNED"
    assert list(api.home.state.glob("orders.connector*"))
    assert sql("DROP PIPELINE orders")[0] == 200
    assert not list(api.home.state.glob("orders.connector*")), "it goes with its pipeline"
    assert api.get("/connectors") == []
    for statement, words in (
        ("SELEC 1", "line 1"),
        ("EXTRACT PIPELINE orders INTO OUTFILE '/tmp/x'", "on the server"),
        ("START PIPELINE orders FOREGROUND", "in the server"),
        ("START PIPELINE orders", "no pipeline"),
        ("SELECT 1; SELECT 2", "expected one statement"),
        ("SELECT * FROM '/etc/passwd'", ""),
        ("", ""),
    ):
        status, text = sql(statement)
        assert status == 400 and words in text, (statement, text)


def test_openapi_describes_what_is_served(api: Client) -> None:
    schema = api.get("/openapi.json")
    assert schema["openapi"].startswith("3.1")
    paths = schema["paths"]
    assert {"get", "post"} == paths["/connectors"].keys()
    assert {"get", "patch", "delete"} == paths["/connectors/{connector}/offsets"].keys()
    assert {"get", "put", "patch"} == paths["/connectors/{connector}/config"].keys()
    assert all(operation["summary"] for item in paths.values() for operation in item.values())
    assert api.ask("GET", "/docs").status == 404, "its page would load code from another host"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Partitions / offsets need to be provided"),
        ({"offsets": []}, "Partitions / offsets need to be provided"),
        ({"offsets": [{"offset": {"kafka_offset": 1}}]}, "cannot be null or missing"),
        ({"offsets": [{"partition": {"kafka_topic": "orders"}}]}, "must contain the keys 'kafka_topic' and 'kafka_partition'"),
        ({"offsets": [{"partition": {"kafka_topic": None, "kafka_partition": 0}}]}, "topic names must be valid strings"),
        ({"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": None}}]}, "partitions must be valid numbers"),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 1.5}}]},
            "Kafka partition value in the provided offsets: '1.5'",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": "0"}, "offset": {}}]},
            "either be null or contain the key",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": "x"}}]},
            "offset value",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": -1}}]},
            "offset value",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "other", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]},
            "is not read",
        ),
    ],
)
def test_wrong_offsets_are_named_in_the_words_of_connect(api: Client, body: object, words: str) -> None:
    api.create()
    answer = api.ask("PATCH", "/connectors/orders/offsets", body)
    assert (answer.status, words in answer.message) == (400, True), answer


@pytest.mark.parametrize("fields", [{"source.topics": "a,b"}, {"source.topics": "a"}, {"source.topic_pattern": "a|b"}])
def test_offsets_are_reset_after_a_topic_was_removed(
    api: Client, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    """The ledger keeps the positions of topics and partitions that the pipeline does not read any more."""
    api.create(**{"source.topic": None, **fields})
    ids = {name: PartitionId(TopicId("c", name, name), 0) for name in "abc"}
    positions = {**dict.fromkeys(ids.values(), 9), PartitionId(ids["a"].topic, 7): 9}
    read = [ids[name] for name in "ab" if fields != {"source.topics": "a"} or name == "a"]
    snapshot = TopicSnapshot({source: PartitionState(3, 9, 9) for source in read})
    ledger = SimpleNamespace(positions=lambda: positions)
    executed: list[Any] = []
    monkeypatch.setattr(positions_api, "open_destination", lambda *_: SimpleNamespace(ledger=lambda: (0, ledger)))
    monkeypatch.setattr(open_source, "topics_of", lambda _: SimpleNamespace(snapshot=lambda: snapshot))
    monkeypatch.setattr(Worker, "execute", lambda _, statement: executed.append(statement))
    answer = api.ask("DELETE", "/connectors/orders/offsets")
    assert answer.status == 200, answer
    ((setting,),) = [statement.changes for statement in executed]
    assert setting.to == ({0: 3} if len(read) == 1 else {"a:0": 3, "b:0": 3})
    missing = {"offsets": [{"partition": {"kafka_topic": "a", "kafka_partition": 7}, "offset": None}]}
    assert "partition 7 of topic a does not exist" in api.ask("PATCH", "/connectors/orders/offsets", missing).message


def test_offsets_are_changed_only_when_stopped(api: Client) -> None:
    api.create(state="PAUSED")
    body = {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]}
    for method in ("PATCH", "DELETE"):
        answer = api.ask(method, "/connectors/orders/offsets", body if method == "PATCH" else None)
        assert answer.status == 400
        assert answer.message == (
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
            "connector by issuing a 'PUT' request to the '/connectors/orders/stop' endpoint"
        )
    assert api.ask("PATCH", "/connectors/nobody/offsets", body).message == "Connector nobody not found"
