"""Lineage by OpenLineage: each event validates against the published schemas, and its delivery never harms a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import RecordRejected
from kpipe.expressions.column_lineage import column_lineage
from kpipe.ingest.loop import Ingest
from kpipe_assets.runs.runner import Run
from kpipe_assets.telemetry import lineage
from kpipe_assets.telemetry.lineage_datasets import table_dataset
from resources.home import Home
from tests.cases import each_case
from tests.kpipe_assets.fakes import World
from tests.kpipe_assets.telemetry.senders import discard
from tests.patience import looks
from tests.receiver import Receiver

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = [json.loads(file.read_text()) for file in sorted(Path(__file__).with_name("openlineage").glob("*.json"))]
OWN = json.loads((ROOT / "docs" / "openlineage-facets.schema.json").read_text())
SECRET = "hunter2"


def fresh() -> None:
    """Begin with another client and thread, as another process does. What waits is dropped."""
    discard(lineage.sender())
    lineage.sender.cache_clear()
    lineage._client.cache_clear()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An OpenLineage server, configured as everywhere. The sender's thread belongs to this test."""
    server = Receiver()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", SECRET)
    fresh()
    yield server
    server.stop()
    fresh()


def run(world: World, **options: Any) -> Run:
    loop = Ingest(world.pipeline, world.topics, world.stager, world.destination, wait=lambda _: None, **options)
    return Run(world.home, loop)


def sent(receiver: Receiver) -> list[dict[str, Any]]:
    lineage.sender().finish(300)
    return [one.json for one in receiver.got if one.took]


def validated(event: dict[str, Any]) -> None:
    """Validate the event, and each of its facets against the schema that it names."""
    registry = jsonschema_rs.Registry([(schema["$id"], schema) for schema in [*SCHEMAS, OWN]])

    def check(value: Any, reference: str) -> None:
        jsonschema_rs.validator_for({"$ref": reference}, registry=registry, validate_formats=True).validate(value)

    check(event, event["schemaURL"])
    check(event, "https://openlineage.io/spec/2-0-2/OpenLineage.json")
    tags = event["run"]["facets"].pop("tags")  # of the client library: its version
    check(tags, tags["_schemaURL"])
    facets = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
    for dataset in (*event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            facets += dataset.get(kind, {}).values()
    for facet in facets:
        assert facet["_producer"] == event["producer"]
        check(facet, facet["_schemaURL"])


def test_a_run_from_start_to_complete(world: World, receiver: Receiver) -> None:
    before = dict(os.environ)
    (committed,) = run(world).batches()
    events = sent(receiver)
    for event in events:
        validated(event)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert {event["run"]["runId"] for event in events} == {events[0]["run"]["runId"]}
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("kpipe", "tweets")}
    last = events[-1]
    (source,), (table,) = last["inputs"], last["outputs"]
    assert (source["namespace"], source["name"]) == ("kafka://b:9092", "tweets")
    assert source["inputFacets"]["kpipe_offsets"]["partitions"] == [
        {"partition": number, "ranges": [{"start": 0, "end": 4}]} for number in range(3)
    ]
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 12
    assert table["namespace"] == f"duckdb://{world.home.data}/kpipe.duckdb" and table["name"] == "kpipe.main.tweets"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 12
    assert {field["name"]: field["type"] for field in table["facets"]["schema"]["fields"]} == {
        "id": "BIGINT", "_kafka_partition": "INTEGER", "_kafka_offset": "BIGINT", "_kafka_timestamp": "TIMESTAMP WITH TIME ZONE",
    }  # fmt: skip
    fields = table["facets"]["columnLineage"]["fields"]
    assert fields["id"]["inputFields"] == [
        {"namespace": "kafka://b:9092", "name": "tweets", "field": "value.id",
         "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}]}
    ]  # fmt: skip
    assert fields["_kafka_offset"]["inputFields"][0]["field"] == "offset"
    batches = last["run"]["facets"]["kpipe_batches"]
    assert (batches["batches"], batches["lastBatch"], batches["lastCommit"]) == (1, committed.commit.id, committed.seq)
    assert receiver.got[0].headers["authorization"] == f"Bearer {SECRET}"
    assert all(SECRET not in json.dumps(event) for event in events)
    assert dict(os.environ) == before, "other threads read the environment"


def test_a_run_in_dagster_has_dagsters_run_id(world: World, receiver: Receiver) -> None:
    result = world.run()
    assert result.success
    assert {event["run"]["runId"] for event in sent(receiver)} == {result.run_id}


def test_a_run_that_fails_quotes_no_record(world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RecordRejected(f"tweets/0 offset 3: not a number: {SECRET}", "fix the producer")

    monkeypatch.setattr(world.stager, "stage", fails)
    with pytest.raises(RecordRejected):
        list(run(world).passes())
    events = sent(receiver)
    for event in events:
        validated(event)
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    assert events[-1]["run"]["facets"]["errorMessage"]["message"] == "RecordRejected: see kpipe logs tweets"
    assert SECRET not in json.dumps(events)


def test_an_interrupted_run_is_aborted_and_a_closed_one_complete(world: World, receiver: Receiver) -> None:
    passes = run(world).passes(follow=True)
    next(passes)
    with pytest.raises(KeyboardInterrupt):
        passes.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    passes = run(world).passes(follow=True)
    next(passes)
    passes.close()  # type: ignore[attr-defined]
    events = sent(receiver)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "ABORT", "START", "COMPLETE"]
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in events} == {"STREAMING"}
    for event in events:
        validated(event)


def test_a_continuous_run_joins_its_ranges(world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "_RUNNING_EVERY_S", 0)
    passes = run(world).passes(follow=True)
    next(passes)
    for number in range(3):
        world.topics.produce(0, {"id": 100 + number})
        while (result := next(passes)) is None or not hasattr(result, "commit"):
            pass
    passes.close()  # type: ignore[attr-defined]
    ranges = [event["inputs"][0].get("inputFacets", {}).get("kpipe_offsets") for event in sent(receiver)]
    assert [part["partitions"][0]["ranges"] for part in ranges if part] == [[{"start": 0, "end": end}] for end in (4, 5, 6, 7, 7)]


@pytest.mark.parametrize("fault", ["500", "reset", "hang"])
def test_a_server_that_fails_costs_no_row_and_is_reported_once(
    fault: str, world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.fault = lambda _: fault
    url = os.environ["OPENLINEAGE_URL"]
    config = json.dumps({"type": "http", "url": url, "timeout": 0.2, "retry": {"total": 0}})
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", config)
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    lineage.sender().finish(300)
    assert any(receiver.got for _ in looks(300)), "a client in a hurry has gone by then"
    err = capsys.readouterr().err
    assert err.count("lineage is not delivered") == 1 and SECRET not in err


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits for a receiver that hangs, whatever a busy machine does meanwhile."""
    config = {"type": "http", "url": os.environ["OPENLINEAGE_URL"], "timeout": 600, "retry": {"total": 0}}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(config))


def test_a_run_does_not_wait_for_a_server_that_hangs(world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
    receiver.fault = lambda _: "hang"
    done = [committed.seq for committed in run(world).batches()]
    assert done, "the run has ended while the first event waits for its answer"
    assert lineage.sender()._waiting.unfinished_tasks == 3


def test_a_full_queue_drops_events_and_is_reported_once(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_patient(monkeypatch)
    receiver.fault = lambda _: "hang"
    monkeypatch.setattr(lineage.sender()._waiting, "maxsize", 1)
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    assert capsys.readouterr().err.count("lineage is not delivered: 1 deliveries wait already") == 1


def test_lineage_is_off_by_default_and_by_its_switch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.home.path)
    monkeypatch.setenv("HOME", str(world.home.path))
    assert not lineage.is_configured()
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    assert lineage.is_configured()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not lineage.is_configured()


def test_a_missing_library_is_reported_with_its_extra(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lineage, "find_spec", lambda _: None)
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    lineage.sender().finish(300)
    assert capsys.readouterr().err.count("pip install 'kpipe[openlineage]'") == 1 and not receiver.got


def test_nothing_is_imported_where_lineage_is_off() -> None:
    code = "import sys, kpipe_assets.runs.runner; print({'openlineage', 'opentelemetry'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_a_configuration_in_a_file_is_used_unless_others_can_write_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, events = tmp_path / "project", tmp_path / "events.jsonl"
    folder.mkdir(mode=0o700)
    (folder / "openlineage.yml").write_text(f"transport: {{type: file, log_file_path: {events}, append: true}}\n")
    monkeypatch.chdir(folder)
    fresh()
    list(run(world).batches())
    lineage.sender().finish(300)
    assert [json.loads(line)["eventType"] for line in events.read_text().splitlines()] == ["START", "RUNNING", "COMPLETE"]
    folder.chmod(0o777)
    fresh()
    world.topics.produce(0, {"id": 1})
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 1
    lineage.sender().finish(300)
    fresh()
    assert len(events.read_text().splitlines()) == 3
    assert "lineage is off" in capsys.readouterr().err


def test_the_last_events_are_sent_when_a_process_ends(receiver: Receiver, tmp_path: Path) -> None:
    receiver.pause = 0.2
    code = """
import sys
from pathlib import Path
from kpipe_assets.telemetry.observers import observed
from resources.home import Home
from tests.kpipe_assets.fakes import PIPELINE
from kpipe_assets.telemetry.sender import finish_all
import atexit
atexit.unregister(finish_all)
atexit.register(finish_all, 500)  # as at the end of each process, but on a busy machine
with observed(Home(Path(sys.argv[1])).make(), PIPELINE, "pid-1"):
    pass
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "home")], check=True, cwd=ROOT, timeout=600)
    assert [one.json["eventType"] for one in receiver.got] == ["START", "COMPLETE"]


def _pipeline(into: dict[str, Any], **fields: Any) -> Pipeline:
    into = {"table": "t", **into}
    return Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "topic"}, "into": into, **fields})


@each_case(
    ("into", "expected"),
    [
        ({"database": "/data/x.duckdb"}, ("duckdb:///data/x.duckdb", "x.main.t")),
        ({"type": "postgres", "database": "postgresql://me@db:5433/shop"}, ("postgres://db:5433", "shop.public.t")),
        ({"type": "postgres", "database": "postgresql://me@db,other/shop?options=-csearch_path%3Draw"},
         ("postgres://db:5432", "shop.raw.t")),
        ({"type": "postgres", "database": "host=db port=5433 user=me"}, ("postgres://db:5433", "me.public.t")),
        ({"type": "postgres", "database": "postgresql:///shop?host=/run/postgresql"},
         ("postgres://localhost:5432", "shop.public.t")),
        ({"type": "postgres", "database": "postgresql://me@[::1]/shop"}, ("postgres://[::1]:5432", "shop.public.t")),
        ({"type": "mysql", "database": "mysql://me@db/shop"}, ("mysql://db:3306", "shop.t")),
        ({"type": "delta", "database": "/lake"}, ("file", "/lake/t")),
        ({"type": "parquet", "database": "s3://bucket/some/key"}, ("s3://bucket", "some/key/t")),
        ({"type": "delta", "database": "gs://bucket/key"}, ("gs://bucket", "key/t")),
        ({"type": "delta", "database": "abfss://c@acme.dfs.core.windows.net/key"},
         ("abfss://c@acme.dfs.core.windows.net", "key/t")),
        ({"type": "iceberg", "database": "s3://bucket", "namespace": "raw", "catalog": "https://catalog"},
         ("s3://bucket", "raw/t")),
        ({"type": "kafka", "brokers": "k1:9093,k2:9093", "topic": "out"}, ("kafka://k1:9093", "out")),
        ({"type": "webhook", "url": "https://api.example.com/hook"}, ("https://api.example.com", "/hook")),
        ({"type": "webhook", "credentials": {"url": "{{ env('URL') }}"}}, ("webhook", "t")),
        ({"type": "theirs", "database": f"theirs://me:{SECRET}@db"}, ("theirs", "t")),
    ],
)  # fmt: skip
def test_names_of_tables(into: dict[str, Any], expected: tuple[str, str]) -> None:
    found = table_dataset(_pipeline(into), "t", Home(Path("/home")))
    assert found == expected


@each_case(
    ("fields", "column", "expected"),
    [
        ({}, "id", {"value.id": "IDENTITY"}),
        ({}, "_kafka_topic", {"topic": "IDENTITY"}),
        ({"format": {"mapping": {"a": "user::name::0"}}}, "A", {"value.user.name.0": "IDENTITY"}),
        ({"format": {"mapping": {"a": "%"}}}, "a", {"value": "IDENTITY"}),
        ({"format": {"mapping": {"id": "id", "@n": "name"}}, "set": {"a": "upper(@n) || id"}}, "a",
         {"value.name": "TRANSFORMATION", "value.id": "TRANSFORMATION"}),
        ({"set": {"a": '"Id"'}}, "a", {"value.Id": "IDENTITY"}),
        ({"set": {"a": "1"}}, "a", {}),
        ({"set": {"a": "mysql:CONCAT(id, 'x')"}}, "a", {"value.id": "TRANSFORMATION"}),
        ({"set": {"a": "hour(_kafka_timestamp)"}}, "a", {"timestamp": "TRANSFORMATION"}),
        ({"select": "SELECT id, x + 1 AS a FROM records WHERE y > 3"}, "a", {"value.x": "TRANSFORMATION"}),
        ({"select": "SELECT id, item.sku AS a FROM records, UNNEST(items) AS item"}, "a", {"value.items": "TRANSFORMATION"}),
        ({"lookups": {"c": {"table": "countries", "key": "code"}}, "set": {"a": "c(country).name"}}, "a",
         {"value.country": "JOIN"}),
        ({"format": {"type": "csv", "fields": ["id", "a"]}}, "a", {"value": "IDENTITY"}),
        ({"format": {"type": "raw"}}, "key", {"key": "IDENTITY"}),
        ({"format": {"mapping": {"id": "id"}}, "key_format": {"mapping": {"k": "customer"}}}, "k", {"key.customer": "IDENTITY"}),
        ({"transform": {"program": "/bin/cat"}}, "id", {"value": "TRANSFORMATION"}),
        ({"transform": {"program": "/bin/cat"}}, "_kafka_offset", {"offset": "IDENTITY"}),
    ],
)  # fmt: skip
def test_where_columns_come_from(fields: dict[str, Any], column: str, expected: dict[str, str]) -> None:
    found = column_lineage(_pipeline({}, **fields), [column]).columns[column]
    assert {item.field: item.how for item in found} == expected


def test_conditions_affect_all_rows() -> None:
    found = column_lineage(_pipeline({}, where="y > 3 AND _kafka_partition = 1"), ["id"]).rows
    assert [(item.field, item.how) for item in found] == [("partition", "FILTER"), ("value.y", "FILTER")]
