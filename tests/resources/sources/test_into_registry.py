"""Files into a topic in the formats of a schema registry."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format, message_factory

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline
from resources.decode.protobuf.descriptors import Files
from resources.destinations import open_destination
from resources.home import Home
from resources.schema_registry.client import Registry
from tests.registry import LocalRegistry, register
from tests.resources.destinations.kafka_place import read_all
from tests.resources.sources.runs import kill
from tests.resources.sources.test_into_kafka import bench

_ACCESS = {"schema.registry.username": "u", "schema.registry.password": "{{ env('REGISTRY_SECRET') }}"}


def records(url: str, brokers: str, topic: str) -> list[Any]:
    """The values of a topic, read with the schemas that their ids name; those in Protobuf by Confluent's deserializer."""
    registry, found = Registry(url), []
    for message in read_all(brokers, topic):
        value = message.value()
        assert value[0] == 0
        schema = registry.schema(int.from_bytes(value[1:5], "big"))
        if schema.kind == "JSON":
            found.append(json.loads(value[5:]))
        elif schema.kind == "PROTOBUF":
            made = message_factory.GetMessageClass(Files(schema.text, schema.references, alone=False).named(None))
            read = ProtobufDeserializer(made, {"use.deprecated.format": False})
            row = read(value, SerializationContext(topic, MessageField.VALUE))
            found.append(json_format.MessageToDict(row, preserving_proto_field_name=True))
            found[-1]["id"] = int(found[-1]["id"])  # JSON has 64-bit integers as text
        else:
            text = fastavro.parse_schema(json.loads(schema.text))
            found.append(fastavro.schemaless_reader(io.BytesIO(value[5:]), text, None))
    return sorted(found, key=lambda item: item["id"])


@pytest.mark.broker
@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_rows_have_schemas_that_grow_and_runs_that_are_killed_repeat(
    tmp_path: Path, brokers: str, topic: Callable[..., str], registry_url: str, form: str
) -> None:
    files, target = bench(tmp_path, brokers, topic, into={"format": form, "registry": registry_url, "key": ["id"]})
    files.write("a", {"id": 1, "name": "Köln"}, raw=b"broken\n")
    assert files.run_until("commit.before", kill)
    files.run()
    files.write("a", {"id": 2, "o": {"x": [1.5]}})
    assert files.run_until("readback", kill)
    files.run()
    found = [
        {name: value for name, value in item.items() if value is not None} for item in records(registry_url, brokers, target)
    ]
    assert found == [{"id": 1, "name": "Köln"}, {"id": 2, "o": {"x": [1.5]}}]
    assert files.audit().ok, files.audit().problems


@pytest.mark.broker
def test_a_registry_that_rejects_the_schema_stops_the_run_before_anything_is_written(
    tmp_path: Path, brokers: str, topic: Callable[..., str], local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_SECRET", "canary-of-the-registry")
    into = {"format": "avro", "registry": local_registry.url, "credentials": _ACCESS}
    files, target = bench(tmp_path, brokers, topic, into=into)
    files.write("a", {"id": 1})
    local_registry.fault = "409"
    with pytest.raises(DestinationError, match=f"subject {target}-value: the schema of the rows was rejected as incompatible"):
        files.run()
    local_registry.fault = "503"
    with pytest.raises(DestinationBusy, match="expected the id of a schema, found HTTP 503"):
        files.run()
    local_registry.fault, local_registry.wanted = "", "Basic other"
    with pytest.raises(DestinationError, match="credentials rejected") as caught:
        files.run()
    assert "into.credentials" in caught.value.hint and "canary" not in str(caught.value)
    local_registry.wanted = ""
    files.run()
    assert records(local_registry.url, brokers, target) == [{"id": 1}]
    assert files.audit().ok


@pytest.mark.broker
def test_a_column_without_a_name_in_avro_is_refused(
    tmp_path: Path, brokers: str, topic: Callable[..., str], local_registry: LocalRegistry
) -> None:
    files, target = bench(tmp_path, brokers, topic, into={"format": "avro", "registry": local_registry.url})
    files.write("a", {"id": 1, "first-name": "x"})
    with pytest.raises(DestinationError, match=r"into\.format avro: column 'first-name'"):
        files.run()
    assert read_all(brokers, target) == [] and local_registry.subjects == {}


_OWN = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { sint64 id = 7; optional google.protobuf.Timestamp at = 2; repeated string tags = 3; }"""


@pytest.mark.broker
def test_protobuf_keeps_a_registered_schema_and_rows_that_do_not_fit_are_dead_letters(
    tmp_path: Path, brokers: str, topic: Callable[..., str], registry_url: str
) -> None:
    into = {"format": "protobuf", "registry": registry_url}
    columns = {"id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE", "tags": "VARCHAR[]"}
    files, target = bench(tmp_path, brokers, topic, into=into, columns=columns, errors={"constraint": "dead_letter"})
    number = register(registry_url, f"{target}-value", _OWN, "PROTOBUF")
    files.write(
        "a", {"id": 1, "at": "2026-01-02T03:04:05Z", "tags": ["x"]}, {"id": None}, {"id": 3, "tags": ["x", None]}, {"id": 4}
    )
    files.run()
    assert records(registry_url, brokers, target) == [{"id": 1, "at": "2026-01-02T03:04:05Z", "tags": ["x"]}, {"id": 4}]
    assert {message.value()[:6] for message in read_all(brokers, target)} == {b"\0" + number.to_bytes(4, "big") + b"\0"}
    letters = [dict(letter.headers()) for letter in read_all(brokers, f"{target}.dead-letters")]
    reasons = sorted(headers["kpipe.reason"].decode() for headers in letters)
    assert "id: NULL, but the field in the registered schema is not optional" in reasons[0]
    assert "tags: item 2 of the list is NULL" in reasons[1]
    assert files.audit().ok, files.audit().problems
    files.write("a", {"id": 5, "more": 1})
    with pytest.raises(DestinationError, match=r"column more: .* message shop\.Order has no field of that name"):
        files.run()


@pytest.mark.broker
def test_two_pipelines_that_write_one_topic_in_protobuf_share_its_numbers(
    tmp_path: Path, brokers: str, topic: Callable[..., str], local_registry: LocalRegistry
) -> None:
    into = {"format": "protobuf", "registry": local_registry.url}
    (tmp_path / "other").mkdir()
    first, target = bench(tmp_path, brokers, topic, into=into)
    second, _ = bench(tmp_path / "other", brokers, topic, into={**into, "topic": target, "ledger": f"{target}-other"}, name="q")
    first.write("a", {"id": 1, "x": 1})
    first.run()
    second.write("a", {"y": "z", "id": 2})
    second.run()
    first.write("a", {"id": 3, "x": 3, "w": True})
    first.run()
    found = records(local_registry.url, brokers, target)
    assert found == [{"id": 1, "x": "1"}, {"id": 2, "y": "z"}, {"id": 3, "x": "3", "w": True}]
    newest = Registry(local_registry.url).latest(f"{target}-value")
    assert newest is not None
    assert re.findall(r"(\w+) = (\d+);", newest[1].text) == [("id", "1"), ("x", "2"), ("y", "3"), ("w", "4")]


@pytest.mark.parametrize(
    ("into", "words"),
    [
        ({"format": "avro"}, "format: avro needs registry"),
        ({"format": "protobuf"}, "format: protobuf needs registry"),
        ({"format": "raw", "registry": "r:8081"}, "expected format json, avro or protobuf, found raw"),
        ({"registry": "http://u:p@r:8081"}, "into.registry: the address contains credentials"),
        ({"registry": "ftp://r"}, "into.registry: not an http address"),
        ({"registry": "http://far.example.com", "credentials": _ACCESS}, "into.registry: an http address sends the credentials"),
    ],
)
def test_settings_of_the_registry_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: dict[str, Any], words: str
) -> None:
    monkeypatch.setenv("REGISTRY_SECRET", "x")
    fields = {"name": "p", "source": {"files": "/in/*"}, "into": {"type": "kafka", "brokers": "b", "topic": "t", **into}}
    with pytest.raises((InvalidPipeline, ValueError), match=words):
        open_destination(Pipeline.model_validate(fields), Home(tmp_path).make())
