"""Values of a topic in Protobuf: what Google's library reads, by the compiled schema, is what was written."""

from __future__ import annotations

import random
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message

from kpipe.definition.formats import Format
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, parse_type
from resources.decode.block import Payloads
from resources.decode.protobuf.decoder import ProtobufDecoder
from resources.decode.protobuf.descriptors import Files
from resources.destinations.kafka_sink.protobuf_schema import derived, text
from resources.destinations.kafka_sink.protobuf_values import ProtobufValues
from resources.destinations.kafka_sink.rejected_rows import Misfits
from resources.duckdb_engine.arrow_types import staged_type
from tests.cases import each_case

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6)
_ZONED = _MOMENT.replace(tzinfo=timezone.utc)
#: Type, values as staged, values as read (None: the same).
_CASES: list[tuple[str, list[Any], list[Any] | None]] = [
    ("BOOLEAN", [True, False], None),
    ("TINYINT", [-128, 127, 0], None),
    ("USMALLINT", [65535], None),
    ("INTEGER", [-(2**31), 2**31 - 1, 0, -1], None),
    ("UINTEGER", [2**32 - 1], None),
    ("BIGINT", [-(2**63), 2**63 - 1, 0], None),
    ("UBIGINT", [2**64 - 1, 0], None),
    ("HUGEINT", [str(-(2**127)), "0"], None),
    ("FLOAT", [1.5, float("inf")], None),
    ("DOUBLE", [0.1, float("-inf"), 1e308], None),
    ("DECIMAL(38,10)", [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1E-7")],
     ["-1234567890123456789012345678.0123456789", "0.0000001000"]),
    ("VARCHAR", ["", "Köln 🚲\0", "x" * 200], None),
    ("JSON", ['{"a": 1}'], None),
    ("BLOB", [b"", b"\0\xff"], None),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31), 2**31 - 1], ["0001-01-01", "9999-12-31", "infinity"]),
    ("TIME", [time(23, 59, 59, 999_999), time(0), 86_400_000_000], ["23:59:59.999999", "00:00:00", "24:00:00"]),
    ("TIMESTAMP", [_MOMENT, -(2**63 - 1)], ["2026-01-02T03:04:05.000006", "-infinity"]),
    ("TIMESTAMP WITH TIME ZONE", [_ZONED, *(day.replace(tzinfo=timezone.utc) for day in (datetime.min, datetime.max))], None),
    ("INTEGER[]", [[], [1, -2, 3]], None),
    ("VARCHAR[][]", [[["a"], [], ["b", "c"]]], None),
    ("MAP(VARCHAR, BIGINT)", [[("a", 1), ("", 0)], []], [{"a": 1, "": 0}, {}]),
    ("MAP(VARCHAR, INTEGER[])", [[("a", [1, 2])]], [{"a": [1, 2]}]),
    ("MAP(VARCHAR, STRUCT(t BOOLEAN))", [[("k", {"t": True})]], [{"k": {"t": True}}]),
    ("STRUCT(a INTEGER, b STRUCT(a VARCHAR))",
     [{"a": 1, "b": {"a": "x"}}, {"a": None, "b": None}, {"a": 0, "b": {"a": None}}], None),
    ("STRUCT(a INTEGER, c STRUCT(c STRUCT(c INTEGER)[])[])[]",
     [[{"a": 1, "c": []}, {"a": None, "c": [{"c": [{"c": 5}]}]}]], None),
]  # fmt: skip


def descriptor(columns: Columns) -> Any:
    return Files(text(derived(columns))).named("Row")


def row(data: bytes, kind: Any) -> Message:
    return message_factory.GetMessageClass(kind).FromString(data)


def value(found: Any, field: Any) -> Any:
    """A field as Python's value; None: not set."""
    if field.is_repeated:
        items = getattr(found, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields[1]
            return {key: single(items[key], inner) for key in items}
        return [single(item, field) for item in items]
    return single(getattr(found, field.name), field) if found.HasField(field.name) else None


def single(item: Any, field: Any) -> Any:
    if field.message_type is None:
        return item
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return item.ToDatetime(tzinfo=timezone.utc)
    inner = field.message_type.fields
    if len(inner) == 1 and inner[0].name == "items":
        return value(item, inner[0])
    return {part.name: value(item, part) for part in inner}


def table(kind: str, values: list[Any]) -> pa.Table:
    return pa.table({"c": pa.array(values, staged_type(parse_type(kind)))})


def misfit(values: ProtobufValues, block: pa.Table) -> dict[int, str]:
    with pytest.raises(Misfits) as caught:
        values.rows(block)
    return caught.value.reasons


@each_case(("kind", "given", "read"), _CASES, ids=[case[0] for case in _CASES])
def test_google_reads_what_was_written_of_each_type(kind: str, given: list[Any], read: list[Any] | None) -> None:
    columns = Columns.of({"c": kind})
    made = descriptor(columns)
    found = ProtobufValues(columns, made).rows(table(kind, [*given, None]))
    field = made.fields[0]
    nothing: Any = {} if kind.startswith("MAP") else [] if kind.endswith("[]") else None
    assert [value(row(data, made), field) for data in found] == [*(given if read is None else read), nothing]


@each_case(("kind", "given", "read"), _CASES, ids=[case[0] for case in _CASES])
def test_kpipe_reads_what_was_written_of_each_type(kind: str, given: list[Any], read: list[Any] | None) -> None:
    columns = Columns.of({"c": kind})
    schema = text(derived(columns))
    found = ProtobufValues(columns, Files(schema).named("Row")).rows(table(kind, given))
    decoded = ProtobufDecoder(Format(type="protobuf", definition=schema), Columns()).decode(Payloads.of(found))
    assert decoded.rejects == [] and decoded.rows == len(given)


def test_rows_may_lack_columns_and_have_narrower_types() -> None:
    columns = Columns.of({"a": "BIGINT", "b": "DOUBLE", "c": "DECIMAL(20,2)", "d": "STRUCT(x BIGINT, y VARCHAR)"})
    made = descriptor(columns)
    given = {
        "B": pa.array([7], pa.int32()),
        "c": pa.array([5], pa.int16()),
        "d": pa.array([{"X": 2}], pa.struct([("X", pa.int32())])),
    }
    (found,) = ProtobufValues(columns, made).rows(pa.table(given))
    read = row(found, made)
    assert {field.name: value(read, field) for field in made.fields} == {"a": None, "b": 7.0, "c": "5", "d": {"x": 2, "y": None}}


@each_case(
    ("kind", "given", "reason"),
    [
        ("INTEGER[]", [1, None], "c: item 2 of the list is NULL"),
        ("VARCHAR[][]", [["a"], None], "c: item 2 of the list is NULL"),
        ("STRUCT(x INTEGER)[]", [None], "c: item 1 of the list is NULL"),
        ("MAP(VARCHAR, BIGINT)", [("k", None)], "c: the value of 'k' in the map is NULL"),
        ("TIMESTAMP WITH TIME ZONE", 2**63 - 1, "c: the time is not in the years 1 to 9999"),
        ("TIMESTAMP", 2**62, "c: the timestamp is not in the years 1 to 9999"),
        ("DATE", 2**30, "c: the date is not in the years 1 to 9999"),
        ("STRUCT(x STRUCT(t TIMESTAMP WITH TIME ZONE))", {"x": {"t": 2**63 - 1}}, "c.x.t: the time is not"),
    ],
    ids=["item", "list", "record", "map", "instant", "timestamp", "date", "nested"],
)
def test_a_value_that_protobuf_does_not_have_is_refused_by_name(kind: str, given: Any, reason: str) -> None:
    columns = Columns.of({"c": kind})
    found = misfit(ProtobufValues(columns, descriptor(columns)), table(kind, [None, given, None, given]))
    assert list(found) == [1, 3] and found[1].startswith(reason), found


_OWN = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "confluent/type/decimal.proto";
message Order {
  enum State { NEW = 0; PAID = 7; }
  sint64 id = 900; optional fixed32 n = 2; State state = 3; google.protobuf.Timestamp at = 4;
  google.protobuf.StringValue note = 5; confluent.type.Decimal price = 6;
  repeated sfixed64 sizes = 8 [packed = false]; optional string later = 7;
  oneof one { int32 left = 10; int32 right = 11; }
}"""


def test_a_schema_of_the_user_is_written_exactly() -> None:
    columns = Columns.of({
        "ID": "BIGINT", "n": "BIGINT", "state": "VARCHAR", "at": "TIMESTAMP", "note": "VARCHAR", "price": "DECIMAL(9,2)",
        "sizes": "INTEGER[]",
    })  # fmt: skip
    made = Files(_OWN).named("shop.Order")
    given = {"ID": -5, "n": 2**32 - 1, "state": "PAID", "at": _MOMENT, "note": "", "price": Decimal("-1.28"), "sizes": [1, -2]}
    rows = [given, {**given, "n": None, "note": None, "price": None, "at": None, "sizes": None}]
    schema = pa.schema([(name, staged_type(kind)) for name, kind in columns])
    first, second = (row(data, made) for data in ProtobufValues(columns, made).rows(pa.Table.from_pylist(rows, schema)))
    assert isinstance(first, Message)
    read: Any = first
    assert (read.id, read.n, read.state, list(read.sizes)) == (-5, 2**32 - 1, 7, [1, -2])
    assert (read.at.ToDatetime(), read.HasField("note"), read.note.value) == (_MOMENT, True, "")
    assert (int.from_bytes(read.price.value, "big", signed=True), read.price.precision, read.price.scale) == (-128, 9, 2)
    assert not any(second.HasField(name) for name in ("n", "note", "price", "at", "later"))
    for name, wrong, reason in (
        ("ID", None, "ID: NULL, but the field in the registered schema is not optional"),
        ("n", 2**32, "n: 4294967296 is not fixed32"),
        ("n", -1, "n: -1 is not fixed32"),
        ("state", "GONE", "state: 'GONE' is not a value of the enum shop.Order.State"),
    ):
        block = pa.Table.from_pylist([{**given, name: wrong}], schema)
        assert misfit(ProtobufValues(columns, made), block)[0].startswith(reason)


@each_case(
    ("columns", "words"),
    [
        ({"id": "BIGINT", "other": "BIGINT"}, "column other: .* message shop.Order has no field of that name"),
        ({"id": "DOUBLE"}, "column id: .* expected a field for DOUBLE, found sint64"),
        ({"sizes": "BIGINT"}, "column sizes: .* expected a field for BIGINT, found a repeated one"),
        ({"at": "VARCHAR"}, r"column at: .* expected a field for VARCHAR, found google\.protobuf\.Timestamp"),
        ({"left": "INTEGER"}, "column left: .* is in a oneof"),
        ({"note": "STRUCT(value VARCHAR)"}, r"column note: .* expected a field for STRUCT\(value VARCHAR\), found string"),
    ],
    ids=["missing", "type", "repeated", "message", "oneof", "wrapper"],
)
def test_a_schema_that_does_not_fit_the_columns_is_refused(columns: dict[str, str], words: str) -> None:
    with pytest.raises(SchemaConflict, match=words):
        ProtobufValues(Columns.of(columns), Files(_OWN).named("shop.Order"))


def test_fields_that_proto2_requires_need_a_column_and_a_value() -> None:
    made = Files('syntax = "proto2"; message M { required int64 id = 1; optional int64 n = 2; }').named("M")
    with pytest.raises(SchemaConflict, match="message M requires id, and no column has that name"):
        ProtobufValues(Columns.of({"n": "BIGINT"}), made)
    values = ProtobufValues(Columns.of({"id": "BIGINT"}), made)
    assert "is required" in misfit(values, pa.table({"id": pa.array([None], pa.int64())}))[0]


def test_numbers_at_random_are_read_back() -> None:
    chance = random.Random(7)
    numbers = [chance.randrange(-(1 << bits), 1 << bits) for bits in range(63) for _ in range(20)]
    columns = Columns.of({"c": "BIGINT"})
    made = descriptor(columns)
    found = ProtobufValues(columns, made).rows(pa.table({"c": pa.array(numbers, pa.int64())}))
    assert [value(row(data, made), made.fields[0]) for data in found] == numbers
