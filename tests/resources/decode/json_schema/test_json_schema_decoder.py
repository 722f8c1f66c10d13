"""JSON that must conform to its schema: what does not is a dead letter with path and reason; its types are the columns'."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.json_schema.schema import JsonSchema
from resources.decode.payload_schemas import Unfit
from resources.schema_registry.client import Schema
from tests.cases import each_case
from tests.registry import LocalRegistry, framed, register

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id", "user"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "user": {"$ref": "#/definitions/user"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": ["string", "null"], "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "score": {"anyOf": [{"type": "null"}, {"type": "number"}]},
        "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        "either": {"type": ["string", "integer"]},
    },
    "definitions": {
        "user": {"type": "object", "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/definitions/user"}}},
    },
}
TYPES = {
    "id": "BIGINT", "user": "STRUCT(name VARCHAR, boss JSON)", "at": "TIMESTAMP WITH TIME ZONE", "day": "DATE",
    "tags": "VARCHAR[]", "score": "DOUBLE", "more": "JSON", "either": "JSON",
}  # fmt: skip


def kind(**more: Any) -> Format:
    return Format.model_validate({"type": "json", "validate": True, **more})


def decode(format_: Format, payloads: list[bytes], columns: dict[str, str]) -> Decoded:
    return decoder(format_, Columns.of(columns)).decode(Payloads.of(payloads))


def test_columns_have_the_types_of_the_schema_and_bad_records_say_where_and_why() -> None:
    format_ = kind(schema=json.dumps(ORDER))
    good = b'{"id": 1, "user": {"name": "x", "boss": {"name": "y"}}, "score": 3, "extra": true}'
    assert sampled(format_, [good]).to_dict() == {**TYPES, "extra": "BOOLEAN"}
    payloads = [
        good, b'{"id": 0, "user": {}}', b'{"id": 1}', b'{"id": 1, "user": {"name": 5}}',
        b'{"id": 1, "user": {}, "tags": ["a", 2]}', b"not JSON", b"[1]", b'{"id": 2, "user": {}, "day": null}',
        b'{"id": 1, "id": 2, "user": {}}', b'{"id": 1, "user": {"boss": {"boss": {"name": 1}}}}',
    ]  # fmt: skip
    decoded = decode(format_, payloads, TYPES)
    assert decoded.kept == [0, 7]
    assert [row["id"] for row in decoded.table.to_pylist()] == [1, 2]
    assert decoded.table.to_pylist()[0]["user"] == {"name": "x", "boss": '{"name":"y"}'}
    assert decoded.new_columns.to_dict() == {"extra": "BOOLEAN"}
    reasons = dict(decoded.rejects)
    assert reasons[1].startswith("id: 0 is less than the minimum of 1")
    assert reasons[2].startswith('the record: "user" is a required property')
    assert reasons[3].startswith('user.name: 5 is not of type "string"')
    assert reasons[4].startswith('tags[1]: 2 is not of type "string"')
    assert reasons[5].startswith("not JSON")
    assert reasons[6].startswith('the record: [1] is not of type "object"')
    assert reasons[8].startswith("duplicate member 'id'") or "duplicate" in reasons[8]
    assert reasons[9].startswith('user.boss.boss.name: 1 is not of type "string"')
    assert sorted(reasons) == [1, 2, 3, 4, 5, 6, 8, 9]


def test_each_record_by_the_schema_that_a_registry_has_for_it(local_registry: LocalRegistry) -> None:
    url = local_registry.url
    register(url, "user", {"type": "object", "properties": {"name": {"type": "string"}}}, "JSON")
    text = {"type": "object", "properties": {"user": {"$ref": "user.json"}}}
    first = register(url, "s", text, "JSON", [{"name": "user.json", "subject": "user", "version": 1}])
    second = register(
        url, "s", {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}, "JSON"
    )
    avro = register(url, "t", '"long"')
    broken = register(url, "u", {"type": 5}, "JSON")
    payloads = [
        framed(first, b'{"user": {"name": "x"}}'), framed(first, b'{"user": {"name": 5}}'), framed(second, b'{"n": 1}'),
        framed(second, b'{"user": 1}'), b"{}", framed(99, b"{}"), framed(avro, b"{}"), framed(broken, b"{}"),
    ]  # fmt: skip
    decoded = decode(kind(registry=url), payloads, {"n": "BIGINT", "user": "JSON"})
    assert decoded.table.to_pylist() == [{"n": None, "user": '{"name":"x"}'}, {"n": 1, "user": None}]
    assert decoded.kept == [0, 2]
    reasons = dict(decoded.rejects)
    assert reasons[1].startswith('user.name: 5 is not of type "string"')
    assert reasons[3].startswith("the record: Additional properties are not allowed")
    assert reasons[4] == "not in the registry's wire format: expected at least 5 bytes, found 2"
    assert reasons[5] == "schema 99 is not in the registry"
    assert reasons[6] == f"schema {avro}: wrong type of schema: expected JSON, found AVRO"
    assert reasons[7].startswith(f"schema {broken}: the schema cannot be used")


def test_an_address_in_a_schema_is_never_asked(local_registry: LocalRegistry) -> None:
    asked = len(local_registry.asked)
    for where in (f"{local_registry.url}/schemas/ids/1", "file:///etc/passwd", "other.json"):
        with pytest.raises(Unfit, match=r"not fetched|not present"):
            JsonSchema(Schema("JSON", json.dumps({"type": "object", "properties": {"a": {"$ref": where}}})))
    assert len(local_registry.asked) == asked


@each_case("text", ["{", '{"type": "nonsense"}', '{"pattern": "("}', "[" * 100_000], ids=lambda text: text[:20])
def test_a_schema_that_is_none_says_so(text: str) -> None:
    with pytest.raises(Unfit, match="the schema"):
        JsonSchema(Schema("JSON", text))


def test_a_pattern_that_takes_for_ever_is_a_reason() -> None:
    schema = JsonSchema(Schema("JSON", '{"properties": {"a": {"pattern": "^(?=(a+)+$)b"}}}'))
    assert schema.reason({"a": "a" * 50_000 + "!"}, 50_010) is not None


def test_records_by_paths_are_validated_too() -> None:
    format_ = kind(schema=json.dumps(ORDER), mapping={"name": "user::name"})
    decoded = decode(format_, [b'{"id": 1, "user": {"name": "x"}}', b'{"id": "1", "user": {"name": "x"}}'], {"name": "VARCHAR"})
    assert decoded.table.to_pylist() == [{"name": "x"}]
    assert decoded.rejects[0][0] == 1 and decoded.rejects[0][1].startswith('id: "1" is not of type "integer"')


def test_a_small_schema_that_makes_very_many_columns_is_refused() -> None:
    made = {f"L{n}": {"type": "object", "properties": {x: {"$ref": f"#/$defs/L{n + 1}"} for x in "abcd"}} for n in range(9)}
    made["L9"] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    text = {"type": "object", "properties": {"a": {"$ref": "#/$defs/L0"}}, "$defs": made}
    with pytest.raises(Unfit, match="more than 20,000 columns and members"):
        JsonSchema(Schema("JSON", json.dumps(text)))
