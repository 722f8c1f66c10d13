"""Avro to columns: types, new columns, conversions, and bad records."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.native import NativeAvro
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Payloads
from resources.decode.payload_schemas import Unfit
from tests.cases import each_case
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode.avro.records import decode, logical, record, written


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
        "maps": ['{"k":null}', '{"z":"/w==","n":"inf"}'],
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
    assert reasons[1] == "id: the record ends inside this value (0 bytes): not written with this schema"
    assert "user.name: the record ends inside this value" in reasons[2]
    assert reasons[3] == "1 bytes after the datum: not written with this schema"
    assert reasons[4] == "user.name: not UTF-8 at byte 0"
    assert reasons[5] == "id: a number of more than 64 bits"
    assert "user.name: the record ends inside" in reasons[6]
    assert "is out of range for timestamp-millis as TIMESTAMP WITH TIME ZONE" in reasons[7]
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


@each_case(
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


@each_case(
    ("schema", "words"),
    [
        ('{"type": "record"', "not JSON"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Gone"}]}', "does not define 'Gone'"),
        (json.dumps(record(("a", "int"), ("A", "int"))), "duplicate"), (json.dumps(record()), "no field"),
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


@each_case(
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
        (2, "not in the registry's wire format: expected at least 5 bytes, found 0"),
        (3, "not in the registry's wire format: expected first byte 0, found 1"),
        (4, "schema 99 is not in the registry"),
        (5, f"schema {text}: wrong type of schema: expected AVRO, found JSON"),
        (7, f"schema {broken}: the schema does not define 'Gone'"),
    ]
