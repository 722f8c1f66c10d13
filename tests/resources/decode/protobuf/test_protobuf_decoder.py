"""Protobuf to columns: types, presence, and bad messages."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import plan
from tests.resources.decode.protobuf import protobufs
from tests.resources.decode.protobuf.messages import SMALL, decode, made, proto

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


def test_a_bad_record_says_why_and_stops_no_neighbour(way: str) -> None:
    huge = b"\xff" * 9 + b"\x01"
    cases: list[tuple[bytes, str]] = [
        (b"\x08", "i: the message ends inside this value (1 bytes): cut off, or not written with this schema"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "i: a number of more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "i: a number of more than 64 bits"),
        (b"\x08\x80\x80\x80\x80\x08", "i: 2147483648 is not an int32: not written with this schema"),
        (b"\x18\x02", "b: 2 is not a bool: not written with this schema"),
        (b"\x20" + huge, "u: 18446744073709551615 is not a uint32: not written with this schema"),
        (b"\x50\x80\x80\x80\x80\x10", "z: 2147483648 is not a sint32: not written with this schema"),
        (b"\x12\x02\xc3\x28", "s: not UTF-8 at byte 0"),
        (b"\x12\x05ab", "s: the message ends inside this value (4 bytes): cut off, or not written with this schema"),
        (b"\x12" + huge, "s: the message ends inside this value (11 bytes): cut off, or not written with this schema"),
        (b"\x2a\x03\x0a\x01\xff", "in.name: not UTF-8 at byte 0"),
        (b"\x0a\x01a", "i: expected int32, found a length and bytes: not written with this schema"),
        (b"\x10\x01", "s: expected string, found a varint: not written with this schema"),
        (b"\x32\x03abc", "r: the message ends inside this value (3 bytes): cut off, or not written with this schema"),
        (b"\x00", "the record: byte 0 does not begin a field: not written with this schema"),
        (b"\x0e\x01", "the record: byte 0 does not begin a field: not written with this schema"),
        (b"\x88\x80\x80\x80\x80\x01\x01", "the record: byte 0 does not begin a field: not written with this schema"),
        (b"\x0c", "i: expected int32, found wire type 4: not written with this schema"),
        (b"\xa4\x06", "the record: unexpected end of group 100: not written with this schema"),
        (
            b"\xa3\x06\x08\x01",
            "the record: the message ends inside this value (4 bytes): cut off, or not written with this schema",
        ),
        (b"\xa3\x06" * 200 + b"\xa4\x06" * 200, "the record: nested too deeply"),
        (b"\x4a\x06\x0a\x01\xff\x12\x01a", "m: key: not UTF-8 at byte 0"),
        (b"\x4a\x03\x0a\x05a", "m: key: the message ends inside this value (3 bytes): cut off, or not written with this schema"),
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
