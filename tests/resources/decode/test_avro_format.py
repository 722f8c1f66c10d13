"""Avro to columns: what fastavro writes comes out again, spoilt data never do, compiled and plain code agree."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns, Struct
from kpipe_assets.validation.formats import check_formats
from resources.decode.avro import decoder as avro_format
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.native import NativeAvro
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Decoded, Payloads
from resources.decode.payload_schemas import Unfit
from tests.registry import LocalRegistry, framed, register


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """A schema from (name, type) pairs."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def written(schema: Any, *rows: Any) -> list[bytes]:
    parsed, found = fastavro.parse_schema(schema), []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        found.append(buffer.getvalue())
    return found


def decode(schema: Any, payloads: list[bytes], columns: dict[str, str] | None = None) -> Decoded:
    """With the columns that the schema has, unless others are given."""
    kind = Format(type="avro", schema=json.dumps(schema))
    known = plan(json.dumps(schema)).columns if columns is None else Columns.of(columns)
    return AvroDecoder(kind, known).decode(Payloads.of(payloads))


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading."""
    if request.param == "plain":
        monkeypatch.setattr(avro_format, "native_avro", lambda _: None)
    return str(request.param)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def test_every_type_becomes_its_column(way: str) -> None:
    schema = record(
        ("flag", "boolean"),
        ("small", "int"),
        ("large", "long"),
        ("half", "float"),
        ("real", "double"),
        ("raw", "bytes"),
        ("text", "string"),
        ("four", {"type": "fixed", "name": "Four", "size": 4}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("maybe", ["null", "string"]),
        ("either", ["long", "null"]),
        ("nothing", "null"),
        ("tags", {"type": "array", "items": "string"}),
        ("inner", record(("x", "int"), ("again", ["null", "Kind"]), name="Inner")),
        ("money", logical("bytes", "decimal", precision=9, scale=2)),
        ("coin", {"type": "fixed", "name": "Coin", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 3}),
        ("day", logical("int", "date")),
        ("clock", logical("int", "time-millis")),
        ("clocks", logical("long", "time-micros")),
        ("at", logical("long", "timestamp-millis")),
        ("exact", logical("long", "timestamp-micros")),
        ("local", logical("long", "local-timestamp-micros")),
        ("nanos", logical("long", "timestamp-nanos")),
        ("id", logical("string", "uuid")),
        ("map", {"type": "map", "values": "int"}),
        ("any", ["null", "int", "string"]),
    )
    assert plan(json.dumps(schema)).columns.to_dict() == {
        "flag": "BOOLEAN", "small": "INTEGER", "large": "BIGINT", "half": "FLOAT", "real": "DOUBLE", "raw": "BLOB",
        "text": "VARCHAR", "four": "BLOB", "kind": "VARCHAR", "maybe": "VARCHAR", "either": "BIGINT", "tags": "VARCHAR[]",
        "inner": "STRUCT(x INTEGER, again VARCHAR)", "money": "DECIMAL(9,2)", "coin": "DECIMAL(10,3)", "day": "DATE",
        "clock": "TIME", "clocks": "TIME", "at": "TIMESTAMP WITH TIME ZONE", "exact": "TIMESTAMP WITH TIME ZONE",
        "local": "TIMESTAMP", "nanos": "BIGINT", "id": "UUID", "map": "JSON", "any": "JSON",
    }  # fmt: skip
    moment = datetime(2026, 11, 21, 1, 2, 3, 456000, timezone.utc)
    full = {
        "flag": True, "small": -5, "large": 2**62, "half": 0.5, "real": 1e300, "raw": b"\0\xff", "text": "ä\n€",
        "four": b"abcd", "kind": "B", "maybe": "x", "either": 7, "nothing": None, "tags": ["a", ""],
        "inner": {"x": 1, "again": "A"}, "money": Decimal("-1234567.89"), "coin": Decimal("1.250"), "day": date(1969, 12, 31),
        "clock": time(23, 59, 59, 999000), "clocks": time(1, 2, 3, 4), "at": moment, "exact": moment.replace(microsecond=1),
        "local": datetime(2026, 1, 2, 3, 4, 5, 6), "nanos": 2**60 + 1, "id": str(UUID(int=9)), "map": {"b": 1, "a": 2},
        "any": "text",
    }  # fmt: skip
    empty = {**full, "maybe": None, "either": None, "tags": [], "inner": {"x": 0, "again": None}, "map": {}, "any": None}
    decoded = decode(schema, written(schema, full, empty))
    assert not decoded.rejects and decoded.kept is None
    told = decoded.table.to_pylist()
    for row, source in zip(told, (full, empty), strict=True):
        wanted = {name: value for name, value in source.items() if name != "nothing"}
        wanted["map"] = json.dumps(source["map"], separators=(",", ":"))
        wanted["any"] = None if source["any"] is None else json.dumps(source["any"])
        assert row == wanted


def test_what_no_column_is_exact_for_is_json(way: str) -> None:
    schema = record(
        ("value", "int"),
        ("next", ["null", "R"]),
        ("maps", {"type": "array", "items": {"type": "map", "values": ["null", "bytes", "double"]}}),
        ("inner", record(("m", ["null", {"type": "map", "values": logical("int", "date")}]), name="I")),
        ("big", logical("bytes", "decimal", precision=50, scale=2)),
    )
    inner = {"m": {"d": date(2026, 1, 2)}}
    last = {"value": 2, "next": None, "maps": [], "inner": inner, "big": Decimal("0.10")}
    row = {
        "value": 1,
        "next": ("R", last),
        "maps": [{"k": None}, {"z": b"\xff", "n": float("inf")}],
        "inner": {"m": None},
        "big": Decimal("1" * 40 + ".25"),
    }
    (told,) = decode(schema, written(schema, row)).table.to_pylist()
    assert told == {
        "value": 1,
        "next": '{"value":2,"next":null,"maps":[],"inner":{"m":{"d":"2026-01-02"}},"big":0.10}',
        "maps": ['{"k":null}', '{"z":"ÿ","n":"inf"}'],
        "inner": {"m": None},
        "big": "1" * 40 + ".25",
    }


def test_a_bad_record_says_why_and_stops_no_neighbour(way: str) -> None:
    schema = record(("id", "long"), ("at", logical("long", "timestamp-millis")), ("user", record(("name", "string"), name="U")))
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    good = written(schema, *({"id": n, "at": at, "user": {"name": "x"}} for n in range(4)))
    head = good[0][:-2]
    bad = [
        b"", good[0][:-1], good[0] + b"\0", head + b"\x02\xff", b"\xff" * 11, head + b"\x80\x80\x80\x80\x80\x20",
        b"\0" + b"\xfe" * 9 + b"\x01" + good[0][-2:], head + b"\x01",
    ]  # fmt: skip
    decoded = decode(schema, [good[0], *bad, *good[1:]])
    assert decoded.table.column("id").to_pylist() == [0, 1, 2, 3]
    assert decoded.kept == [0, 9, 10, 11]
    reasons = dict(decoded.rejects)
    assert sorted(reasons) == list(range(1, 9))
    assert reasons[1] == "id: the record ends inside of it (0 bytes): not written with this schema"
    assert "user.name: the record ends inside of it" in reasons[2]
    assert reasons[3] == "1 bytes are left over behind the datum: not written with this schema"
    assert reasons[4] == "user.name: not UTF-8 at byte 0"
    assert reasons[5] == "id: a number of more than 64 bits"
    assert "user.name: the record ends inside" in reasons[6]
    assert "is no timestamp-millis that a TIMESTAMP WITH TIME ZONE can hold" in reasons[7]
    assert "user.name: a length of -1" in reasons[8]


def test_numbers_without_end_do_not_fill_memory(way: str) -> None:
    schema = record(("tags", {"type": "array", "items": "int"}))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1
    negative = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -2**63
    for payload in (huge, negative + huge, negative + b"\x02\x02", huge + b"\x02\x02"):
        assert len(decode(schema, [payload]).rejects) == 1
    with pytest.raises(Unfit, match="an array whose items have no bytes"):
        plan(json.dumps(record(("nulls", {"type": "array", "items": "null"}))))


def test_a_block_that_is_too_large_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(("id", "int"))
    payloads = written(schema, *({"id": at} for at in range(7)))
    native = NativeAvro.decode

    def small(self: Any, block: Payloads, chosen: Any, skip: int) -> Any:
        if len(chosen) > 2 or 5 in chosen:
            raise MemoryError
        return native(self, block, chosen, skip)

    monkeypatch.setattr(NativeAvro, "decode", small)
    decoded = decode(schema, [*payloads, b""])
    assert decoded.table.column("id").to_pylist() == [0, 1, 2, 3, 4, 6]
    assert decoded.kept == [0, 1, 2, 3, 4, 6]
    assert [at for at, _ in decoded.rejects] == [5, 7] and "too large" in decoded.rejects[0][1]


def test_fields_beyond_the_columns_are_new_columns_and_missing_ones_are_null(way: str) -> None:
    schema = record(("id", "int"), ("user", record(("name", "string"), ("age", "int"), name="U")), ("_kafka_x", "int"))
    payloads = written(schema, {"id": 1, "user": {"name": "x", "age": 3}, "_kafka_x": 1})
    decoded = decode(schema, payloads, {"ID": "BIGINT", "user": "STRUCT(name VARCHAR, mail VARCHAR)", "gone": "DATE"})
    assert decoded.new_columns.to_dict() == {"user": "STRUCT(age INTEGER)"}
    assert decoded.table.to_pylist() == [{"ID": 1, "user": {"name": "x", "mail": None}, "gone": None}]
    assert decode(schema, payloads, {}).new_columns.to_dict() == {
        "id": "INTEGER",
        "user": "STRUCT(name VARCHAR, age INTEGER)",
    }
    assert not decode(schema, [b"\xff"], {}).new_columns, "a record that is none proves no column"


@pytest.mark.parametrize(
    ("kind", "value", "column", "wanted"),
    [
        ("int", 7, "DOUBLE", 7.0), ("int", 300, "UTINYINT", None), ("int", 200, "UTINYINT", 200),
        ("long", 2**40, "INTEGER", None),
        ("double", 3.0, "BIGINT", 3), ("double", 3.5, "BIGINT", None), ("double", float("nan"), "BIGINT", None),
        ("double", 1e300, "FLOAT", None), ("double", 0.1, "DECIMAL(4,2)", Decimal("0.10")), ("int", 5, "VARCHAR", "5"),
        ("long", -(2**63), "HUGEINT", str(-(2**63))), ("string", "12", "BIGINT", 12), ("string", "x", "BIGINT", None),
        ("string", "2026-01-02", "DATE", date(2026, 1, 2)), ("string", "a", "BLOB", b"a"), ("bytes", b"a", "VARCHAR", "a"),
        ("bytes", b"\xff", "VARCHAR", None), ("boolean", True, "INTEGER", None), ("boolean", True, "VARCHAR", "true"),
        ("long", 5, "TIMESTAMP", None), (logical("int", "date"), date(2026, 1, 2), "TIMESTAMP", datetime(2026, 1, 2)),
        (logical("long", "timestamp-micros"), datetime(2026, 1, 2, tzinfo=timezone.utc), "TIMESTAMP", datetime(2026, 1, 2)),
        (logical("long", "timestamp-micros"), datetime(2026, 1, 2, tzinfo=timezone.utc), "DATE", None),
        (logical("bytes", "decimal", precision=9, scale=2), Decimal("1.25"), "DOUBLE", 1.25),
        (logical("bytes", "decimal", precision=9, scale=2), Decimal("1.25"), "INTEGER", None),
        (logical("string", "uuid"), "no uuid", "UUID", None), ({"type": "array", "items": "int"}, [1, 2], "JSON", "[1,2]"),
        ({"type": "array", "items": "int"}, [1, 2], "BIGINT[]", [1, 2]), ({"type": "array", "items": "int"}, [1], "BIGINT", None),
        ({"type": "array", "items": "long"}, [1, 2**40], "INTEGER[]", None), ("double", float("nan"), "JSON", None),
        (record(("a", "int"), name="A"), {"a": 1}, "VARCHAR", '{"a":1}'),
        ({"type": "map", "values": "int"}, {"a": 1}, "STRUCT(a INTEGER)", {"a": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_other_types_are_converted_where_nothing_is_lost(kind: Any, value: Any, column: str, wanted: Any) -> None:
    schema = record(("v", kind), ("n", "int"))
    payloads = written(schema, {"v": value, "n": 1})
    decoded = decode(schema, payloads, {"v": column, "n": "INTEGER"})
    if wanted is None:
        assert decoded.rows == 0
        assert [at for at, _ in decoded.rejects] == [0]
        assert decoded.rejects[0][1].startswith("v") and " is not a" in decoded.rejects[0][1]
    else:
        assert decoded.table.to_pylist() == [{"v": wanted, "n": 1}]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "record"', "not JSON"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Gone"}]}', "what 'Gone' is"),
        (json.dumps(record(("a", "int"), ("A", "int"))), "twice"), (json.dumps(record()), "no field"),
        (json.dumps(record(("a", {"type": "enum", "name": "E"}))), "without symbols"), ("[" * 5000, "not JSON|deeply"),
        ('{"type":"array","items":' * 70 + '"int"' + "}" * 70, "too deeply"),
        ("{}", "without a type"), ("[]", "union of nothing"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_schema_that_is_none_says_why(schema: str, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        plan(schema)


def doubling(levels: int, wrap: Callable[[Any], Any] = lambda kind: kind) -> str:
    """Records that each hold the next one twice: a small text, 2 ** levels columns."""
    kind: Any = {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, levels + 1):
        fields = [{"name": "a", "type": wrap(kind)}, {"name": "b", "type": wrap(f"L{level - 1}")}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    return json.dumps(kind)


@pytest.mark.parametrize(
    "wrap",
    [lambda kind: kind, lambda kind: ["null", kind], lambda kind: {"type": "array", "items": kind}],
    ids=["record", "optional", "array"],
)
def test_a_small_schema_that_makes_very_many_columns_is_refused(wrap: Callable[[Any], Any]) -> None:
    assert len(str(plan(doubling(8, wrap)).columns)) > 2**8
    with pytest.raises(Unfit, match=r"L13 makes more than 20,000 columns and members"):  # 2 ** 15 - 2 of them
        plan(doubling(28, wrap))


def test_a_schema_that_is_no_record_is_one_column() -> None:
    assert plan('"string"', name="key").columns.to_dict() == {"key": "VARCHAR"}
    assert plan("long").columns.to_dict() == {"value": "BIGINT"}


def test_records_of_several_schemas_in_one_block(way: str, local_registry: LocalRegistry) -> None:
    old, new = record(("id", "int")), record(("id", "long"), ("name", ["null", "string"]))
    first, second = (register(local_registry.url, "s", item) for item in (old, new))
    text = register(local_registry.url, "t", '{"type": "object"}', "JSON")
    broken = register(local_registry.url, "u", '"Gone"')
    payloads = [framed(second, item) for item in written(new, {"id": 2**40, "name": "x"}, {"id": 5, "name": None})]
    payloads[1:1] = [framed(first, written(old, {"id": 3})[0]), b"", b"\x01abcd", framed(99, b""), framed(text, b"{}")]
    payloads.append(framed(broken, b""))
    kind = Format(type="avro", registry=local_registry.url)
    columns = AvroDecoder(kind, Columns()).decode(Payloads.of(payloads)).new_columns
    assert columns.to_dict() == {"id": "BIGINT", "name": "VARCHAR"}
    decoded = AvroDecoder(kind, columns).decode(Payloads.of(payloads))
    assert decoded.table.to_pylist() == [{"id": 2**40, "name": "x"}, {"id": 3, "name": None}, {"id": 5, "name": None}]
    assert decoded.kept == [0, 1, 6]
    assert decoded.rejects == [
        (2, "not in the registry's wire format: 0 bytes, and its prefix alone has 5"),
        (3, "not in the registry's wire format: it begins with byte 1, not 0"),
        (4, "schema 99 is not known to the registry"),
        (5, f"schema {text}: it is of kind JSON, not AVRO"),
        (7, f"schema {broken}: the schema does not say what 'Gone' is"),
    ]


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
    with pytest.raises(InvalidPipeline, match="DEFAULT 'x' of id is no BIGINT"):
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
    '"wide":123456789012345678901234567890.012345678901234567890123456789,"raw":"a","four":"bcde","e":"B",'
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


@pytest.mark.parametrize(
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


@settings(max_examples=120, deadline=None)
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


# -- a reader's schema beside a registry --------------------------------------------------------------------------------


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
    )  # fmt: skip
    for field in reader["fields"]:
        field |= {
            "new": {"aliases": ["old"]},
            "none": {"default": None},
            "at": {"default": 1000},
            "some": {"default": [1, 2]},
        }.get(field["name"], {})
    full = {"id": 5, "real": 0.5, "old": "was", "raw": "ä".encode(), "text": "é", "left": 1, "kind": "B",
            "in": {"x": 3, "gone": "g"}, "list": [{"x": 1, "gone": ""}, {"x": 2, "gone": ""}], "map": {"a": 1},
            "maybe": 7}  # fmt: skip
    bare = {**full, "in": None, "list": [], "kind": "A", "maybe": None}
    decoded = resolved(local_registry, schema, reader, [full, {**full, "raw": b"\xff"}, bare])
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    wanted = {"id": 5, "real": 0.5, "new": "was", "raw": "ä", "text": "é".encode(), "kind": "Z", "in": {"more": "d", "x": 3.0},
              "list": [{"more": "d", "x": 1.0}, {"more": "d", "x": 2.0}], "map": '{"a":1}', "maybe": 7, "none": None, "at": at,
              "some": [1, 2]}  # fmt: skip
    assert decoded.table.to_pylist() == [wanted, {**wanted, "kind": "A", "in": None, "list": [], "maybe": None}]
    assert decoded.rejects == [(1, "raw: not UTF-8 at byte 0")]
    theirs = fastavro.schemaless_reader(io.BytesIO(written(schema, full)[0]), schema, reader)
    ours = decoded.table.to_pylist()[0]
    assert theirs["at"] == 1000  # fastavro leaves a default as it is written
    assert {**theirs, "map": json.dumps(theirs["map"], separators=(",", ":")), "at": at} == ours


@pytest.mark.parametrize(
    ("kind", "value", "reader", "words"),
    [
        ("long", 1, "int", "v is long (BIGINT) in the record's schema, and int (INTEGER) in the reader's"),
        ("string", "x", "long", "v is string"),
        (["null", "int"], None, "int", "v: null, which the reader's schema does not take"),
        ("long", 2**53 + 1, "double", "v: 9007199254740993 is no double"),
        ("null", None, "int", "v is null in the record's schema"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", {"type": "enum", "name": "E", "symbols": ["A"]},
         "v: B is no symbol of the reader's schema"),
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
