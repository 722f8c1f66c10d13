"""Change events in Protobuf are those in JSON, as far as the converter keeps what they mean."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.json_format import ParseDict

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.tables.changes import UNCHANGED, marked_columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.protobuf.descriptors import Files
from tests.cases import each_case
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode.debezium.messages import PLACEHOLDER

#: As Confluent's converter writes it with optional.for.nullables.
EVENT = """syntax = "proto3"; package s.public.t;
import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto";
message Envelope {
  Value before = 1; Value after = 2; Source source = 3; string op = 4; optional int64 ts_ms = 5;
  message Value {
    int32 id = 1; optional int64 at = 2; confluent.type.Decimal amount = 3; optional string text = 4; optional bytes data = 5;
    map<string, string> tags = 6; repeated double list = 7; google.protobuf.Timestamp seen = 8; optional float f = 9;
  }
  message Source { optional int64 lsn = 1; }
}"""
KEY = 'syntax = "proto3"; package s.public.t; message Key { int32 id = 1; }'
TYPES = {"at": "io.debezium.time.MicroTimestamp"}


def written(number: int, schema: str, name: str, value: Any) -> bytes:
    made = message_factory.GetMessageClass(Files(schema).named(name))()
    return framed(number, b"\0" + ParseDict(value, made).SerializeToString())


@pytest.fixture
def made(registry_url: str) -> tuple[Format, int, int]:
    value, key = (register(registry_url, uuid4().hex, text, "PROTOBUF") for text in (EVENT, KEY))
    return Format(type="debezium", registry=registry_url, types=TYPES), value, key


def test_events_with_a_registry(made: tuple[Format, int, int]) -> None:
    kind, value, key = made

    def event(op: str, after: Any = None, before: Any = None) -> bytes:
        return written(value, EVENT, "s.public.t.Envelope", {"op": op, "after": after, "before": before, "source": {"lsn": 5}})

    amount = {"value": "AQA=", "precision": 10, "scale": 2}
    whole = {
        "id": 7, "at": 1, "amount": amount, "text": "é", "data": "AP8=", "tags": {"a": "b"}, "list": [0.5],
        "seen": "2026-01-02T03:04:05Z", "f": 0.1,
    }  # fmt: skip
    payloads = [
        event("c", whole), event("u", {"id": 7, "text": PLACEHOLDER}), event("d", None, {"id": 9}), b"{}", event("c", whole)[:-1],
        event("r", {"id": 0, "text": ""}),
    ]  # fmt: skip
    columns = sampled(kind, payloads)
    assert columns.to_dict() == {
        "id": "INTEGER", "at": "TIMESTAMP", "amount": "VARCHAR", "text": "VARCHAR", "data": "BLOB", "tags": "JSON",
        "list": "DOUBLE[]", "seen": "TIMESTAMP", "f": "FLOAT",
    }  # fmt: skip
    keys: list[Any] = [None] * 6
    keys[2] = written(key, KEY, "s.public.t.Key", {"id": 9})
    done = decoder(kind, columns, unique=Columns.of({"id": "INTEGER"})).decode(Payloads.of(payloads), pa.array(keys, pa.binary()))
    assert [at for at, _ in done.rejects] == [3, 4] and done.kept == [0, 1, 5] and list(done.deleted) == [2]
    assert done.keys is not None and done.keys.column("id").to_pylist() == [9]
    first, second, last = done.table.to_pylist()
    assert first == {
        "id": 7, "at": datetime(1970, 1, 1, 0, 0, 0, 1), "amount": "2.56", "text": "é", "data": b"\0\xff", "tags": '{"a":"b"}',
        "list": [0.5], "seen": datetime(2026, 1, 2, 3, 4, 5), "f": pytest.approx(0.1), UNCHANGED: None,
    }  # fmt: skip
    assert second["text"] is None and marked_columns([second[UNCHANGED]]) == {"text"}
    assert (last["id"], last["text"], last["at"], last["list"]) == (0, "", None, [])


def test_a_declared_decimal_has_its_scale(made: tuple[Format, int, int]) -> None:
    kind, value, _ = made
    kind = kind.model_copy(update={"types": {"amount": "org.apache.kafka.connect.data.Decimal(10,2)"}})
    rows = [{"id": 1, "amount": {"value": "AQA=", "precision": 10, "scale": scale}} for scale in (2, 3)]
    payloads = [written(value, EVENT, "s.public.t.Envelope", {"op": "c", "after": row}) for row in rows]
    done = decoder(kind, Columns.of({"id": "INTEGER", "amount": "DECIMAL(10,2)"})).decode(Payloads.of(payloads))
    assert done.table.column("amount").to_pylist() == [Decimal("2.56")]
    assert [(at, "a decimal of scale 3" in why) for at, why in done.rejects] == [(1, True)]


@each_case(
    "declared, kind, expected",
    [
        ("org.apache.kafka.connect.data.Timestamp", "TIMESTAMP", datetime(2026, 1, 2, 3, 4, 5, 600_000)),
        ("io.debezium.time.NanoTimestamp", "TIMESTAMP", datetime(2026, 1, 2, 3, 4, 5, 600_000)),
        (
            "io.debezium.time.ZonedTimestamp",
            "TIMESTAMP WITH TIME ZONE",
            datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=timezone.utc),
        ),
    ],
)
def test_a_timestamp_has_its_own_unit(made: tuple[Format, int, int], declared: str, kind: str, expected: datetime) -> None:
    form, value, _ = made
    form = form.model_copy(update={"types": {"seen": declared}})
    payload = written(value, EVENT, "s.public.t.Envelope", {"op": "c", "after": {"id": 1, "seen": "2026-01-02T03:04:05.6Z"}})
    assert sampled(form, [payload]).to_dict()["seen"] == kind
    done = decoder(form, Columns.of({"id": "INTEGER", "seen": kind})).decode(Payloads.of([payload]))
    assert not done.rejects and done.table.column("seen").to_pylist() == [expected]


def test_a_declared_type_that_a_message_cannot_have_is_refused(local_registry: LocalRegistry) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
    message E { V after = 1; string op = 2; D source = 3; message D { int32 year = 1; int32 month = 2; int32 day = 3; }
      message V { optional int32 id = 1; google.protobuf.Timestamp seen = 2; D day = 3; map<string, string> tags = 4;
        repeated int64 list = 5; google.protobuf.Duration span = 6; optional string source = 7; optional int64 op = 8; } }"""
    number = register(local_registry.url, "s", text, "PROTOBUF")
    row = {"id": 1, "seen": "2026-01-02T03:04:05Z", "day": {"year": 2026}, "source": "x", "op": 1}
    payload = written(number, text, "E", {"op": "c", "after": row, "source": {"day": 1}})

    def why(types: dict[str, str]) -> list[tuple[int, str]]:
        kind = Format(type="debezium", registry=local_registry.url, types=types)
        return decoder(kind, Columns.of({"id": "INTEGER"})).decode(Payloads.of([payload])).rejects

    is_what = {"seen": "a google.protobuf.Timestamp", "day": "a E.D", "tags": "a map", "list": "a list",
               "span": "a google.protobuf.Duration"}  # fmt: skip
    for name, what in is_what.items():
        ((_, found),) = why({name: "io.debezium.time.Date"})
        assert f"field {name} is {what}, not io.debezium.time.Date: remove it from format.types" in found
    # Columns, not members of the envelope with their names.
    text_type = "io.debezium.time.Interval"
    assert why({"source": text_type, "span": text_type, "op": "io.debezium.time.MicroTimestamp"}) == []


def test_rows_whose_null_would_be_zero_are_refused(local_registry: LocalRegistry) -> None:
    plain = 'syntax = "proto3"; message E { V after = 1; string op = 2; message V { int32 id = 1; string text = 2; } }'
    number = register(local_registry.url, "s", plain, "PROTOBUF")
    kind = Format(type="debezium", registry=local_registry.url)
    payload = written(number, plain, "E", {"op": "c", "after": {"id": 1}})
    done = decoder(kind, Columns.of({"id": "INTEGER"})).decode(Payloads.of([payload]))
    assert done.rows == 0 and "set optional.for.nullables=true for the converter" in done.rejects[0][1]


def test_another_type_of_schema_is_refused(local_registry: LocalRegistry) -> None:
    number = register(local_registry.url, "s", '{"type": "object"}', "JSON")
    kind = Format(type="debezium", registry=local_registry.url)
    done = decoder(kind, Columns.of({"id": "INTEGER"})).decode(Payloads.of([framed(number, b"{}")]))
    assert "expected AVRO or PROTOBUF, found JSON" in done.rejects[0][1]
