"""Formats with a schema, and keys as columns: real Kafka, Spark and DuckDB; the registry is tests/registry.py."""

from __future__ import annotations

import io
import json
import uuid
from base64 import b64decode
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import message_factory

from resources.decode.protobuf.descriptors import Files
from tests.commandline import Kpipe
from tests.registry import LocalRegistry, framed, register

from .test_formats import last

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "items", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}

OBJECT = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'


def avro(schema: Any, row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()


def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def test_avro_by_the_registry_while_its_schema_changes(kpipe: Kpipe, topic: Any, write: Any, registry_url: str) -> None:
    name, value = topic(2), subject()
    first = register(registry_url, value, FIRST)
    write(name, [framed(first, avro(FIRST, {"id": at, "city": "Köln"})) for at in range(3)], 0)
    create = f"""CREATE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE orders
        FORMAT AVRO SCHEMA REGISTRY '{registry_url}'"""
    seen = kpipe(
        "sql", f"{create.replace('CREATE PIPELINE orders', 'INFER PIPELINE')}; {create}; TEST PIPELINE orders LIMIT 2;"
    ).stdout
    assert '"id" INTEGER' in seen and "Köln" in seen and "2 rows" in seen
    assert last(kpipe, "orders") == {"messages": 3, "rows": 3, "dead_letters": 0, "filtered": 0, "gaps": 0}
    second = register(registry_url, subject(), SECOND)
    write(name, [framed(second, avro(SECOND, {"id": 7, "city": None, "items": ["a", "b"]}))], 1)
    write(name, [framed(first, avro(FIRST, {"id": 8, "city": "x"})), framed(2**31 - 1, b"\x02"), b"{}", None], 1)
    write(name, [framed(second, avro(SECOND, {"id": 2**40, "city": "x", "items": []}))], 1)
    assert last(kpipe, "orders") == {"messages": 6, "rows": 2, "dead_letters": 3, "filtered": 1, "gaps": 0}
    assert kpipe.sql("SELECT id, city, items, _kafka_offset FROM orders WHERE _kafka_partition = 1 ORDER BY id") == [
        (7, None, ["a", "b"], 0),
        (8, "x", None, 1),
    ]
    reasons = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "orders")}
    assert "is not in the registry" in reasons[2]
    assert "not in the registry's wire format: expected at least 5 bytes, found 2" in reasons[3]
    assert "id: 1099511627776 is not an INTEGER" in reasons[5], "the table's column was made from an int"
    assert kpipe.json("verify", "orders")[0]["ok"]


def test_a_registry_that_is_away_stops_the_batch_and_no_record(
    kpipe: Kpipe, topic: Any, write: Any, local_registry: LocalRegistry
) -> None:
    name = topic(1)
    number = register(local_registry.url, "s", FIRST)
    write(name, [framed(number, avro(FIRST, {"id": 1, "city": "x"}))])
    credentials = {"schema.registry.username": "u", "schema.registry.password": "{{ env('KPIPE_TEST_PW') }}"}
    kpipe.define(
        "away",
        name,
        source={"credentials": credentials},
        format={"type": "avro", "registry": local_registry.url},
        columns={"id": "BIGINT", "city": "VARCHAR"},
        batch={"max_retries": 1, "retry_interval_ms": 1},
    )
    local_registry.fault = "503"
    failed = kpipe("run", "away", status=1, KPIPE_TEST_PW="hunter2")
    assert "found HTTP 503" in failed.stderr and "hunter2" not in failed.stdout + failed.stderr
    asked = local_registry.asked
    assert len(asked) == 2, "the batch was tried again"
    local_registry.fault, local_registry.wanted = "", "Basic dTpodW50ZXIy"
    done = kpipe.json("run", "away", KPIPE_TEST_PW="hunter2")[-1]
    assert (done["rows"], done["dead_letters"], done["status"]) == (1, 0, "caught_up")
    assert kpipe.sql("SELECT id, city FROM away") == [(1, "x")]


def test_avro_with_its_schema_in_the_definition(kpipe: Kpipe, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, [avro(FIRST, {"id": 1, "city": "x"}), avro(SECOND, {"id": 2, "city": None, "items": ["y"]})])
    text = json.dumps(FIRST)
    kpipe(
        "sql", f"CREATE PIPELINE inline AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE inline FORMAT AVRO SCHEMA '{text}'"
    )
    assert last(kpipe, "inline") == {"messages": 2, "rows": 1, "dead_letters": 1, "filtered": 0, "gaps": 0}
    assert kpipe.sql("SELECT id, city FROM inline") == [(1, "x")]
    assert "not written with this schema" in kpipe.json("errors", "inline")[0]["error_message"]


def test_json_behind_a_registrys_prefix_and_keys_as_columns(kpipe: Kpipe, topic: Any, write: Any, registry_url: str) -> None:
    name = topic(1)
    number = register(registry_url, subject(), OBJECT, "JSON")
    write(name, [framed(number, b'{"a": 1, "id": 5}'), b'{"a": 2}', framed(number, b'{"a": 3}')], key=b'{"id": 5, "part": "x"}')
    write(name, [framed(number, b'{"a": 4}')], key=b"no json")
    write(name, [framed(number, b'{"a": 5, "id": 6}')], key=b'{"id": 7}')
    write(name, [framed(number, b'{"a": 6}'), None])
    kpipe.define("keyed", name, format={"registry": registry_url}, key_format={"type": "json"})
    assert last(kpipe, "keyed") == {"messages": 7, "rows": 3, "dead_letters": 3, "filtered": 1, "gaps": 0}
    assert kpipe.sql("SELECT a, id, part, _kafka_offset FROM keyed ORDER BY a") == [
        (1, 5, "x", 0),
        (3, 5, "x", 2),
        (6, None, None, 5),
    ]
    reasons = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "keyed")}
    assert "expected first byte 0, found 123" in reasons[1]
    assert "key: not JSON" in reasons[3]
    assert "key: id differs between key and value" in reasons[4]
    assert kpipe.json("verify", "keyed")[0]["ok"]


def test_keys_of_other_formats(kpipe: Kpipe, topic: Any, write: Any, registry_url: str) -> None:
    name = topic(1)
    number = register(registry_url, subject(), '"long"')
    write(name, ["1,a", "2,b"], key=framed(number, avro("long", 77)))
    kpipe.define(
        "csv_by_key",
        name,
        format={"type": "csv", "delimiter": ",", "fields": ["n", "t"]},
        key_format={"type": "avro", "registry": registry_url},
    )
    assert last(kpipe, "csv_by_key")["rows"] == 2
    assert kpipe.sql("SELECT n, t, key FROM csv_by_key ORDER BY n") == [("1", "a", 77), ("2", "b", 77)]


def test_avro_by_paths_in_a_statement_and_keys_by_paths(kpipe: Kpipe, topic: Any, write: Any, registry_url: str) -> None:
    name = topic(1)
    second = register(registry_url, subject(), SECOND)
    rows = [{"id": 1, "city": "x", "items": ["a", "b"]}, {"id": 2, "city": None, "items": []}]
    write(name, [framed(second, avro(SECOND, row)) for row in rows], key=b'{"device": {"id": 9}}')
    create = f"""CREATE PIPELINE paths AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE paths
        FORMAT AVRO SCHEMA REGISTRY '{registry_url}' (number <- id, first <- items::0 DEFAULT 'none', @city <- city)
        FORMAT JSON KAFKA KEY (device <- device::id, serial <- serial DEFAULT 'x')
        SET town = upper(@city)"""
    kpipe("sql", create)
    assert last(kpipe, "paths")["rows"] == 2
    assert kpipe.sql("SELECT number, first, device, serial, town FROM paths ORDER BY number") == [
        (1, "a", 9, "x", "X"),
        (2, "none", 9, "x", None),
    ]


RIDE = """syntax = "proto3"; package rides;
message Ride { int64 id = 1; optional string city = 2; } message Key { string device = 1; }"""
LATER_RIDE = RIDE.replace("optional string city = 2;", "optional string city = 2; repeated string stops = 3;")


def ride(text: str, name: str, **values: Any) -> bytes:
    return bytes(message_factory.GetMessageClass(Files(text).named(f"rides.{name}"))(**values).SerializeToString())


def test_protobuf_by_the_registry_while_its_schema_changes_and_keys_of_it(
    kpipe: Kpipe, topic: Any, write: Any, registry_url: str
) -> None:
    name = topic(1)
    first = register(registry_url, subject(), RIDE, "PROTOBUF")
    key = framed(first, b"\2\2" + ride(RIDE, "Key", device="d-1"))
    write(name, [framed(first, b"\0" + ride(RIDE, "Ride", id=at, city="Köln")) for at in range(2)], key=key)
    kpipe(
        "sql",
        f"""CREATE PIPELINE rides AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE rides
        FORMAT PROTOBUF SCHEMA REGISTRY '{registry_url}' FORMAT PROTOBUF KAFKA KEY SCHEMA REGISTRY '{registry_url}'""",
    )
    assert last(kpipe, "rides") == {"messages": 2, "rows": 2, "dead_letters": 0, "filtered": 0, "gaps": 0}
    second = register(registry_url, subject(), LATER_RIDE, "PROTOBUF")
    write(
        name, [framed(second, b"\0" + ride(LATER_RIDE, "Ride", id=2**40, stops=["a", "b"])), framed(first, b"\0\x12\x05x"), b"{}"]
    )
    write(name, [framed(first, b"\0" + ride(RIDE, "Ride", id=9))], key=b"no prefix")
    assert last(kpipe, "rides") == {"messages": 4, "rows": 1, "dead_letters": 3, "filtered": 0, "gaps": 0}
    assert kpipe.sql("SELECT id, city, device, stops FROM rides ORDER BY id") == [
        (0, "Köln", "d-1", None), (1, "Köln", "d-1", None), (2**40, None, None, ["a", "b"]),
    ]  # fmt: skip
    reasons = {row["offset"]: row["error_message"] for row in kpipe.json("errors", "rides")}
    assert "city: the message ends inside this value" in reasons[3]
    assert "not in the registry's wire format" in reasons[4]
    assert "key: not in the registry's wire format" in reasons[5]
    assert kpipe.json("verify", "rides")[0]["ok"]


def test_protobuf_by_a_descriptor_set_that_is_read_when_a_run_begins(
    kpipe: Kpipe, topic: Any, write: Any, tmp_path: Path
) -> None:
    name, file = topic(1), tmp_path / "rides.desc"
    file.write_bytes(b64decode(Files(RIDE).written()))
    write(name, [ride(LATER_RIDE, "Ride", id=1, city="x", stops=["a"]), b"\xff"])
    kpipe(
        "sql",
        f"""CREATE PIPELINE mine AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE mine
        FORMAT PROTOBUF DESCRIPTORS '{file}' MESSAGE 'rides.Ride'""",
    )
    assert last(kpipe, "mine") == {"messages": 2, "rows": 1, "dead_letters": 1, "filtered": 0, "gaps": 0}
    file.write_bytes(b64decode(Files(LATER_RIDE).written()))
    write(name, [ride(LATER_RIDE, "Ride", id=2, stops=["a", "b"])])
    assert last(kpipe, "mine")["rows"] == 1
    assert kpipe.sql("SELECT id, city, stops FROM mine ORDER BY id") == [(1, "x", None), (2, None, ["a", "b"])]
    file.unlink()
    assert "rides.desc cannot be read" in kpipe("run", "mine", status=2).stderr


def test_json_that_is_validated_by_the_registrys_schema(kpipe: Kpipe, topic: Any, write: Any, registry_url: str) -> None:
    name = topic(1)
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}}}
    number = register(registry_url, subject(), schema, "JSON")
    write(name, [framed(number, b'{"id": 1}'), framed(number, b'{"id": "1"}'), framed(number, b'{"id": 2, "day": "2026-01-02"}')])
    kpipe(
        "sql",
        f"""CREATE PIPELINE valid AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE valid
        FORMAT JSON SCHEMA REGISTRY '{registry_url}' VALIDATE""",
    )
    assert last(kpipe, "valid") == {"messages": 3, "rows": 2, "dead_letters": 1, "filtered": 0, "gaps": 0}
    assert kpipe.sql("SELECT id, CAST(day AS VARCHAR) FROM valid ORDER BY id") == [(1, None), (2, "2026-01-02")]
    assert 'id: "1" is not of type "integer"' in kpipe.json("errors", "valid")[0]["error_message"]
