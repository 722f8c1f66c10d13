"""Protobuf to columns: what google's library writes comes out again, spoilt data never do, compiled and plain code agree."""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns, Struct
from resources.decode.block import Decoded, Payloads
from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf import decoder
from resources.decode.protobuf.decoder import ProtobufDecoder
from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import plan
from resources.decode.protobuf.native import NativeProtobuf
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode import protobufs

_CLASSES: dict[tuple[str, str], type[Message]] = {}


def proto(body: str, syntax: str = "proto3") -> str:
    """A .proto file of package t."""
    return f'syntax = "{syntax}";\npackage t;\n{body}'


def made(text: str, name: str = "t.M") -> Any:
    """The class of a message."""
    if (text, name) not in _CLASSES:
        _CLASSES[text, name] = message_factory.GetMessageClass(Files(text).named(name))
    return _CLASSES[text, name]


def decode(text: str, payloads: list[bytes], columns: dict[str, str] | None = None, message: str = "t.M") -> Decoded:
    """With the columns that the schema has, unless others are given."""
    kind = Format(type="protobuf", schema=text, message=message)
    known = plan(Files(text).named(message)).columns if columns is None else Columns.of(columns)
    return ProtobufDecoder(kind, known).decode(Payloads.of(payloads))


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading."""
    if request.param == "plain":
        monkeypatch.setattr(decoder, "native_protobuf", lambda _: None)
    return str(request.param)


EVERY = proto("""
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; }
message In { int32 x = 1; repeated string names = 2; }
message M {
  bool flag = 1; int32 i32 = 2; int64 i64 = 3 [(confluent.field_meta).doc = "of ours"]; uint32 u32 = 4; uint64 u64 = 5;
  sint32 s32 = 6; sint64 s64 = 7; fixed32 f32 = 8; fixed64 f64 = 9; sfixed32 sf32 = 10; sfixed64 sf64 = 11;
  float half = 12; double real = 13; string text = 14; bytes raw = 15; E kind = 16;
  optional int32 maybe = 17; oneof choice { string one = 18; In other = 19; }
  repeated int32 packed = 20; repeated int32 loose = 21 [packed = false]; repeated In parts = 22;
  map<string, In> map = 23;
  google.protobuf.Timestamp at = 30; google.protobuf.Duration took = 31; google.protobuf.UInt64Value wrapped = 32;
  google.protobuf.Struct object = 33; google.protobuf.Value any = 34; google.protobuf.ListValue list = 35;
  google.protobuf.Any packet = 36; google.protobuf.Empty ping = 37; M again = 38; confluent.type.Decimal price = 39;
}
""")


def test_every_type_becomes_its_column(way: str) -> None:
    assert plan(Files(EVERY).named("t.M")).columns.to_dict() == {
        "flag": "BOOLEAN", "i32": "INTEGER", "i64": "BIGINT", "u32": "UINTEGER", "u64": "UBIGINT", "s32": "INTEGER",
        "s64": "BIGINT", "f32": "UINTEGER", "f64": "UBIGINT", "sf32": "INTEGER", "sf64": "BIGINT", "half": "FLOAT",
        "real": "DOUBLE", "text": "VARCHAR", "raw": "BLOB", "kind": "VARCHAR", "maybe": "INTEGER", "one": "VARCHAR",
        "other": "STRUCT(x INTEGER, names VARCHAR[])", "packed": "INTEGER[]", "loose": "INTEGER[]",
        "parts": "STRUCT(x INTEGER, names VARCHAR[])[]", "map": "JSON", "at": "TIMESTAMP WITH TIME ZONE",
        "took": "DECIMAL(21,9)", "wrapped": "UBIGINT", "object": "JSON", "any": "JSON", "list": "JSON",
        "packet": "STRUCT(type_url VARCHAR, value BLOB)", "ping": "JSON", "again": "JSON",
        "price": "STRUCT(value BLOB, precision UINTEGER, scale INTEGER)",
    }  # fmt: skip
    kind = made(EVERY)
    full = kind(
        flag=True, i32=-(2**31), i64=-(2**63), u32=2**32 - 1, u64=2**64 - 1, s32=-5, s64=-(2**63), f32=2**32 - 1, f64=2**64 - 1,
        sf32=-(2**31), sf64=2**63 - 1, half=0.5, real=1e300, text="ä\n€", raw=b"\0\xff", kind=1, maybe=0, other={"names": ["a"]},
        packed=[1, -1], loose=[1, -1], parts=[{}, {"x": 3}], map={"k": {"x": 1}}, price={"value": b"\x01", "scale": 2},
    )  # fmt: skip
    full.at.FromJsonString("2026-11-22T01:02:03.123456789Z")
    full.took.FromNanoseconds(-1_500_000_001)
    full.wrapped.SetInParent()
    full.object.update({"n": 3, "half": 0.5, "deep": {"list": [None, True, "x"]}})
    full.any.string_value = "text"
    full.list.extend([1, "a"])
    full.packet.Pack(kind(i32=1))
    full.ping.SetInParent()
    full.again.again.at.seconds = 1
    full.again.raw = b"\xff\xfe"
    full.again.half = 0.1
    full.again.took.nanos = 5
    empty: dict[str, Any] = {
        "flag": False, "half": 0, "real": 0,
        **dict.fromkeys(("i32", "i64", "u32", "u64", "s32", "s64", "f32", "f64", "sf32", "sf64"), 0),
        "text": "", "raw": b"", "kind": "ZERO", "packed": [], "loose": [], "parts": [], "map": "{}",
        **dict.fromkeys(("maybe", "one", "other", "at", "took", "wrapped", "object", "any", "list", "packet", "ping", "again",
                         "price")),
    }  # fmt: skip
    decoded = decode(EVERY, [full.SerializeToString(), b"", kind(one="").SerializeToString()])
    assert not decoded.rejects and decoded.kept is None
    first, second, third = decoded.table.to_pylist()
    assert second == empty
    assert third == {**empty, "one": ""}
    again, text_of = first.pop("again"), first.pop("object")
    assert first == {
        "flag": True,
        "i32": -(2**31),
        "i64": -(2**63),
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "s32": -5,
        "s64": -(2**63),
        "f32": 2**32 - 1,
        "f64": 2**64 - 1,
        "sf32": -(2**31),
        "sf64": 2**63 - 1,
        "half": 0.5,
        "real": 1e300,
        "text": "ä\n€",
        "raw": b"\0\xff",
        "kind": "ONE",
        "maybe": 0,
        "one": None,
        "other": {"x": 0, "names": ["a"]},
        "packed": [1, -1],
        "loose": [1, -1],
        "parts": [{"x": 0, "names": []}, {"x": 3, "names": []}],
        "map": '{"k":{"x":1,"names":[]}}',
        "at": datetime(2026, 11, 22, 1, 2, 3, 123456, timezone.utc),
        "took": Decimal("-1.500000001"),
        "wrapped": 0,
        "any": '"text"',
        "list": '[1,"a"]',
        "packet": {"type_url": "type.googleapis.com/t.M", "value": b"\x10\x01"},
        "ping": "{}",
        "price": {"value": b"\x01", "precision": 0, "scale": 2},
    }
    assert json.loads(text_of) == {"n": 3, "half": 0.5, "deep": {"list": [None, True, "x"]}}
    assert again.startswith('{"flag":false,"i32":0') and '"raw":"//4=","kind":"ZERO"' in again
    assert '"half":0.1,' in again and '"took":0.000000005' in again and '"again":{"flag":false' in again
    assert '"at":"1970-01-01T00:00:01Z"' in again


def test_proto2_presence_defaults_groups_and_required(way: str) -> None:
    text = proto(
        """
        enum E { A = 5; B = 0; }
        message M {
          required int32 id = 1; optional string name = 2; optional int32 seven = 3 [default = 7];
          optional string hello = 4 [default = "hé"]; optional E kind = 5; optional E given = 6 [default = B];
          repeated group Part = 7 { optional int32 x = 1; } optional group One = 8 { repeated string s = 1; }
          optional double low = 9 [default = -inf]; optional bytes raw = 10 [default = "\\377"];
          optional bool yes = 11 [default = true];
          extensions 100 to 200;
        }
        extend M { optional string more = 100; }
        """,
        "proto2",
    )
    kind = made(text)
    bare = {"name": None, "seven": 7, "hello": "hé", "kind": None, "given": "B", "part": [], "one": None, "low": float("-inf"),
            "raw": b"\xff", "yes": True}  # fmt: skip
    given = kind(id=2, name="", seven=0, hello="", kind=5, part=[{}, {"x": 1}], one={"s": ["a", "b"]}, yes=False)
    decoded = decode(text, [kind(id=1).SerializeToString(), given.SerializeToString(), b"", b"\x08\x01\xa2\x06\x01x"])
    assert decoded.table.to_pylist() == [
        {"id": 1, **bare},
        {**bare, "id": 2, "name": "", "seven": 0, "hello": "", "kind": "A", "part": [{"x": None}, {"x": 1}],
         "one": {"s": ["a", "b"]}, "yes": False},
        {"id": 1, **bare},
    ]  # fmt: skip
    assert decoded.rejects == [(2, "id: missing, and the schema requires it: not written with this schema")]


def test_an_enums_unknown_number_is_kept_as_its_digits(way: str) -> None:
    for syntax, label in (("proto3", ""), ("proto2", "optional")):
        text = proto(f"enum E {{ A = 0; B = -2; }} message M {{ {label} E e = 1; repeated E es = 2; }}", syntax)
        payloads = [b"\x08\x07", b"\x08\xfe" + b"\xff" * 8 + b"\x01", b"\x08\xfd" + b"\xff" * 8 + b"\x01\x12\x02\x00\x09"]
        assert decode(text, payloads).table.to_pylist() == [
            {"e": "7", "es": []}, {"e": "B", "es": []}, {"e": "-3", "es": ["A", "9"]},
        ]  # fmt: skip


SMALL = proto("""
message In { string name = 1; int32 n = 2; }
message M { int32 i = 1; string s = 2; bool b = 3; uint32 u = 4; In in = 5; repeated fixed32 r = 6;
  oneof c { int32 x = 7; In y = 8; }
  map<string, string> m = 9; sint32 z = 10; int64 l = 11; }
""")


def test_a_bad_record_says_why_and_stops_no_neighbour(way: str) -> None:
    huge = b"\xff" * 9 + b"\x01"
    cases: list[tuple[bytes, str]] = [
        (b"\x08", "i: the message ends inside of it (1 bytes): cut off, or not written with this schema"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "i: a number of more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "i: a number of more than 64 bits"),
        (b"\x08\x80\x80\x80\x80\x08", "i: 2147483648 is not an int32: not written with this schema"),
        (b"\x18\x02", "b: 2 is not a bool: not written with this schema"),
        (b"\x20" + huge, "u: 18446744073709551615 is not a uint32: not written with this schema"),
        (b"\x50\x80\x80\x80\x80\x10", "z: 2147483648 is not a sint32: not written with this schema"),
        (b"\x12\x02\xc3\x28", "s: not UTF-8 at byte 0"),
        (b"\x12\x05ab", "s: the message ends inside of it (4 bytes): cut off, or not written with this schema"),
        (b"\x12" + huge, "s: the message ends inside of it (11 bytes): cut off, or not written with this schema"),
        (b"\x2a\x03\x0a\x01\xff", "in.name: not UTF-8 at byte 0"),
        (b"\x0a\x01a", "i: a length and bytes where the schema has int32: not written with this schema"),
        (b"\x10\x01", "s: a varint where the schema has string: not written with this schema"),
        (b"\x32\x03abc", "r: the message ends inside of it (3 bytes): cut off, or not written with this schema"),
        (b"\x00", "the record: byte 0 begins no field: not written with this schema"),
        (b"\x0e\x01", "the record: byte 0 begins no field: not written with this schema"),
        (b"\x88\x80\x80\x80\x80\x01\x01", "the record: byte 0 begins no field: not written with this schema"),
        (b"\x0c", "i: wire type 4 where the schema has int32: not written with this schema"),
        (b"\xa4\x06", "the record: a group 100 ends that did not begin: not written with this schema"),
        (b"\xa3\x06\x08\x01", "the record: the message ends inside of it (4 bytes): cut off, or not written with this schema"),
        (b"\xa3\x06" * 200 + b"\xa4\x06" * 200, "the record: nested too deeply"),
        (b"\x4a\x06\x0a\x01\xff\x12\x01a", "m: key: not UTF-8 at byte 0"),
        (b"\x4a\x03\x0a\x05a", "m: key: the message ends inside of it (3 bytes): cut off, or not written with this schema"),
    ]
    good = made(SMALL)(i=1, s="x", **{"in": {"name": "y"}}, r=[1], m={"a": "b"}).SerializeToString()
    payloads = [good]
    for bad, _ in cases:
        payloads += [bad, good + bad, good]
    decoded = decode(SMALL, payloads)
    assert decoded.kept == [0, *range(3, len(payloads), 3)]
    assert len({str(row) for row in decoded.table.to_pylist()}) == 1
    reasons = dict(decoded.rejects)
    assert [reasons[at] for at in range(1, len(payloads), 3)] == [why for _, why in cases]
    assert sorted(reasons) == [at for at in range(len(payloads)) if at % 3 and at]


def test_a_bad_part_does_not_stop_a_sample(way: str) -> None:
    good = made(SMALL)(m={"a": "b"}).SerializeToString()
    decoded = decode(SMALL, [good, b"\x4a\x03\x0a\x01\xff"], {})
    assert decoded.rejects == [(1, "m: key: not UTF-8 at byte 0")]
    assert decoded.new_columns.to_dict()["m"] == "JSON"


def test_what_is_written_twice_is_merged_as_protobuf_says(way: str) -> None:
    kind = made(SMALL)
    one, two = kind(i=1, s="a", x=5, **{"in": {"name": "n"}}, r=[1]), kind(i=2, y={"name": "y"}, **{"in": {"n": 3}}, r=[2])
    both = one.SerializeToString() + two.SerializeToString()
    back = kind(y={"name": "y"}).SerializeToString() + kind(x=5).SerializeToString() + kind(y={"n": 2}).SerializeToString()
    twice = kind(m={"k": "old"}).SerializeToString() + kind(m={"k": "new"}).SerializeToString()
    decoded = decode(SMALL, [both, back, twice])
    wanted = [protobufs.row(kind.FromString(item)) for item in (both, back, twice)]
    assert protobufs.told(decoded.table.to_pylist(), kind.DESCRIPTOR) == wanted
    assert (
        wanted[0]["in"] == {"name": "n", "n": 3} and wanted[0]["i"] == 2 and wanted[0]["x"] is None and wanted[0]["r"] == [1, 2]
    )
    assert wanted[1]["y"] == {"name": "", "n": 2} and wanted[2]["m"] == {"k": "new"}


def test_unknown_fields_are_passed_over_at_any_depth(way: str) -> None:
    new = SMALL.replace("int32 n = 2;", "int32 n = 2; repeated In more = 77;").replace(
        "map<string", "group_like extra = 300; map<string"
    )
    new = new.replace("message M", "message group_like { string a = 1; double d = 2; fixed32 f = 3; } message M")
    kind = made(new)
    row = kind(i=1, **{"in": {"n": 2, "more": [{"name": "gone"}]}}, extra={"a": "x", "d": 1, "f": 2}).SerializeToString()
    decoded = decode(SMALL, [row, row + b"\xab\x06\x08\x01\xac\x06"])
    assert not decoded.rejects
    assert [item["in"] for item in decoded.table.to_pylist()] == [{"name": "", "n": 2}] * 2


def test_messages_inside_of_themselves_and_deep_nesting(way: str) -> None:
    text = proto("message M { int32 v = 1; M next = 2; repeated M all = 3; B b = 4; } message B { M m = 1; int32 x = 2; }")
    kind = made(text)
    assert plan(Files(text).named("t.M")).columns.to_dict() == {"v": "INTEGER", "next": "JSON", "all": "JSON[]", "b": "JSON"}
    deep = b""
    for _ in range(300):
        length = bytes([len(deep)]) if len(deep) < 128 else bytes([len(deep) & 127 | 128, len(deep) >> 7])
        deep = b"\x12" + length + deep
    row = kind(v=1, next={"v": 2}, all=[{}, {"v": 3}], b={"x": 1})
    decoded = decode(text, [row.SerializeToString(), deep, b""])
    assert decoded.table.to_pylist() == [
        {"v": 1, "next": '{"v":2,"all":[]}', "all": ['{"v":0,"all":[]}', '{"v":3,"all":[]}'], "b": '{"x":1}'},
        {"v": 0, "next": None, "all": [], "b": None},
    ]
    ((at, why),) = decoded.rejects
    assert at == 1 and why.startswith("next: next.next.next") and why.endswith(": nested too deeply")


def test_times_that_no_column_has_are_reasons(way: str) -> None:
    text = proto(
        'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";'
        "message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; }"
    )
    kind = made(text)
    rows = [kind(), kind(), kind(), kind(), kind(), kind()]
    rows[0].t.seconds, rows[1].t.seconds, rows[2].t.nanos = 253402300800, -62135596801, -1
    rows[3].d.seconds, rows[4].d.seconds, rows[5].t.seconds = 315576000001, 1, -62135596800
    rows[4].d.nanos = -1
    decoded = decode(text, [row.SerializeToString() for row in rows])
    assert decoded.table.to_pylist() == [{"t": datetime(1, 1, 1, tzinfo=timezone.utc), "d": None}]
    assert [why.split(":")[0] for _, why in decoded.rejects] == ["t", "t", "t", "d", "d"]


def test_values_go_into_the_tables_columns_or_say_why(way: str) -> None:
    text = proto("message In { int64 a = 1; } message M { int64 n = 1; uint64 u = 2; string s = 3; In in = 4; int32 new = 5; }")
    kind = made(text)
    rows = [kind(n=1, u=2**64 - 1, s="2026-01-02", **{"in": {"a": 1}}), kind(n=2**40, s="2026-01-02"), kind(s="x"), kind(u=5)]
    columns = {"N": "INTEGER", "u": "HUGEINT", "s": "DATE", "in": "JSON", "gone": "BIGINT"}
    decoded = decode(text, [row.SerializeToString() for row in rows], columns)
    assert decoded.new_columns.to_dict() == {"new": "INTEGER"}
    assert decoded.table.to_pylist()[0]["in"] == '{"a":1}' and decoded.table.to_pylist()[0]["gone"] is None
    assert decoded.rejects == [(1, "n: 1099511627776 is not an INTEGER"), (2, 's: "x" is not a DATE'), (3, 's: "" is not a DATE')]


def test_values_by_paths_absent_and_null_told_apart(way: str) -> None:
    mapping = {"id": "i", "name": {"path": "in::name", "default": "nobody"}, "key": {"path": "m::a", "default": None},
               "first": {"path": "r::0", "default": -1}}  # fmt: skip
    kind = Format.model_validate({"type": "protobuf", "schema": SMALL, "message": "t.M", "mapping": mapping})
    rows = [made(SMALL)(i=1, **{"in": {}}, m={"a": "b"}, r=[7]).SerializeToString(), b""]
    columns = ProtobufDecoder(kind, Columns()).decode(Payloads.of(rows)).new_columns
    assert columns.to_dict() == {"id": "INTEGER", "name": "VARCHAR", "key": "VARCHAR", "first": "UINTEGER"}
    wanted = Columns.of({**columns.to_dict(), "key": "VARCHAR", "first": "BIGINT"})
    assert ProtobufDecoder(kind, wanted).decode(Payloads.of(rows)).table.to_pylist() == [
        {"id": 1, "name": "", "key": "b", "first": 7}, {"id": 0, "name": "nobody", "key": None, "first": -1},
    ]  # fmt: skip


def test_the_whole_message_by_a_path(way: str) -> None:
    kind = Format.model_validate({"type": "protobuf", "schema": SMALL, "message": "t.M", "mapping": {"whole": "%", "in": "in"}})
    rows = [made(SMALL)(i=1, s="x", r=[7], y={"n": 2}, m={"a": "650"}, l=2**62, **{"in": {"name": "n"}}).SerializeToString(), b""]
    said = {
        "i": 1, "s": "x", "b": False, "u": 0, "in": {"name": "n", "n": 0}, "r": [7], "x": None, "y": {"name": "", "n": 2},
        "m": {"a": "650"}, "z": 0, "l": 2**62,
    }  # fmt: skip
    none = {**said, "i": 0, "s": "", "in": None, "r": [], "y": None, "m": {}, "l": 0}
    for type_ in ("JSON", "VARCHAR"):
        decoded = ProtobufDecoder(kind, Columns.of({"whole": type_, "in": "JSON"})).decode(Payloads.of(rows))
        assert not decoded.rejects and list(map(json.loads, decoded.table.column("whole").to_pylist())) == [said, none]
    new = ProtobufDecoder(kind, Columns()).decode(Payloads.of(rows)).new_columns
    assert new.to_dict()["whole"] == "JSON", "where nothing says what the whole is"
    fields = ProtobufDecoder(Format.model_validate({**kind.model_dump(by_alias=True), "mapping": None}), Columns())
    natural = fields.decode(Payloads.of(rows)).new_columns
    table = ProtobufDecoder(kind, Columns((("whole", Struct(natural.items)),))).decode(Payloads.of(rows)).table
    assert [row["whole"] for row in table.to_pylist()] == [{**said, "m": '{"a":"650"}'}, {**none, "m": "{}"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message M {", "cannot be compiled: the schema:1"), ("aGVsbG8=", "no descriptor set"), ("", "holds no file"),
        (proto("message A { Gone g = 1; } message M {int32 i=1;}"), "cannot be compiled: .*Gone"),
        (proto('import "other.proto"; message M { int32 i = 1; }'), "cannot be compiled: other.proto: File not found"),
        (proto("message M { }"), "has no field that could be a column"), (proto("message X { }"), "no message t.M"),
        (proto("message M { int32 a = 1; string A_ = 2; int32 b = 3; int32 B = 4; }"), "twice|conflict|camel"),
        (proto("message M { option message_set_wire_format = true; extensions 4 to max; }", "proto2"), "MessageSet"),
        (proto("message M { L0 a = 1; }" + "".join(f"message L{n} {{ L{n + 1} a = 1; }}" for n in range(80))
               + "message L80 { int32 x = 1; }"), "nested too deeply"),
        (proto("message M { L0 a = 1; }" + "".join(f"message L{n} {{ L{n + 1} a = 1; L{n + 1} b = 2; }}" for n in range(40))
               + "message L40 { int32 x = 1; }"), "more than 20,000 columns"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_schema_that_is_none_says_why(text: str, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        plan(Files(text).named("t.M"))


def test_names_of_references_are_no_paths() -> None:
    text = proto('import "../x.proto"; message M { int32 i = 1; }')
    for name in ("../x.proto", "/etc/x.proto", "a//b.proto", "a b.proto", "a/../../b.proto", ".x", "a\0b"):
        with pytest.raises(Unfit, match=r"which is no name of a \.proto file"):
            Files(text, [(name, 'syntax = "proto3";')])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**64))
@example(1)
@example(1218)
def test_what_googles_library_writes_comes_out_again_and_what_is_spoilt_is_read_alike(seed: int) -> None:
    dice = Random(seed)
    text, kind = protobufs.loaded(protobufs.schema(dice))
    messages = [protobufs.filled(dice, kind()) for _ in range(4)]
    payloads = [item.SerializeToString() for item in messages]
    decoded = decode(text, payloads)
    assert not decoded.rejects
    assert protobufs.alike(protobufs.told(decoded.table.to_pylist(), kind.DESCRIPTOR), [protobufs.row(item) for item in messages])
    damaged = [spoilt(dice, item, payloads) for item in payloads * 3]
    quick = decode(text, damaged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "native_protobuf", lambda _: None)
        slow = decode(text, damaged)
    assert (str(quick.table.to_pylist()), quick.kept, quick.rejects) == (str(slow.table.to_pylist()), slow.kept, slow.rejects)
    reasons, rows = dict(quick.rejects), iter(protobufs.told(quick.table.to_pylist(), kind.DESCRIPTOR))
    for at, item in enumerate(damaged):
        theirs: Any = None
        try:
            read = kind.FromString(item)
            theirs = protobufs.row(read) if read.IsInitialized() else None
        except (DecodeError, UnicodeDecodeError, OverflowError):
            pass
        if at not in reasons:  # what we take, google's library takes, and reads alike
            assert theirs is not None
            assert protobufs.alike(next(rows), theirs)
        elif theirs is not None:  # stricter, on purpose
            assert _STRICTER.search(reasons[at]), reasons[at]


_STRICTER = re.compile("not written with this schema|not UTF-8|no Timestamp|no Duration|more than 64 bits")


def spoilt(dice: Random, payload: bytes, others: list[bytes]) -> bytes:
    found = bytearray(payload)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(found) + 1)
        how = dice.randint(0, 4)
        if how == 0:
            found[at : at + 1] = bytes([dice.randint(0, 255)])
        elif how == 1 and at < len(found):
            found[at] ^= 1 << dice.randint(0, 7)
        elif how == 2:
            del found[at : at + dice.randint(1, 3)]
        elif how == 3:
            found[at:at] = bytes(dice.randint(0, 255) for _ in range(dice.randint(1, 3)))
        else:
            found += dice.choice(others)
    return bytes(found)


def test_a_block_that_is_too_large_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, native = made(SMALL), NativeProtobuf.decode

    def small(self: Any, block: Payloads, chosen: Any, skip: int) -> Any:
        if len(chosen) > 2 or 5 in chosen:
            raise MemoryError
        return native(self, block, chosen, skip)

    monkeypatch.setattr(NativeProtobuf, "decode", small)
    decoded = decode(SMALL, [kind(i=at).SerializeToString() for at in range(7)])
    assert decoded.table.column("i").to_pylist() == [0, 1, 2, 3, 4, 6]
    assert decoded.rejects == [(5, "the record is too large: its columns do not fit into memory")]


# -- with a registry --------------------------------------------------------------------------------------------------

MONEY = 'syntax = "proto3"; package money; message Money { string unit = 1; int64 cents = 2; }'
ORDER = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
import "common/money.proto";
message Order { int64 id = 1; money.Money price = 2; google.protobuf.Timestamp at = 3; message Line { string sku = 1; } }
message Note { string text = 1; }
"""


@pytest.fixture(params=["serialized", "text", "refused"])
def form(request: pytest.FixtureRequest, local_registry: LocalRegistry) -> str:
    """A registry that gives descriptors, as Confluent's, one that has only text, and one that fails when asked for more."""
    local_registry.serializes = {"serialized": True, "text": False}.get(request.param)
    return str(request.param)


def order(url: str) -> int:
    """The schema with its reference, registered."""
    register(url, "money", MONEY, "PROTOBUF")
    reference = {"name": "common/money.proto", "subject": "money", "version": 1}
    return register(url, "orders", ORDER, "PROTOBUF", [reference])


def test_messages_of_a_registry_with_references_indexes_and_evolution(form: str, way: str, local_registry: LocalRegistry) -> None:
    url = local_registry.url
    number = order(url)
    files = Files(ORDER, [("common/money.proto", MONEY)])
    order_, note, line = (
        message_factory.GetMessageClass(files.named(f"shop.{name}")) for name in ("Order", "Note", "Order.Line")
    )
    new = register(url, "orders", proto("message M { int64 id = 1; optional string coupon = 9; }"), "PROTOBUF")
    payloads = [
        framed(number, b"\0" + order_(id=1, price={"unit": "EUR", "cents": 5}).SerializeToString()),  # type: ignore[call-arg]
        framed(number, b"\2\2" + note(text="hello").SerializeToString()),  # type: ignore[call-arg]
        framed(number, b"\4\0\0" + line(sku="s").SerializeToString()),  # type: ignore[call-arg]
        framed(number, b"\2\0" + order_(id=4).SerializeToString()),  # type: ignore[call-arg]
        framed(new, b"\0\x08\x05\x4a\x01x"),
    ]
    kind = Format(type="protobuf", registry=url)
    columns = ProtobufDecoder(kind, Columns()).decode(Payloads.of(payloads)).new_columns
    assert columns.to_dict() == {
        "id": "BIGINT", "price": "STRUCT(unit VARCHAR, cents BIGINT)", "at": "TIMESTAMP WITH TIME ZONE", "text": "VARCHAR",
        "sku": "VARCHAR", "coupon": "VARCHAR",
    }  # fmt: skip
    decoded = ProtobufDecoder(kind, columns).decode(Payloads.of(payloads))
    assert not decoded.rejects
    rows = [{key: value for key, value in row.items() if value is not None} for row in decoded.table.to_pylist()]
    assert rows == [
        {"id": 1, "price": {"unit": "EUR", "cents": 5}}, {"text": "hello"}, {"sku": "s"}, {"id": 4}, {"id": 5, "coupon": "x"},
    ]  # fmt: skip
    only = Format(type="protobuf", registry=url, message="shop.Note")
    chosen = ProtobufDecoder(only, Columns.of({"text": "VARCHAR"})).decode(Payloads.of(payloads))
    assert chosen.table.to_pylist() == [{"text": "hello"}]
    assert dict(chosen.rejects)[0] == "it is a shop.Order, not a shop.Note"


def test_what_is_not_in_the_wire_format_or_unknown_says_so(way: str, local_registry: LocalRegistry) -> None:
    url = local_registry.url
    number = register(url, "s", proto("message M { int32 i = 1; }"), "PROTOBUF")
    text = register(url, "t", '{"type": "object"}', "JSON")
    broken = register(url, "u", "QUJD", "PROTOBUF")
    local_registry.serializes = False
    good = framed(number, b"\0\x08\x01")
    payloads = [
        good, b"", b"\x01abcdef", framed(number, b""), framed(number, b"\1\x08\x01"), framed(number, b"\2\x08\x08\x01"),
        framed(number, b"\2"), framed(99, b"\0"), framed(text, b"{}"), framed(broken, b"\0"), framed(number, b"\xff" * 200), good,
    ]  # fmt: skip
    decoded = ProtobufDecoder(Format(type="protobuf", registry=url), Columns.of({"i": "INTEGER"})).decode(Payloads.of(payloads))
    assert decoded.table.column("i").to_pylist() == [1, 1]
    assert decoded.kept == [0, 11]
    reasons = dict(decoded.rejects)
    assert reasons[1] == "not in the registry's wire format: 0 bytes, and its prefix alone has 5"
    assert reasons[2] == "not in the registry's wire format: it begins with byte 1, not 0"
    assert reasons[3] == "not in the registry's wire format: it ends before the message's index"
    for at in (4, 6, 10):
        assert reasons[at] == "not in the registry's wire format: no message's index behind the schema's id"
    assert reasons[5] == "its schema cannot be used: it has no message at [4]"
    assert reasons[7] == "schema 99 is not known to the registry"
    assert reasons[8] == f"schema {text}: it is of kind JSON, not PROTOBUF"
    assert reasons[9] == f"schema {broken}: the schema is no descriptor of a file"


def test_many_message_types_in_one_block_are_told_apart(local_registry: LocalRegistry) -> None:
    number = register(
        local_registry.url, "s", proto("".join(f"message M{n} {{ int32 f{n} = 1; }}" for n in range(100))), "PROTOBUF"
    )
    payloads = [
        framed(number, b"\2" + bytes([2 * n] if n < 64 else [2 * n & 127 | 128, n >> 6]) + b"\x08\x01") for n in range(100)
    ]
    columns = Columns.of({f"f{n}": "INTEGER" for n in range(100)})
    decoded = ProtobufDecoder(Format(type="protobuf", registry=local_registry.url), columns).decode(Payloads.of(payloads))
    assert not decoded.rejects
    for n, row in enumerate(decoded.table.to_pylist()):
        assert [name for name, value in row.items() if value is not None] == [f"f{n}"]


def test_an_index_that_clients_count_differently_is_not_guessed() -> None:
    files = Files(proto("message M { map<string, int32> m = 1; message A { int32 a = 1; } message B { int32 b = 1; } }"))
    assert files.at([0]) == "t.M"
    with pytest.raises(Unfit, match=r"message \[0, 1\] can be t.M.A or t.M.B: clients count differently"):
        files.at([0, 1])
    assert files.at([0, 0]) == "t.M.A"  # for the others it is the map's entry, which nobody sends
    assert files.at([0, 2]) == "t.M.B"
    plain = Files(proto("message M { message A { int32 a = 1; } map<string, int32> m = 1; }"))
    assert plain.at([0, 0]) == "t.M.A"


def test_a_schema_that_producers_registered_as_a_descriptor(local_registry: LocalRegistry) -> None:
    local_registry.serializes = False
    made(SMALL)
    raw = base64.b64encode(Files(SMALL).named("t.M").file.serialized_pb).decode()
    number = register(local_registry.url, "s", raw, "PROTOBUF")
    decoded = ProtobufDecoder(Format(type="protobuf", registry=local_registry.url), Columns.of({"i": "INTEGER"})).decode(
        Payloads.of([framed(number, b"\2\2\x08\x09")])
    )
    assert not decoded.rejects
    assert decoded.table.to_pylist() == [{"i": 9}]
