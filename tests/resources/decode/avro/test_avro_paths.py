"""Values of Avro records by paths, and what fastavro writes comes out again."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns, Struct
from kpipe_assets.validation.definition import check_formats
from resources.decode.avro import decoder as avro_format
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Payloads
from resources.decode.factory import decoder
from resources.decode.payload_schemas import Unfit
from tests.cases import each_case
from tests.resources.decode.avro.records import decode, logical, record, written


def test_values_by_paths_absent_and_null_told_apart(way: str) -> None:
    inner = record(("name", ["null", "string"]), ("tags", {"type": "array", "items": "int"}), name="U")
    schema = record(("id", "long"), ("user", ["null", inner]), ("map", {"type": "map", "values": ["null", "int"]}))
    payloads = written(
        schema,
        {"id": 1, "user": {"name": "x", "tags": [5, 6]}, "map": {"a b": 1}},
        {"id": 2, "user": {"name": None, "tags": [7]}, "map": {"a b": None}},
        {"id": 3, "user": None, "map": {}},
    )
    mapping = {
        "ID": "ID",
        "name": {"path": "user::name", "default": "nobody"},
        "second": {"path": "user::tags::1", "default": 0},
        "one": {"path": "map::`a b`", "default": -1},
        "whole": "user",
        "gone": {"path": "no::where", "default": 2.5},
        "empty": {"path": "no::where", "default": None},
        "@v": "id",
    }
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(schema), "mapping": mapping})
    new = AvroDecoder(kind, Columns()).decode(Payloads.of(payloads)).new_columns
    assert new.to_dict() == {
        "ID": "BIGINT", "name": "VARCHAR", "second": "INTEGER", "one": "BIGINT",
        "whole": "STRUCT(name VARCHAR, tags INTEGER[])", "gone": "DOUBLE",
    }  # fmt: skip
    columns = Columns.of({**new.to_dict(), "one": "BIGINT", "whole": "JSON", "empty": "DATE", "@v": "VARCHAR"})
    decoded = AvroDecoder(kind, columns).decode(Payloads.of(payloads))
    assert not decoded.rejects and not decoded.new_columns
    rest = {"gone": 2.5, "empty": None}
    assert decoded.table.to_pylist() == [
        {"ID": 1, "name": "x", "second": 6, "one": 1, "whole": '{"name":"x","tags":[5,6]}', "@v": "1", **rest},
        {"ID": 2, "name": None, "second": 0, "one": None, "whole": '{"name":null,"tags":[7]}', "@v": "2", **rest},
        {"ID": 3, "name": "nobody", "second": 0, "one": -1, "whole": None, "@v": "3", **rest},
    ]
    strict = Format.model_validate({"type": "avro", "schema": json.dumps(schema), "mapping": {"name": "user::name"}})
    decoded = AvroDecoder(strict, Columns.of({"name": "VARCHAR"})).decode(Payloads.of(payloads))
    assert decoded.table.to_pylist() == [{"name": "x"}, {"name": None}]
    assert decoded.rejects == [(2, "name: the record has no user::name (DEFAULT NULL makes that NULL)")]
    wrong = Format.model_validate(
        {"type": "avro", "schema": json.dumps(schema), "mapping": {"id": {"path": "id", "default": "x"}}}
    )
    with pytest.raises(InvalidPipeline, match="DEFAULT 'x' of id is not a BIGINT"):
        AvroDecoder(wrong, Columns.of({"id": "BIGINT"})).decode(Payloads.of(payloads))


WHOLE = record(
    ("id", "long"),
    ("map", {"type": "map", "values": ["null", "string", "double"]}),
    ("either", ["null", "string", "long"]),
    ("it's", ["null", record(("x", ["null", "string"]), ("left", {"type": "int", "logicalType": "date"}), name="N")]),
    ("all", {"type": "array", "items": ["null", {"type": "map", "values": "long"}]}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("exact", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}),
    ("wide", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 30}]),
    ("raw", "bytes"),
    ("four", {"type": "fixed", "name": "F", "size": 4}),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    name="Whole",
)
_FULL = {
    "id": 2**62, "map": {"a": "650", "b": None, "c": 0.1}, "either": "t", "it's": {"x": None, "left": date(2020, 1, 1)},
    "all": [None, {"k": 2**62}], "at": datetime(2020, 1, 1, tzinfo=timezone.utc),
    "exact": Decimal("1234567890123456789.0123456789"),
    "wide": Decimal("123456789012345678901234567890.012345678901234567890123456789"),
    "raw": b"a", "four": b"bcde", "e": "B", "uuid": UUID(int=5),
}  # fmt: skip
_EMPTY = {
    **_FULL, "map": {}, "either": None, "it's": None, "all": [], "wide": None, "raw": b"", "e": "A",
}  # fmt: skip
_SAID = (
    '{"id":4611686018427387904,"map":{"a":"650","b":null,"c":0.1},"either":"t","it\'s":{"x":null,"left":"2020-01-01"},'
    '"all":[null,{"k":4611686018427387904}],"at":"2020-01-01 00:00:00+00","exact":1234567890123456789.0123456789,'
    '"wide":123456789012345678901234567890.012345678901234567890123456789,"raw":"YQ==","four":"YmNkZQ==","e":"B",'
    '"uuid":"00000000-0000-0000-0000-000000000005"}'
)


def test_the_whole_record_by_a_path(way: str) -> None:
    payloads = written(WHOLE, _FULL, _EMPTY)
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(WHOLE), "mapping": {"whole": "%", "id": "id"}})
    for type_ in ("JSON", "VARCHAR"):
        decoded = AvroDecoder(kind, Columns.of({"whole": type_, "id": "BIGINT"})).decode(Payloads.of(payloads))
        assert not decoded.rejects and not decoded.new_columns
        full, empty = decoded.table.column("whole").to_pylist()
        assert full == _SAID
        assert json.loads(empty) == {
            **json.loads(_SAID), "map": {}, "either": None, "it's": None, "all": [], "wide": None, "raw": "", "e": "A"
        }  # fmt: skip
    new = AvroDecoder(kind, Columns()).decode(Payloads.of(payloads)).new_columns
    assert new.to_dict() == {"whole": "JSON", "id": "BIGINT"}, "where nothing says what the whole is"
    fields = Columns((("whole", Struct(plan(json.dumps(WHOLE)).columns.items)),))
    table = AvroDecoder(kind, fields).decode(Payloads.of(payloads)).table
    row = table.column("whole").to_pylist()[0]
    assert (row["id"], row["map"], row["it's"]["left"]) == (2**62, '{"a":"650","b":null,"c":0.1}', date(2020, 1, 1))
    assert (row["exact"], row["raw"], row["e"], row["uuid"]) == (_FULL["exact"], b"a", "B", str(UUID(int=5)))
    part = AvroDecoder(kind, Columns.of({"whole": "STRUCT(id VARCHAR, gone DATE)"})).decode(Payloads.of(payloads))
    assert part.table.to_pylist()[0] == {"whole": {"id": str(2**62), "gone": None}} and "map" in str(
        part.new_columns.get("whole")
    )


def test_a_path_may_name_the_branch_of_a_union_with_null(way: str) -> None:
    """As SingleStore's paths do; a record that has not taken the branch gives NULL, also for what is inside of it."""
    inner = {"type": "record", "name": "event", "namespace": "com.example", "fields": [{"name": "at", "type": ["int", "null"]}]}
    schema = record(
        ("id", "long"), ("payload", ["null", "string"]), ("e", ["null", inner]), ("day", ["null", logical("int", "date")]),
        ("string", ["null", "string"]),
    )  # fmt: skip
    mapping = {
        "payload": "%::payload::string", "at": "e::`com.example.event`::at::int", "same": "e::at", "day": "day::int",
        "word": {"path": "string::string", "default": "none"},
    }  # fmt: skip
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(schema), "mapping": mapping})
    full = {"id": 1, "payload": "first", "e": {"at": 7}, "day": date(2026, 1, 2), "string": "w"}
    payloads = written(schema, full, {"id": 2, "payload": None, "e": {"at": None}, "day": None, "string": None})
    decoder = AvroDecoder(kind, Columns())
    new = decoder.decode(Payloads.of(payloads)).new_columns
    assert new.to_dict() == {"payload": "VARCHAR", "at": "INTEGER", "same": "INTEGER", "day": "DATE", "word": "VARCHAR"}
    found = AvroDecoder(kind, new).decode(Payloads.of(payloads))
    assert not found.rejects
    assert found.table.to_pylist() == [
        {"payload": "first", "at": 7, "same": 7, "day": date(2026, 1, 2), "word": "w"},
        {"payload": None, "at": None, "same": None, "day": None, "word": None},
    ]
    none = AvroDecoder(kind, new).decode(Payloads.of(written(schema, {**full, "e": None})))
    assert [reason for _, reason in none.rejects] == ["same: the record has no e::at (DEFAULT NULL makes that NULL)"]
    wrong = Format.model_validate({"type": "avro", "schema": json.dumps(schema), "mapping": {"p": "payload::int"}})
    assert len(AvroDecoder(wrong, Columns.of({"p": "INTEGER"})).decode(Payloads.of(payloads)).rejects) == 2


_RIDE = {"type": "record", "name": "ride", "namespace": "n", "fields": [{"name": "id", "type": "int"}]}


@each_case(
    ("root", "path", "word", "union"),
    [
        (record(("u", ["null", "int", "string"])), "u::int", "int", "u"),
        (record(("u", ["null", "int", "string"])), "%::u::string", "string", "u"),
        (record(("o", ["null", record(("u", ["int", _RIDE]), name="I")])), "o::u::`n.ride`::id", "n.ride", "o::u"),
        (["int", _RIDE], "%::`n.ride`::id", "n.ride", "%"),
        (["int", {"type": "map", "values": "int"}], "map", "map", "%"),
    ],
)
def test_a_branch_of_a_union_of_several_types_is_refused_by_name(root: Any, path: str, word: str, union: str) -> None:
    """A union of several types is JSON of the value alone: which branch it was is not said there."""
    with pytest.raises(Unfit) as refused:
        plan(json.dumps(root)).without_branches(parse_path(path))
    assert f"names {word}, a branch of a union of several types: map {union} itself" in str(refused.value)
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(root), "mapping": {"x": path}})
    found = AvroDecoder(kind, Columns.of({"x": "BIGINT"})).decode(Payloads.of([b"\0\0"]))
    assert [str(refused.value)] == [reason for _, reason in found.rejects]
    definition = {"name": "p", "source": {"brokers": "b:9092", "topic": "t"}, "into": {"table": "t"}}
    with pytest.raises(InvalidPipeline, match="a branch of a union of several types") as told:
        check_formats(Pipeline.model_validate({**definition, "format": kind.model_dump(by_alias=True)}))
    assert told.value.field == ("format", "mapping", "x")


def test_a_member_of_a_branch_that_is_called_as_a_type_is_a_member() -> None:
    inner = {"type": "record", "name": "r", "fields": [{"name": "int", "type": "string"}]}
    found = plan(json.dumps(record(("u", ["int", inner]))))
    assert found.without_branches(("u", "int")) == (("u", "int"), False)


def test_a_path_into_a_map_gives_the_value_and_not_its_json(way: str) -> None:
    mapping = {"a": "map::a", "c": {"path": "map::c", "default": None}, "m": "map", "u": "either"}
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(WHOLE), "mapping": mapping})
    payloads = Payloads.of(written(WHOLE, _FULL))
    new = AvroDecoder(kind, Columns()).decode(payloads).new_columns
    assert dict(new.to_dict()) == {"a": "VARCHAR", "c": "DOUBLE", "m": "JSON", "u": "JSON"}
    (row,) = AvroDecoder(kind, new).decode(payloads).table.to_pylist()
    assert row == {"a": "650", "c": 0.1, "m": '{"a":"650","b":null,"c":0.1}', "u": '"t"'}
    assert AvroDecoder(kind, Columns.of({"a": "BIGINT"})).decode(payloads).table.to_pylist() == [{"a": 650}]


_SCALARS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary(max_size=20)),
    "text": ("string", st.text(max_size=20).filter(lambda text: "\0" not in text)),
    "dec": (
        logical("bytes", "decimal", precision=6, scale=2),
        st.integers(-999_999, 999_999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
}
_NAMES = iter(f"n{at}" for at in range(10**9))


@st.composite
def typed(draw: Any, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """An Avro type and its values."""
    shape = draw(st.sampled_from(["scalar", "scalar", "optional", "array", "record"] if depth else ["scalar"]))
    if shape == "scalar":
        return _SCALARS[draw(st.sampled_from(sorted(_SCALARS)))]
    kind, values = draw(typed(depth - 1))
    if shape == "array":
        return {"type": "array", "items": kind}, st.lists(values, max_size=3)
    if shape == "optional" and not isinstance(kind, list):
        return ["null", kind], st.none() | values
    other, others = draw(typed(depth - 1))
    return record(("a", kind), ("b", other), name=next(_NAMES)), st.fixed_dictionaries({"a": values, "b": others})


@given(st.data())
def test_what_fastavro_writes_comes_out_again_and_what_is_spoilt_is_read_alike(data: Any) -> None:
    kinds = data.draw(st.lists(typed(), min_size=1, max_size=4))
    schema = record(*((f"f{at}", kind) for at, (kind, _) in enumerate(kinds)), name=next(_NAMES))
    row = st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(kinds)})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    payloads = written(schema, *rows)
    assert decode(schema, payloads).table.to_pylist() == rows
    spoilt = [bytearray(item) for item in payloads]
    for item in spoilt:
        for _ in range(data.draw(st.integers(0, 2))):
            if item:
                item[data.draw(st.integers(0, len(item) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del item[data.draw(st.integers(0, len(item))) :]
    damaged = [bytes(item) for item in spoilt]
    quick = decode(schema, damaged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_format, "native_avro", lambda _: None)
        slow = decode(schema, damaged)
    assert (str(quick.table.to_pylist()), quick.kept, quick.rejects) == (str(slow.table.to_pylist()), slow.kept, slow.rejects)


@pytest.mark.parametrize("name", ["é", "日本", "😀", "*", "a\nb", 'q"q', "a'b", "\\", "$", "[0]", "a.b"], ids=ascii)
def test_a_path_into_a_map_takes_names_as_they_are(name: str) -> None:
    schema = record(("m", {"type": "map", "values": ["long", {"type": "map", "values": "double"}]}))
    kind = Format(type="avro", schema=json.dumps(schema), mapping={"v": {"path": f"m::`{name}`", "default": None}})
    payloads = written(schema, {"m": {name: 7, "other": 8}}, {"m": {"other": 8}}, {"m": {name: {"x": 0.1}}})
    found = AvroDecoder(kind, Columns.of({"v": "JSON"})).decode(Payloads.of(payloads))
    assert (found.table.column("v").to_pylist(), found.rejects) == (["7", None, '{"x":0.1}'], [])


@each_case("kind", ["TIMESTAMP", "DATE", "TIMESTAMP WITH TIME ZONE"])
@each_case("default", ["infinity", "12026-01-01"])
def test_a_default_beyond_the_year_9999(kind: str, default: str) -> None:
    schema, paths = record(("id", "long")), {"until": {"path": "until", "default": default}}
    forms = (
        (Format.model_validate({"type": "avro", "schema": json.dumps(schema), "mapping": paths}), written(schema, {"id": 1})),
        (Format.model_validate({"mapping": paths}), [b'{"id": 1}']),
    )
    one, other = (decoder(form, Columns.of({"until": kind})).decode(Payloads.of(payloads)) for form, payloads in forms)
    assert one.rows == 1 and one.table.column("until").combine_chunks().equals(other.table.column("until").combine_chunks())
