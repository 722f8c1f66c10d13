"""Protobuf messages whose schemas are in a registry."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import message_factory

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf.decoder import ProtobufDecoder
from resources.decode.protobuf.descriptors import Files
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode.protobuf.messages import SMALL, made, proto

# -- with a registry --------------------------------------------------------------------------------------------------
MONEY = 'syntax = "proto3"; package money; message Money { string unit = 1; int64 cents = 2; }'
ORDER = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
import "common/money.proto";
message Order { int64 id = 1; money.Money price = 2; google.protobuf.Timestamp at = 3; message Line { string sku = 1; } }
message Note { string text = 1; }
"""


@pytest.fixture(params=["serialized", "text", "refused", "garbled"])
def form(request: pytest.FixtureRequest, local_registry: LocalRegistry) -> str:
    """A registry that gives descriptors, as Confluent's, one that has only text, and two that fail when asked for more."""
    local_registry.serializes = {"serialized": True, "text": False, "garbled": True}.get(request.param)
    local_registry.garbles = request.param == "garbled"
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
    assert reasons[1] == "not in the registry's wire format: expected at least 5 bytes, found 0"
    assert reasons[2] == "not in the registry's wire format: expected first byte 0, found 1"
    assert reasons[3] == "not in the registry's wire format: it ends before the message index"
    for at in (4, 6, 10):
        assert reasons[at] == "not in the registry's wire format: expected a message index after the schema id"
    assert reasons[5] == "its schema cannot be used: it has no message at [4]"
    assert reasons[7] == "schema 99 is not in the registry"
    assert reasons[8] == f"schema {text}: wrong type of schema: expected PROTOBUF, found JSON"
    assert reasons[9] == f"schema {broken}: the schema is not a file descriptor"


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
