"""Kafka Connect's JSON with schema, as rows."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from math import inf
from typing import Any

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.growth_guard import Bound

CONNECT = "org.apache.kafka.connect.data."


def _field(name: str, kind: str, semantic: str = "", **more: Any) -> dict[str, Any]:
    named = {"name": CONNECT + semantic} if semantic else {}
    return {"field": name, "type": kind, "optional": True, **named, **more}


FIELDS = [
    _field("id", "int64"),
    _field("price", "bytes", "Decimal", parameters={"scale": "2", "connect.decimal.precision": "9"}),
    _field("day", "int32", "Date"),
    _field("at", "int64", "Timestamp"),
    _field("raw", "bytes"),
    _field("tags", "array", items={"type": "string"}),
    _field("visits", "map", keys={"type": "string"}, values={"type": "int32"}),
    _field("who", "struct", fields=[_field("name", "string")]),
]
PRICE = base64.b64encode((12345).to_bytes(2, "big")).decode()
ROW = {
    "id": 7, "price": PRICE, "day": 20000, "at": 1_700_000_000_123, "raw": "AAE=", "tags": ["a"], "visits": {"x": 1},
    "who": {"name": "é"},
}  # fmt: skip
TYPES = {
    "id": "BIGINT", "price": "DECIMAL(9,2)", "day": "DATE", "at": "TIMESTAMP", "raw": "BLOB", "tags": "VARCHAR[]",
    "visits": "MAP(VARCHAR, INTEGER)", "who": "STRUCT(name VARCHAR)",
}  # fmt: skip


def _message(payload: Any, fields: list[dict[str, Any]] | None = None, spaces: bool = False) -> bytes:
    schema = {"type": "struct", "optional": False, "fields": FIELDS if fields is None else fields}
    return json.dumps({"schema": schema, "payload": payload}, separators=None if spaces else (",", ":")).encode()


def _decoded(payloads: list[bytes], columns: dict[str, str], bound: Bound | None = None, **options: Any) -> Decoded:
    kind = Format(type="json", schemas_enable=True, **options)
    return decoder(kind, Columns.of(columns), bound=bound).decode(Payloads.of(payloads))


def test_the_schema_gives_types_and_values() -> None:
    assert sampled(Format(schemas_enable=True), [_message(ROW), b"{}"]) == Columns.of(TYPES)
    want = {
        "id": 7, "price": Decimal("123.45"), "day": date(2024, 10, 4), "at": datetime(2023, 11, 14, 22, 13, 20, 123000),
        "raw": b"\0\1", "tags": ["a"], "visits": [("x", 1)], "who": {"name": "é"},
    }  # fmt: skip
    done = _decoded([_message(ROW), _message({}), _message(ROW, spaces=True)], TYPES)
    assert done.table.to_pylist() == [want, dict.fromkeys(TYPES), want]
    assert done.kept is None
    assert not done.new_columns


def test_rows_of_several_schemas_keep_their_order() -> None:
    newer = [FIELDS[0], _field("more", "string")]
    plain = b'{"schema":null,"payload":{"id":3,"extra":true}}'
    payloads = [_message({"id": 1, "more": "x"}, newer), _message({"id": 2}), plain, _message({"id": 4}, newer)]
    done = _decoded(payloads, {"id": "BIGINT"})
    assert [row["id"] for row in done.table.to_pylist()] == [1, 2, 3, 4]
    assert done.new_columns.get("more") == Columns.of({"a": "VARCHAR"}).get("a")
    assert done.new_columns.get("extra") == Columns.of({"a": "BOOLEAN"}).get("a")


def test_invalid_records_are_rejects_and_bring_no_columns() -> None:
    odd = [
        (b'{"id":1}', "expected the members schema and payload"),
        (b'{"schema":null,"payload":{},"x":1}', "expected the members schema and payload"),
        (_message(None), "payload: null is not an object"),
        (b'{"schema":{"type":"string"},"payload":"x"}', "not a struct"),
        (b'{"schema":null,"payload":5}', "payload: 5 is not an object"),
        (_message({}, []), "the schema has no fields"),
        (_message({"id": "x"}), "id: not an integer"),
        (_message({"new": 5}, [_field("new", "string")]), "new: not a text"),
        (_message({"id": 1})[:-1], "not JSON"),
        (b'{"schema":null,"payload":{"id":1.5}}', "id: 1.5 is not a BIGINT"),
    ]
    done = _decoded([_message({"id": 1}), *(payload for payload, _ in odd)], TYPES)
    assert done.table.num_rows == 1
    assert [at for at, _ in done.rejects] == list(range(1, len(odd) + 1))
    for (_, why), (_, wanted) in zip(done.rejects, odd, strict=True):
        assert wanted in why
    assert not done.new_columns


def test_paths_begin_in_the_payload() -> None:
    mapping = {"n": "who::name", "first": {"path": "tags::0", "default": None}, "v": {"path": "none", "default": 5}}
    columns = {"n": "VARCHAR", "first": "VARCHAR", "v": "BIGINT"}
    done = _decoded([_message(ROW), b'{"schema":null,"payload":{"who":{"name":"y"}}}'], columns, mapping=mapping)
    assert done.table.to_pylist() == [{"n": "é", "first": "a", "v": 5}, {"n": "y", "first": None, "v": 5}]


def test_the_placeholder_of_debezium_is_a_text_here() -> None:
    text = "__debezium_unavailable_value"
    done = _decoded([_message({"id": 1, "who": {"name": text}})], TYPES)
    assert done.table.column("who").to_pylist() == [{"name": text}]


def test_a_record_of_too_many_fields_is_a_reject() -> None:
    wide = _message({}, [_field(f"c{at}", "string") for at in range(1_001)])
    done = _decoded([_message({"id": 1}), wide], {"id": "BIGINT"}, Bound(columns=Columns.of({"id": "BIGINT"})))
    assert [at for at, _ in done.rejects] == [1]
    assert "at most 1,000" in done.rejects[0][1]


def test_a_path_into_a_document_keeps_all_digits_and_rejects_duplicate_members() -> None:
    documents = [
        '{"v": 1.10}',
        '{"v": 9007199254740993.0}',
        '{"v": null}',
        '{"w": 1}',
        '{"v": 1, "v": 2}',
        None,
        '{"v": [1.10, 1E2]}',
    ]
    fields = [{"field": "doc", "type": "string", "optional": True, "name": "io.debezium.data.Json"}]
    mapping = {"v": {"path": "doc::v", "default": "none"}}
    done = _decoded([_message({"doc": text}, fields) for text in documents], {"v": "VARCHAR"}, mapping=mapping)
    assert done.table.column("v").to_pylist() == ["1.10", "9007199254740993.0", None, "none", "none", "[1.10,1E2]"]
    assert done.rejects == [(4, "doc: duplicate member v")]
    lacks = _decoded([_message({"doc": text}, fields) for text in documents], {"v": "VARCHAR"}, mapping={"v": "doc::v"})
    assert [at for at, _ in lacks.rejects] == [3, 4, 5]


def test_numbers_beyond_a_double_keep_their_sign() -> None:
    fields = [_field("d", "double"), _field("f", "float")]
    decoded = _decoded(
        [_message({"d": sign * 10**400, "f": sign * 10**400}, fields) for sign in (1, -1)], {"d": "DOUBLE", "f": "FLOAT"}
    )
    assert decoded.table.to_pylist() == [{"d": inf, "f": inf}, {"d": -inf, "f": -inf}]
