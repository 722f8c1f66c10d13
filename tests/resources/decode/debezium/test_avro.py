"""Change events in Avro are those in JSON."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.tables.changes import EMPTIES, UNCHANGED, marked_columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder, sampled
from tests.registry import framed, register
from tests.resources.decode.debezium.messages import CONNECT, PLACEHOLDER, TIME

DECIMAL = {"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.version": 1, "logicalType": "decimal", "scale": 2,
           "precision": 10, "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}}  # fmt: skip
ROW = {
    "type": "record", "name": "Value", "connect.name": "s.public.t.Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": TIME + "MicroTimestamp"}], "default": None},
        {"name": "amount", "type": ["null", DECIMAL], "default": None},
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "string"]}], "default": None},
        {"name": "list", "type": ["null", {"type": "array", "items": ["null", "double"]}], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}  # fmt: skip
EVENT = {
    "type": "record", "name": "Envelope", "namespace": "s.public.t", "connect.name": "s.public.t.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None}, {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]},
    ],
}  # fmt: skip
KEY = {"type": "record", "name": "Key", "namespace": "s.public.t", "fields": [{"name": "id", "type": "int"}]}


def written(number: int, schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    plain = fastavro.parse_schema(_plain(schema))
    fastavro.schemaless_writer(buffer, plain, value)
    return framed(number, buffer.getvalue())


def _plain(schema: Any) -> Any:
    """Without logical types: fastavro would convert values."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return {n: _plain(item) for n, item in schema.items() if n != "logicalType"} if isinstance(schema, dict) else schema


def event(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    whole = [{**dict.fromkeys(field["name"] for field in ROW["fields"]), **row} if row else None for row in (before, after)]
    return {"before": whole[0], "after": whole[1], "source": {"lsn": 5}, "op": op, "ts_ms": None}


@pytest.fixture
def made(registry_url: str) -> tuple[Format, int, int]:
    from uuid import uuid4

    return (
        Format(type="debezium", registry=registry_url),
        register(registry_url, uuid4().hex, EVENT),
        register(registry_url, uuid4().hex, KEY),
    )


def test_events_with_a_registry(made: tuple[Format, int, int]) -> None:
    kind, value, key = made
    row = {
        "id": 7,
        "at": 1,
        "amount": b"\x01\x00",
        "text": "é",
        "data": b"\x00\xff",
        "tags": {"a": "b"},
        "list": [0.5, None],
        "day": 1,
    }
    payloads = [
        written(value, EVENT, event("c", row)), written(value, EVENT, event("u", {"id": 7, "text": PLACEHOLDER})),
        written(value, EVENT, event("d", None, {"id": 9})), b"{}", written(value, EVENT, event("c", row))[:-1],
        written(value, EVENT, event("t")),
    ]  # fmt: skip
    columns = sampled(kind, payloads)
    assert columns.to_dict() == {
        "id": "INTEGER", "at": "TIMESTAMP", "amount": "DECIMAL(10,2)", "text": "VARCHAR", "data": "BLOB",
        "tags": "MAP(VARCHAR, VARCHAR)", "list": "DOUBLE[]", "day": "DATE",
    }  # fmt: skip
    keys = pa.array([written(key, KEY, {"id": 7})] * 2 + [written(key, KEY, {"id": 8})] + [None] * 3, pa.binary())
    found = decoder(kind, columns, unique=Columns.of({"id": "INTEGER"})).decode(Payloads.of(payloads), keys)
    first, second = found.table.to_pylist()
    assert (str(first["amount"]), first["data"], first["tags"], first["list"]) == ("2.56", b"\x00\xff", [("a", "b")], [0.5, None])
    assert (str(first["at"]), str(first["day"])) == ("1970-01-01 00:00:00.000001", "1970-01-02")
    assert second["text"] is None and marked_columns([second[UNCHANGED]]) == {"text"}
    assert found.deleted == [2, 5] and found.keys.to_pylist() == [{"id": 8, EMPTIES: False}, {"id": None, EMPTIES: True}]
    assert [at for at, _ in found.rejects] == [3, 4] and "wire format" in found.rejects[0][1]
