"""Schemas of Protobuf that are derived from columns: the compiler accepts them, and numbers never change."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, parse_type
from resources.decode.protobuf.descriptors import Files
from resources.destinations.kafka_sink.protobuf_schema import derived, is_derived, text
from tests.cases import each_case

_WIDE = {
    "id": "BIGINT", "price": "DECIMAL(9,2)", "at": "TIMESTAMP WITH TIME ZONE", "tags": "VARCHAR[]", "_": "BLOB",
    "google": "STRUCT(google STRUCT(protobuf INTEGER))", "Row": "STRUCT(row INTEGER)", "message": "DOUBLE", "optional": "BOOLEAN",
    "string": "UUID", "reserved": "DATE", "syntax": "JSON", "map": "MAP(VARCHAR, STRUCT(map MAP(VARCHAR, BIGINT)[]))",
    "Nested": "STRUCT(Nested STRUCT(nested INTEGER)[][])[]", "_1": "STRUCT(x UINTEGER)", "def": "HUGEINT",
    "Timestamp": "TIMESTAMP",
}  # fmt: skip


def compiled(made: FileDescriptorProto) -> FileDescriptorProto:
    return Files(text(made)).root


def test_hostile_names_compile_and_the_compiled_schema_is_recognized_and_extended() -> None:
    first = compiled(derived(Columns.of(_WIDE)))
    assert is_derived(first) and first.dependency == ["google/protobuf/timestamp.proto"]
    assert text(derived(Columns.of(_WIDE), first)) == text(first)
    grown = {
        **_WIDE, "new": "INTEGER", "google": "STRUCT(google STRUCT(protobuf INTEGER, more VARCHAR))",
        "map": "MAP(VARCHAR, STRUCT(map MAP(VARCHAR, BIGINT)[], y DOUBLE))",
        "Nested": "STRUCT(Nested STRUCT(nested INTEGER, z DATE)[][])[]",
    }  # fmt: skip
    order = dict(reversed(grown.items()))
    second = compiled(derived(Columns.of(order), first))
    before = {field.name: field.number for field in first.message_type[0].field}
    after = {field.name: field.number for field in second.message_type[0].field}
    assert after == {**before, "new": len(before) + 1}
    added = [line.strip() for line in text(second).splitlines() if line not in text(first).splitlines()]
    assert set(added) == {
        "optional int32 new = 18;", "optional string more = 2;", "optional double y = 2;", "optional string z = 2;"
    }  # fmt: skip


def test_numbers_skip_those_that_protobuf_reserves() -> None:
    file = derived(Columns.of({"a": "BIGINT"}))
    file.message_type[0].field[0].number = 18_999
    assert [field.number for field in derived(Columns.of({"a": "BIGINT", "b": "BIGINT"}), file).message_type[0].field] == [
        18_999,
        20_000,
    ]


@each_case(
    ("schema", "own"),
    [
        ("message Row { optional int64 id = 5; }", True),
        ("message Row { int64 id = 1; }", False),
        ("message Order { optional int64 id = 1; }", False),
        ("package p; message Row { optional int64 id = 1; }", False),
        ("message Row { optional int64 id = 1; } message Other {}", False),
        ("message Row { optional int64 id = 1; reserved 2; }", False),
        ("message Row { optional int64 id = 1 [deprecated = true]; }", False),
        ('message Row { optional int64 id = 1 [json_name = "x"]; }', False),
        ("message Row { oneof o { int64 id = 1; } }", False),
        ("message Row { enum E { A = 0; } optional E e = 1; }", False),
        ("message Row { optional sint64 id = 1; }", False),
        ("message Row { map<int32, string> m = 1; }", False),
        ('option java_package = "p"; message Row { optional int64 id = 1; }', False),
    ],
)  # fmt: skip
def test_only_a_schema_that_can_be_written_again_without_a_loss_is_extended(schema: str, own: bool) -> None:
    assert is_derived(Files(f'syntax = "proto3"; {schema}').root) is own


@each_case(
    ("columns", "words"),
    [
        ({"a-b": "INTEGER"}, "column 'a-b': expected a name of letters, digits and _"),
        ({"1a": "INTEGER"}, "column '1a'"),
        ({"é": "INTEGER"}, "column 'é'"),
        ({"s": 'STRUCT("a b" INTEGER)'}, r"column 's\.a b'"),
        ({"a_b": "INTEGER", "aB": "INTEGER"}, "columns a_b and aB: both are 'aB' in Protobuf's JSON"),
        ({"m": "MAP(VARCHAR, INTEGER)", "MEntry": "INTEGER"}, "column m: its map needs the name MEntry"),
        ({"x": "STRUCT(a INTEGER)" + "[]" * 40}, "nested in more than 30 messages"),
    ],
)
def test_what_protobuf_does_not_have_is_refused(columns: dict[str, str], words: str) -> None:
    with pytest.raises(SchemaConflict, match=words):
        derived(Columns(tuple((name, parse_type(kind)) for name, kind in columns.items())))


def test_a_column_that_has_the_name_of_a_message_is_refused_when_it_is_added() -> None:
    known = derived(Columns.of({"foo_bar": "STRUCT(x INTEGER)"}))
    with pytest.raises(SchemaConflict, match=r"columns foo_bar and FooBar|column FooBar: the schema has a message of that name"):
        derived(Columns.of({"foo_bar": "STRUCT(x INTEGER)", "FooBar": "INTEGER"}), known)
