"""Transactions in Avro and Protobuf are those in JSON: the same records, the same errors, the same plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from kpipe.definition.formats import Format
from kpipe.errors import RegistryFailed, SourceError
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.testing.topics import FakeTopics
from kpipe.topics import PartitionId
from kpipe.transaction_log import Boundary, Change
from resources.decode.avro import native as avro_native
from resources.decode.block import Payloads
from resources.decode.debezium.decoder import DebeziumDecoder
from resources.decode.debezium.transaction_fields import TransactionFields
from resources.decode.debezium.transaction_records import TransactionRecords
from resources.decode.protobuf import native as protobuf_native
from tests.kpipe.planning.debezium_model import FakeLog
from tests.kpipe.planning.test_transaction_cut import Course
from tests.registry import LocalRegistry, framed, register
from tests.resources.decode.debezium.encodings import ENCODINGS, Encoding

OTHERS = ENCODINGS[1:]


def records(encoding: Encoding, alone: bool = True) -> TransactionRecords:
    fields = TransactionFields(encoding.format, None) if encoding.format.registry else None
    return TransactionRecords("t/0", alone, fields)


def columns() -> Columns:
    return Columns.of({"id": "INTEGER"})


def changes(encoding: Encoding, *values: bytes | None, alone: bool = True) -> list[Change]:
    return list(records(encoding, alone).changes(range(len(values)), values))


def block(order: int, id: str = "737:22091896") -> dict[str, Any]:
    return {"id": id, "data_collection_order": order}


def drawn(encoding: Encoding) -> list[bytes | None]:
    """Records of each kind, good and damaged ones."""
    row, write = {"id": 1, "n": 2}, encoding.event
    good = [write(op, None if op in "dt" else row, row if op == "d" else None, block(at)) for at, op in enumerate("cudt", 1)]
    markers = [
        None, "first", "first_in_data_collection", "true", "last_in_data_collection", "last", "incremental", "false", "other",
    ]  # fmt: skip
    return [
        *good, None, write("m"), *(write("r", row, None, block(9, "0-1-7"), marker) for marker in markers),
        *(write("r", row, snapshot=marker) for marker in markers[1:7]),
        b"", b"nonsense", good[0][: len(good[0]) // 2], good[1] + b"\x01",
    ]  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
def test_records_are_read_as_in_json(compiled: bool, registry_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(avro_native, "library", lambda: None)
        monkeypatch.setattr(protobuf_native, "library", lambda: None)
    json_, avro, protobuf = (changes(one, *drawn(one)) for one in (Encoding(name, registry_url) for name in ENCODINGS))
    assert json_ == avro
    assert json_ == protobuf
    assert [one.kind for one in json_[:6]] == ["event", "event", "event", "event", "other", "other"]
    assert {one.kind for one in json_} == {"event", "snapshot", "table", "whole", "other"}


@pytest.mark.parametrize("name", ENCODINGS)
def test_begin_and_end(name: str, registry_url: str) -> None:
    encoding = Encoding(name, registry_url)
    counts = {"s.a": 2, "s.b": 1}
    values = [encoding.boundary("737:1"), encoding.boundary("737:2", counts), encoding.boundary("0-1-7", {})]
    found = list(records(encoding).entries([4, 5, 9], values))
    assert found == [Boundary(4, "737", None), Boundary(5, "737", counts), Boundary(9, "0-1-7", {})]
    decoded = DebeziumDecoder(encoding.format, columns(), columns()).decode(Payloads.of(values))
    assert decoded.rows == 0 and not decoded.rejects and not decoded.stops, "they are no rows"
    for wrong in (None, b"", b"x", values[0][:-1], encoding.event("c", {"id": 1}, transaction=block(1))):
        with pytest.raises(SourceError, match="t/0: offset 7: expected BEGIN or END of a transaction, found another record"):
            list(records(encoding).entries([7], [wrong]))


@pytest.mark.parametrize("name", ENCODINGS)
def test_errors_are_those_of_json(name: str, registry_url: str) -> None:
    encoding = Encoding(name, registry_url)
    with pytest.raises(SourceError, match=r"t/0: offset 0: a change \(op u\) without transaction metadata"):
        changes(encoding, encoding.event("u", {"id": 1}))
    assert changes(encoding, encoding.event("t")) == [Change(0, "other")]
    with pytest.raises(SourceError, match="no place among those of other tables"):
        changes(encoding, encoding.event("t"), alone=False)


@pytest.mark.parametrize("name", OTHERS)
def test_a_schema_that_the_registry_lacks_stops_the_plan(name: str, local_registry: LocalRegistry) -> None:
    """The task may find it: its row would then be committed without the transaction that it belongs to."""
    encoding = Encoding(name, local_registry.url)
    good = encoding.event("c", {"id": 1}, transaction=block(1))
    for read in (records(encoding).changes, records(encoding).entries):
        with pytest.raises(RegistryFailed, match=r"t/0: offset 8: .* unknown: schema 77 is not in the registry") as error:
            list(read([8, 9], [framed(77, good[5:]), good]))
        assert error.value.retriable, "a registry may be behind its writers"
    local_registry.fault = "503"
    with pytest.raises(RegistryFailed, match="found HTTP 503"):
        changes(encoding, framed(78, good[5:]))


class EncodedLog(FakeLog):
    """The transactions of fake topics, from records in one of the encodings."""

    encoding: Encoding

    def __init__(self, topics: FakeTopics) -> None:
        super().__init__(topics)
        self._parsers: dict[PartitionId, TransactionRecords] = {}

    def entries(self, source: PartitionId, span: Range) -> Iterator[Boundary]:
        yield from self._parser(source).entries(*self._read(source, span))

    def changes(self, source: PartitionId, span: Range) -> Iterator[Change]:
        yield from self._parser(source).changes(*self._read(source, span))

    def _parser(self, source: PartitionId) -> TransactionRecords:
        return self._parsers.setdefault(source, records(self.encoding))

    def _read(self, source: PartitionId, span: Range) -> tuple[list[int], list[bytes | None]]:
        found = [(offset, self._encoded(slot.value)) for offset, slot in self.topics.read(source, span)]
        return [offset for offset, _ in found], [value for _, value in found]

    def _encoded(self, value: Mapping[str, Any] | None) -> bytes | None:
        if value is None:
            return None
        if "op" not in value:
            return self.encoding.boundary(value["tx"], value.get("counts"))
        row = {"id": value["key"], "n": value["value"]}
        if value["op"] == "r":
            names = {"snapshot": "true", "table": "last_in_data_collection", "whole": "last"}
            return self.encoding.event("r", row, snapshot=names[value["snapshot"]])
        after, before = (None, row) if value["op"] == "d" else (row, None)
        return self.encoding.event(value["op"], after, before, block(value["order"], value["tx"]))


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_plans_of_random_courses_are_those_of_the_model(limit: int, registry_url: str) -> None:
    """The same courses, whose records are in each encoding: the same batches, and each is a state of the source."""
    logs: list[type[FakeLog]] = [FakeLog]
    for name in ENCODINGS:
        logs.append(type(name, (EncodedLog,), {"encoding": Encoding(name, registry_url)}))
    for seed in range(8):
        courses = [Course(f"encoded:{limit}:{seed}", limit, log).run(12) for log in logs]
        plans = [[(batch.steps, found.waits) for batch in found.follower.commits] for found in courses]
        assert len(plans[0]) > 1
        assert plans[1:] == plans[:1] * 3


AVRO_BLOCK = {
    "type": "record", "name": "B",
    "fields": [{"name": "id", "type": "string"}, {"name": "data_collection_order", "type": "int"}],
}  # fmt: skip


def avro_event(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def test_members_of_unexpected_types_are_missing_ones(local_registry: LocalRegistry) -> None:
    """The first events are good ones with unusual schemas: types in several places, other types of numbers, an enum."""
    twice = avro_event(before=["null", AVRO_BLOCK], after=["null", "B"], transaction=["B", "null"], op={
        "type": "enum", "name": "O", "symbols": ["u"],
    })  # fmt: skip
    fine = b"\x00\x00" + b"\x00" + b"\x04xy" + b"\x06" + b"\x00"
    after = b"\x00" + b"\x02" + b"\x02z\x02" + b"\x00" + b"\x04xy" + b"\x06" + b"\x00"
    recursive = avro_event(after=["null", "E"], op="string", transaction=AVRO_BLOCK)
    inner = b"\x02" + b"\x00\x02c\x02q\x02" + b"\x02c" + b"\x04xy" + b"\x06"
    text = avro_event(op="string", transaction="string")
    number = avro_event(op="long", transaction=AVRO_BLOCK)
    several = avro_event(op=["string", "long"], transaction=AVRO_BLOCK)
    other = avro_event(name="string")
    found = {
        name: (register(local_registry.url, name, schema), data)
        for name, schema, data in (
            ("twice", twice, fine), ("after", twice, after), ("recursive", recursive, inner), ("text", text, b"\x02u\x02x"),
            ("number", number, b"\x02\x04xy\x06"), ("several", several, b"\x00\x02u\x04xy\x06"), ("other", other, b"\x02x"),
            ("no schema", '"string"', b"\x02x"), ("not Avro", "[[]]", b""),
        )
    }  # fmt: skip
    kind = Format(type="debezium", registry=local_registry.url)
    reads = TransactionRecords("t/0", fields=TransactionFields(kind, None))

    def one(name: str) -> Change:
        number, data = found[name]
        return next(iter(reads.changes([0], [framed(number, data)])))

    for name in ("twice", "after", "recursive"):
        assert one(name) == Change(0, "event", "xy", 3), name
    with pytest.raises(SourceError, match="without transaction metadata"):
        one("text")
    for name in ("number", "several", "other", "no schema", "not Avro"):
        assert one(name) == Change(0, "other"), name


def test_fields_of_unexpected_types_are_missing_ones(local_registry: LocalRegistry) -> None:
    wrapped = """syntax = "proto3"; import "google/protobuf/wrappers.proto";
        message E { map<string, string> source = 1; google.protobuf.StringValue op = 2; T transaction = 3; E after = 4; }
        message T { google.protobuf.StringValue id = 1; int32 data_collection_order = 2; }
        message Odd { repeated string op = 1; string transaction = 2; } message Empty { }"""
    number = register(local_registry.url, uuid4().hex, wrapped, "PROTOBUF")
    reads = TransactionRecords("t/0", fields=TransactionFields(Format(type="debezium", registry=local_registry.url), None))

    def one(data: bytes, *index: int) -> Change:
        prefix = bytes([2 * len(index), *(2 * at for at in index)]) if index else b"\0"
        return next(iter(reads.changes([0], [framed(number, prefix + data)])))

    op, block = b"\x12\x03\x0a\x01u", b"\x1a\x08\x0a\x04\x0a\x02xy\x10\x03"
    assert one(op + block) == Change(0, "event", "xy", 3)
    assert one(b"\x22" + bytes([len(op)]) + op + op + block) == Change(0, "event", "xy", 3)
    assert one(op + b"\x1a\x06\x0a\x04\x0a\x02xy" + b"\x1a\x02\x10\x03") == Change(0, "event", "xy", 3), "parts are merged"
    for data, index in ((op, 9), (b"\x0a\x01u\x12\x01x", 2), (b"", 3), (b"\xff", 0)):
        assert one(data, index) == Change(0, "other"), index


def test_a_schema_that_is_nested_too_deeply_is_a_reason_for_its_records(local_registry: LocalRegistry) -> None:
    deep = "[" * 100_000
    number = register(local_registry.url, "s", deep)
    kind = Format(type="debezium", registry=local_registry.url)
    assert list(TransactionRecords("t/0", fields=TransactionFields(kind, None)).changes([0], [framed(number, b"x")])) == [
        Change(0, "other")
    ]
    found = DebeziumDecoder(kind, columns(), columns()).decode(Payloads.of([framed(number, b"x")]))
    assert found.rows == 0 and "recursion" in found.rejects[0][1]
