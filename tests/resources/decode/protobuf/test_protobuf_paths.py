"""Values of messages by paths, invalid schemas, and what google's library writes comes out again."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns, Struct
from resources.decode.block import Payloads
from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf import decoder
from resources.decode.protobuf.decoder import ProtobufDecoder
from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import plan
from resources.decode.protobuf.native import NativeProtobuf
from tests.cases import each_case
from tests.resources.decode.protobuf import protobufs
from tests.resources.decode.protobuf.messages import SMALL, decode, made, proto


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


@each_case(
    ("text", "words"),
    [
        ("message M {", "cannot be compiled: the schema:1"), ("aGVsbG8=", "not a descriptor set"),
        ("", "the descriptor set is empty"),
        (proto("message A { Gone g = 1; } message M {int32 i=1;}"), "cannot be compiled: .*Gone"),
        (proto('import "other.proto"; message M { int32 i = 1; }'), "cannot be compiled: other.proto: File not found"),
        (proto("message M { }"), "has no field that could be a column"), (proto("message X { }"), "no message t.M"),
        (proto("message M { int32 a = 1; string A_ = 2; int32 b = 3; int32 B = 4; }"), "duplicate field|conflict|camel"),
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
        with pytest.raises(Unfit, match=r"expected the name of a \.proto file"):
            Files(text, [(name, 'syntax = "proto3";')])


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


_STRICTER = re.compile("not written with this schema|not UTF-8|not a Timestamp|not a Duration|more than 64 bits")


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
