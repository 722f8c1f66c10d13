"""Other envelopes than Debezium's: flattened rows, Maxwell's events and Canal's messages."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.tables.changes import UNCHANGED
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder
from tests.resources.decode.debezium.messages import TIME, kind

KEY, COLUMNS = Columns.of({"id": "BIGINT"}), Columns.of({"id": "BIGINT", "text": "VARCHAR"})


def decode(
    envelope: str, values: list[Any], keys: list[Any] | None = None, columns: Columns = COLUMNS, **options: Any
) -> Decoded:
    payloads = Payloads.of([json.dumps(value, separators=(",", ":")).encode() for value in values])
    found = pa.array([None if key is None else json.dumps(key).encode() for key in keys or [None] * len(values)], pa.binary())
    return decoder(Format(type="debezium", envelope=envelope, **options), columns, unique=KEY).decode(payloads, found)


def rows(found: Decoded) -> list[tuple[int, str | None]]:
    return [(row["id"], row["text"]) for row in found.table.to_pylist()]


def test_flattened_rows() -> None:
    values = [
        {"id": 1, "text": "a"}, {"id": 2, "text": "b", "__deleted": "false", "__op": "u", "__lsn": 5},
        {"id": 3, "text": None, "__deleted": "true"}, {"id": 4, "__op": "d"}, [],
    ]  # fmt: skip
    found = decode("flat", values, [None, {"id": 2}, {"id": 3}, None, None])
    assert rows(found) == [(1, "a"), (2, "b")] and not found.new_columns
    assert found.deleted == [2, 3] and found.keys.column("id").to_pylist() == [3, 4] and [at for at, _ in found.rejects] == [4]


def test_events_of_mongodb_are_refused_by_name() -> None:
    """Without that, a delete would have named a row by the text of an identifier."""
    source = {"connector": "mongodb", "snapshot": "false"}
    text = '{"_id": {"$oid": "5f"}, "text": "a"}'
    values = [
        {"after": text, "source": source, "op": "c"}, {"updateDescription": {}, "source": source, "op": "u"},
        {"before": None, "source": source, "op": "d"},
    ]  # fmt: skip
    fields = [{"field": "after", "type": "string", "optional": True, "name": "io.debezium.data.Json"}, kind("op", "string")]
    values.append({"schema": {"type": "struct", "fields": fields}, "payload": values[0]})
    found = decode("debezium", values, [{"id": '{"$oid": "5f"}'}] * 4)
    assert found.rows == 0 and not found.deleted
    assert [at for at, why in found.rejects if "connector for MongoDB" in why] == [0, 1, 2, 3]


def test_flattened_rows_with_a_schema() -> None:
    fields = [kind("id", "int32"), kind("at", "int32", TIME + "Date"), kind("__deleted", "string")]
    value = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "at": 1, "__deleted": "false"}}
    found = decode("flat", [value], columns=Columns.of({"id": "BIGINT", "at": "DATE"}))
    (row,) = found.table.drop_columns([UNCHANGED]).to_pylist()
    assert str(row["at"]) == "1970-01-02" and not found.new_columns and not found.rejects


def test_events_of_maxwell() -> None:
    about = {"database": "d", "table": "t", "ts": 1, "xid": 2, "commit": True}
    values = [
        {**about, "type": "insert", "data": {"id": 1, "text": "a"}},
        {**about, "type": "update", "data": {"id": 1, "text": "b"}, "old": {"text": "a"}},
        {**about, "type": "bootstrap-start", "data": {}}, {**about, "type": "bootstrap-insert", "data": {"id": 5, "text": "c"}},
        {**about, "type": "delete", "data": {"id": 5, "text": "c"}}, {**about, "type": "table-alter", "def": {}},
        {**about, "type": "insert"}, {"id": 1},
    ]  # fmt: skip
    keys = [None, None, None, None, {"database": "d", "table": "t", "pk.id": 5}, None, None, None]
    found = decode("maxwell", values, keys)
    assert rows(found) == [(1, "a"), (1, "b"), (5, "c")] and found.deleted == [4]
    assert found.keys.column("id").to_pylist() == [5] and [at for at, _ in found.rejects] == [6, 7]
    moved = decode("maxwell", [{**about, "type": "update", "data": {"id": 2, "text": "a"}, "old": {"id": 1}}])
    ((at, why, _),) = moved.stops
    assert at == 0 and "changed a column of into.key in one event" in why


def test_messages_of_canal() -> None:
    about = {"database": "d", "table": "t", "isDdl": False, "pkNames": ["id"], "es": 1}
    values = [
        {**about, "type": "INSERT", "data": [{"id": "1", "text": "a"}], "old": None},
        {**about, "type": "UPDATE", "data": [{"id": "1", "text": "b"}], "old": [{"text": "a"}]},
        {**about, "type": "DELETE", "data": [{"id": "1", "text": "b"}], "old": None},
        {**about, "type": "TRUNCATE", "isDdl": True, "data": None}, {**about, "type": "ALTER", "isDdl": True, "data": None},
        {**about, "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}]}, {"id": 1},
    ]  # fmt: skip
    found = decode("canal", values)
    assert rows(found) == [(1, "a"), (1, "b")] and found.deleted == [2, 3]
    assert found.keys.column("id").to_pylist() == [1, None]
    assert [why for _, why in found.rejects] == [
        "type INSERT: expected one row in the member data, found 2",
        "not a flat message of Canal: it has no member type",
    ]
    moved = decode("canal", [{**about, "type": "UPDATE", "data": [{"id": "2"}], "old": [{"id": "1"}]}])
    assert moved.stops


def test_an_unknown_operation_is_a_reject_and_no_message() -> None:
    """Only operations that change no row are filtered."""
    found = decode("maxwell", [{"type": "INSERT", "data": {"id": 1}}, {"type": "table-drop"}])
    assert [why for _, why in found.rejects] == ["unknown type 'INSERT'"] and not found.rows
    found = decode("canal", [{"type": "insert", "data": [{"id": "1"}]}, {"type": "QUERY", "isDdl": True}, {"type": "ERASE"}])
    assert [why for _, why in found.rejects] == ["unknown type 'insert'"] and not found.rows
    found = decode("flat", [{"id": None, "__op": "t"}, {"id": 1, "__op": "x"}])
    assert [why for _, why in found.rejects] == ["unknown __op 'x'"] and not found.rows and found.deleted == [0]


OTHERS = {
    "maxwell": lambda table: {"database": "shop", "table": table, "type": "insert", "data": {"id": 1, "text": table}},
    "canal": lambda table: {"database": "shop", "table": table, "type": "INSERT", "data": [{"id": "1", "text": table}]},
    "debezium": lambda table: {"op": "c", "after": {"id": 1, "text": table}, "source": {"db": "shop", "table": table}},
    "flat": lambda table: {"id": 1, "text": table, "__db": "shop", "__table": table},
}
EMPTIED = {
    "canal": {"database": "shop", "table": "sessions", "type": "TRUNCATE", "isDdl": True, "data": None},
    "debezium": {"op": "t", "source": {"db": "shop", "table": "sessions"}},
    "flat": {"__op": "t", "__db": "shop", "__table": "sessions"},
}


@pytest.mark.parametrize("envelope", OTHERS)
@pytest.mark.parametrize("name", ["customers", "shop.customers"])
def test_events_of_other_tables_are_filtered(envelope: str, name: str) -> None:
    values = [OTHERS[envelope](table) for table in ("customers", "orders", "customers")]
    values += [EMPTIED[envelope]] if envelope in EMPTIED else []
    found = decode(envelope, values, source_table=name)
    assert rows(found) == [(1, "customers"), (1, "customers")]
    assert not found.stops and not found.rejects and not len(found.deleted)


def test_an_event_of_another_table_is_filtered_whatever_it_contains_and_one_without_a_table_is_not() -> None:
    two = {"database": "shop", "table": "orders", "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}]}
    assert not decode("canal", [two], source_table="customers").rejects
    found = decode("flat", [{"id": 1, "text": "a"}], source_table="customers")
    assert [at for at, _ in found.rejects] == [0] and "does not name its table" in found.rejects[0][1]


@pytest.mark.parametrize("envelope", OTHERS)
def test_events_of_several_tables_stop_where_they_are_not_the_shards_of_one(envelope: str) -> None:
    values = [OTHERS[envelope](table) for table in ("customers", "orders")]
    found = decode(envelope, values)
    assert [at for at, *_ in found.stops] == ([1] if envelope in ("maxwell", "canal") else [])
    if envelope in EMPTIED:
        ((at, problem, hint),) = decode(envelope, [values[0], EMPTIED[envelope]]).stops
        assert at == 1 and "'shop.customers', 'shop.sessions'" in problem and "format.source_table" in hint
