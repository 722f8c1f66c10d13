"""Avro records read by a reader's schema beside a registry."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Decoded, Payloads
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode.avro.records import logical, record, written


def resolved(registry: LocalRegistry, schema: Any, reader: Any, rows: list[Any]) -> Decoded:
    number = register(registry.url, "resolved", schema)
    kind = Format.model_validate({"type": "avro", "registry": registry.url, "schema": json.dumps(reader)})
    payloads = Payloads.of([framed(number, item) for item in written(schema, *rows)])
    columns = AvroDecoder(kind, Columns()).decode(payloads).new_columns
    assert not columns or columns == plan(json.dumps(reader)).columns
    return AvroDecoder(kind, plan(json.dumps(reader)).columns).decode(payloads)


def test_records_are_read_by_the_readers_schema(way: str, local_registry: LocalRegistry) -> None:
    inner = record(("x", "int"), ("gone", "string"), name="I")
    schema = record(
        ("id", "int"), ("real", "float"), ("old", "string"), ("raw", "bytes"), ("text", "string"), ("left", "long"),
        ("kind", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}), ("in", ["null", inner]),
        ("list", {"type": "array", "items": "I"}), ("map", {"type": "map", "values": "int"}), ("maybe", ["null", "int"]),
    )  # fmt: skip
    wide = record(("more", "string"), ("x", "double"), name="I")
    wide["fields"][0]["default"] = "d"
    reader = record(
        ("list", {"type": "array", "items": wide}), ("in", ["null", "I"]), ("id", "long"), ("real", "double"), ("new", "string"),
        ("raw", "string"), ("text", "bytes"), ("kind", {"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"}),
        ("map", {"type": "map", "values": "int"}), ("maybe", ["null", "long"]), ("none", ["null", "string"]),
        ("at", logical("long", "timestamp-millis")), ("some", {"type": "array", "items": "int"}),
        ("exact", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
    )  # fmt: skip
    for field in reader["fields"]:
        field |= {
            "new": {"aliases": ["old"]},
            "none": {"default": None},
            "at": {"default": 1000},
            "some": {"default": [1, 2]},
            "exact": {"default": (10**36 + 1).to_bytes(16, "big").decode("latin-1")},
        }.get(field["name"], {})
    full = {"id": 5, "real": 0.5, "old": "was", "raw": "ä".encode(), "text": "é", "left": 1, "kind": "B",
            "in": {"x": 3, "gone": "g"}, "list": [{"x": 1, "gone": ""}, {"x": 2, "gone": ""}], "map": {"a": 1},
            "maybe": 7}  # fmt: skip
    bare = {**full, "in": None, "list": [], "kind": "A", "maybe": None}
    decoded = resolved(local_registry, schema, reader, [full, {**full, "raw": b"\xff"}, bare])
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    wanted = {"id": 5, "real": 0.5, "new": "was", "raw": "ä", "text": "é".encode(), "kind": "Z", "in": {"more": "d", "x": 3.0},
              "list": [{"more": "d", "x": 1.0}, {"more": "d", "x": 2.0}], "map": '{"a":1}', "maybe": 7, "none": None, "at": at,
              "some": [1, 2], "exact": Decimal(f"1{'0' * 34}.01")}  # fmt: skip
    assert decoded.table.to_pylist() == [wanted, {**wanted, "kind": "A", "in": None, "list": [], "maybe": None}]
    assert decoded.rejects == [(1, "raw: not UTF-8 at byte 0")]
    theirs = fastavro.schemaless_reader(io.BytesIO(written(schema, full)[0]), schema, reader)
    ours = decoded.table.to_pylist()[0]
    assert theirs["at"] == 1000  # fastavro leaves a default as it is written
    left = {"map": json.dumps(theirs["map"], separators=(",", ":")), "at": at, "exact": wanted["exact"]}
    assert {**theirs, **left} == ours


@pytest.mark.parametrize(
    ("kind", "value", "reader", "words"),
    [
        ("long", 1, "int", "v is long (BIGINT) in the record's schema, and int (INTEGER) in the reader's"),
        ("string", "x", "long", "v is string"),
        (["null", "int"], None, "int", "v: null, which the reader's schema does not take"),
        ("long", 2**53 + 1, "double", "v: 9007199254740993 is not exact as double"),
        ("null", None, "int", "v is null in the record's schema"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", {"type": "enum", "name": "E", "symbols": ["A"]},
         "v: B is not a symbol of the reader's schema"),
        ({"type": "map", "values": "int"}, {}, {"type": "map", "values": "long"}, "v is "),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", {"type": "fixed", "name": "F", "size": 3}, "v is a fixed"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_readers_schema_does_not_take_says_why(
    kind: Any, value: Any, reader: Any, words: str, local_registry: LocalRegistry
) -> None:
    one, two = record(("v", kind), ("n", "int")), record(("v", reader), ("n", "int"))
    decoded = resolved(local_registry, one, two, [{"v": value, "n": 1}])
    assert decoded.rows == 0
    assert words in decoded.rejects[0][1]
    missing = resolved(local_registry, one, record(("other", "int")), [{"v": value, "n": 1}])
    assert "has no other, and the reader's has no default for it" in missing.rejects[0][1]
