"""Change events, BEGIN and END as Debezium writes them with JSON's, Avro's and Protobuf's converter.

Facts: Debezium's `SchemaFactory` (fields of `event.block`, `event.collection` and `TransactionMetadataValue`), and the schemas
that Confluent's converters make of them.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping
from typing import Any

import fastavro
from google.protobuf import message_factory
from google.protobuf.json_format import ParseDict

from kpipe.definition.formats import Format
from resources.decode.protobuf.descriptors import Files
from tests.registry import framed, register

ENCODINGS = ["json", "avro", "protobuf"]

_TEXT, _LONG, _SMALL = (["null", kind] for kind in ("string", "long", "int"))
_SNAPSHOT = {
    "type": "string", "connect.version": 1, "connect.default": "false", "connect.name": "io.debezium.data.Enum",
    "connect.parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
}  # fmt: skip
_BLOCK = {
    "type": "record", "name": "block", "namespace": "event", "connect.version": 1, "connect.name": "event.block",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}  # fmt: skip
_ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, {"name": "n", "type": _SMALL}]}
_AVRO_EVENT = {
    "type": "record", "name": "Envelope", "namespace": "s.public.t", "connect.name": "s.public.t.Envelope",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {
            "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
            "fields": [
                {"name": "connector", "type": "string"}, {"name": "ts_ms", "type": "long"},
                {"name": "snapshot", "type": [_SNAPSHOT, "null"], "default": "false"}, {"name": "sequence", "type": _TEXT},
            ],
        }},
        {"name": "transaction", "type": ["null", _BLOCK], "default": None}, {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": _LONG},
    ],
}  # fmt: skip
_COLLECTION = {
    "type": "record", "name": "collection", "namespace": "event", "connect.version": 1, "connect.name": "event.collection",
    "fields": [{"name": "data_collection", "type": "string"}, {"name": "event_count", "type": "long"}],
}  # fmt: skip
_AVRO_BOUNDARY = {
    "type": "record", "name": "TransactionMetadataValue", "namespace": "io.debezium.connector.common", "connect.version": 1,
    "fields": [
        {"name": "status", "type": "string"}, {"name": "id", "type": "string"}, {"name": "event_count", "type": _LONG},
        {"name": "data_collections", "type": ["null", {"type": "array", "items": ["null", _COLLECTION]}], "default": None},
        {"name": "ts_ms", "type": "long"},
    ],
}  # fmt: skip
_AVRO_KEY = {"type": "record", "name": "Key", "namespace": "s.public.t", "fields": [{"name": "id", "type": "int"}]}

#: With optional.for.nullables.
_PROTOBUF = """syntax = "proto3"; package s.public.t;
message Envelope {
  message Value { int32 id = 1; optional int32 n = 2; }
  message Source { string connector = 1; int64 ts_ms = 2; optional string snapshot = 3; optional string sequence = 4; }
  message Block { string id = 1; int64 total_order = 2; int64 data_collection_order = 3; }
  Value before = 1; Value after = 2; Source source = 3; Block transaction = 4; string op = 5; optional int64 ts_ms = 6;
}"""
_PROTOBUF_BOUNDARY = """syntax = "proto3"; package io.debezium.connector.common;
message TransactionMetadataValue {
  message Collection { string data_collection = 1; int64 event_count = 2; }
  string status = 1; string id = 2; optional int64 event_count = 3; repeated Collection data_collections = 4; int64 ts_ms = 5;
}"""
_PROTOBUF_KEY = 'syntax = "proto3"; package s.public.t; message Key { int32 id = 1; }'


class Encoding:
    """What one of the converters writes.

    Args:
        name: one of `ENCODINGS`.
        registry: address of a registry; not used for JSON.
    """

    def __init__(self, name: str, registry: str) -> None:
        self.name = name
        self.format = Format(type="debezium", registry=None if name == "json" else registry)
        self._writers: dict[str, Any] = {}
        for what, avro, protobuf in (
            ("event", _AVRO_EVENT, _PROTOBUF), ("boundary", _AVRO_BOUNDARY, _PROTOBUF_BOUNDARY),
            ("key", _AVRO_KEY, _PROTOBUF_KEY),
        ):  # fmt: skip
            if name == "avro":
                number, parsed = register(registry, uuid.uuid4().hex, avro), fastavro.parse_schema(avro)
                self._writers[what] = lambda value, number=number, parsed=parsed: framed(number, _avro(parsed, value))
            elif name == "protobuf":
                number = register(registry, uuid.uuid4().hex, protobuf, "PROTOBUF")
                made = message_factory.GetMessageClass(Files(protobuf).named(None))
                self._writers[what] = lambda value, number=number, made=made: framed(
                    number, b"\0" + ParseDict(value, made()).SerializeToString()
                )
            else:
                self._writers[what] = lambda value: json.dumps(value, separators=(",", ":")).encode()

    def event(
        self, op: str, after: Any = None, before: Any = None, transaction: Any = None, snapshot: str | None = "false"
    ) -> bytes:
        """Write an event; rows have the columns `id` and `n`."""
        rows = [row and {"id": row["id"], "n": row.get("n")} for row in (before, after)]
        source = {"connector": "postgresql", "ts_ms": 1, "snapshot": snapshot, "sequence": None}
        block = transaction and {"total_order": 1, **transaction}
        return self._write(
            "event", {"before": rows[0], "after": rows[1], "source": source, "transaction": block, "op": op, "ts_ms": 1}
        )

    def boundary(self, id: str, counts: Mapping[str, int] | None = None) -> bytes:
        """Write BEGIN, or with counts by table END."""
        found = [{"data_collection": table, "event_count": count} for table, count in (counts or {}).items()]
        status, total = ("BEGIN", None) if counts is None else ("END", sum(counts.values()))
        return self._write(
            "boundary", {"status": status, "id": id, "event_count": total, "data_collections": found or None, "ts_ms": 1}
        )

    def key(self, id: int) -> bytes:
        """Write the key of a row."""
        return self._write("key", {"id": id})

    def _write(self, what: str, value: Any) -> bytes:
        found: bytes = self._writers[what](_filled(value) if self.name == "protobuf" else value)
        return found


def _filled(value: Any) -> Any:
    """Return a value without NULL, which is no field in Protobuf."""
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return {name: _filled(item) for name, item in value.items() if item is not None} if isinstance(value, dict) else value


def _avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()
