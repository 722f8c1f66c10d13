"""Members of a MAP's values, and of JSON text, that the column's type lacks: in all formats reported, none dropped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.errors import TransformFailed
from kpipe.schema.columns import Columns
from resources.decode.arrow.decoder import ArrowDecoder, BatchReader
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder
from resources.decode.growth_guard import Bound
from tests.cases import each_case

ROWS = [{"id": 0, "m": {"k": {"a": 1}}}, {"id": 1, "m": {"k": {"a": 1, "b": 2}}}, {"id": 2, "m": {"k": {"a": 1, "b": None}}}]
MAP, STRUCT = "MAP(VARCHAR, STRUCT(a BIGINT))", "STRUCT(k STRUCT(a BIGINT))"


def _json(rows: list[Any]) -> tuple[Format, list[bytes]]:
    return Format(), [json.dumps(row).encode() for row in rows]


def _mapped(rows: list[Any]) -> tuple[Format, list[bytes]]:
    return Format.model_validate({"mapping": {"id": "id", "m": "m"}}), _json(rows)[1]


def _csv(rows: list[Any]) -> tuple[Format, list[bytes]]:
    kind = Format.model_validate({"type": "csv", "fields": ["id", "m"], "delimiter": ";", "quote": ""})
    return kind, [f"{row['id']};{json.dumps(row['m'])}".encode() for row in rows]


def _connect(rows: list[Any]) -> tuple[Format, list[bytes]]:
    item = {"type": "struct", "fields": [{"field": name, "type": "int64", "optional": True} for name in "ab"]}
    of = {"type": "map", "keys": {"type": "string"}, "values": item, "field": "m"}
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, of]}
    return Format(schemas_enable=True), [json.dumps({"schema": schema, "payload": row}).encode() for row in rows]


def _debezium(rows: list[Any]) -> tuple[Format, list[bytes]]:
    item = {"type": "struct", "fields": [{"field": name, "type": "int64", "optional": True} for name in "ab"]}
    of = {"type": "map", "keys": {"type": "string"}, "values": item, "field": "m"}
    image = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, of], "optional": True}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "fields": fields}
    events = ({"before": None, "after": row, "op": "c"} for row in rows)
    return Format(type="debezium"), [json.dumps({"schema": schema, "payload": event}).encode() for event in events]


def _avro(rows: list[Any]) -> tuple[Format, list[bytes]]:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in "ab"]
    of = {"type": "map", "values": {"type": "record", "name": "Item", "fields": fields}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "m", "type": of}]}
    texts = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        texts.append(out.getvalue())
    return Format(type="avro", schema=json.dumps(schema)), texts


FORMATS: dict[str, Callable[[list[Any]], tuple[Format, list[bytes]]]] = {
    "json": _json, "mapped": _mapped, "csv": _csv, "connect": _connect, "debezium": _debezium, "avro": _avro,
}  # fmt: skip


def _decoded(name: str, rows: list[Any], kind: str, **bound: Any) -> Decoded:
    columns = Columns.of({"id": "BIGINT", "m": kind})
    form, payloads = FORMATS[name](rows)
    unique = Columns.of({"id": "BIGINT"}) if name == "debezium" else None
    return decoder(form, columns, bound=Bound(columns, **bound), unique=unique).decode(Payloads.of(payloads))


@each_case("name", list(FORMATS))
def test_a_record_that_adds_a_member_to_a_maps_values_is_a_reject_alone(name: str) -> None:
    found = _decoded(name, ROWS, MAP)
    assert [at for at, _ in found.rejects] == [1] and "a MAP's values (b)" in found.rejects[0][1]
    assert found.table.column("id").to_pylist() == [0, 2] and not found.new_columns


@each_case("name", list(FORMATS))
def test_where_no_record_is_rejected_the_member_is_reported(name: str) -> None:
    found = _decoded(name, ROWS, MAP, rejects=False)
    assert found.table.column("id").to_pylist() == [0, 1, 2] and not found.rejects
    assert str(found.new_columns.get("m")) == "MAP(VARCHAR, STRUCT(b BIGINT))"


@each_case("name", ["json", "mapped", "csv", "avro"])
def test_json_text_adds_its_members_to_a_struct(name: str) -> None:
    found = _decoded(name, ROWS, STRUCT)
    assert found.table.column("id").to_pylist() == [0, 1, 2] and not found.rejects
    assert str(found.new_columns.get("m")) == "STRUCT(k STRUCT(b BIGINT))"


def test_a_dead_letter_of_csv_adds_no_members() -> None:
    kind = Format.model_validate({"type": "csv", "fields": ["id", "m"], "delimiter": ";", "quote": ""})
    columns = Columns.of({"id": "BIGINT", "m": "STRUCT(a BIGINT)"})
    lines = [b'x;{"a": 1, "b": 2}', b'1;{"a": 1, "c": 2}', b'2;{"a": "y", "d": 2}']
    found = decoder(kind, columns, bound=Bound(columns)).decode(Payloads.of(lines))
    assert [at for at, _ in found.rejects] == [0, 2] and str(found.new_columns.get("m")) == "STRUCT(c BIGINT)"


def test_members_deeper_inside_are_reported_where_they_are() -> None:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in "ab"]
    of: Any = {"type": "map", "values": {"type": "record", "name": "Item", "fields": fields}}
    for outer in ({"type": "array", "items": of}, {"type": "record", "name": "Inner", "fields": [{"name": "s", "type": of}]}):
        schema = {"type": "record", "name": "R", "fields": [{"name": "o", "type": outer}]}
        listed = outer["type"] == "array"
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"o": [{"k": {"a": 1, "b": 2}}] if listed else {"s": {"k": {"a": 1, "b": 2}}}})
        columns = Columns.of({"o": f"{MAP}[]" if listed else f"STRUCT(s {MAP})"})
        form = Format(type="avro", schema=json.dumps(schema))
        found = decoder(form, columns, bound=Bound(columns, rejects=False)).decode(Payloads.of([out.getvalue()]))
        more = "MAP(VARCHAR, STRUCT(b BIGINT))"
        assert str(found.new_columns.get("o")) == (f"{more}[]" if listed else f"STRUCT(s {more})")
        bad = decoder(form, columns, bound=Bound(columns)).decode(Payloads.of([out.getvalue()]))
        assert [at for at, _ in bad.rejects] == [0] and "a MAP's values (b)" in bad.rejects[0][1]


def test_a_program_that_adds_a_member_to_a_maps_values_fails() -> None:
    item = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    columns = Columns.of({"m": MAP})

    def rows(b: int | None) -> Any:
        batch = pa.record_batch({"m": pa.array([{"k": {"a": 1, "b": b}}], pa.struct([("k", item)]))})
        (one,) = BatchReader(batch.schema, "t/0 [0, 9)").read(batch)
        return one

    assert ArrowDecoder(columns, Bound(columns)).decode(rows(None)).rows == 1
    with pytest.raises(TransformFailed, match=r"a MAP's values \(b\)") as failed:
        ArrowDecoder(columns, Bound(columns)).decode(rows(2))
    assert failed.value.phase == "work", "a record may be the cause"
    told = ArrowDecoder(columns, Bound(columns, rejects=False)).decode(rows(2))
    assert str(told.new_columns.get("m")) == "MAP(VARCHAR, STRUCT(b BIGINT))"
