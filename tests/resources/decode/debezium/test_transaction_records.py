"""Which transaction a record of Debezium belongs to, and records of the transaction topic, which are no rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kpipe.definition.formats import Format
from kpipe.errors import SourceError
from kpipe.schema.columns import Columns
from kpipe.transaction_log import Boundary, Change
from resources.decode.block import Payloads
from resources.decode.debezium.decoder import DebeziumDecoder
from resources.decode.debezium.transaction_records import TransactionRecords

BEGIN = {"status": "BEGIN", "id": "737:22091896", "event_count": None, "data_collections": None, "ts_ms": 1}
END = {
    "status": "END", "id": "737:22092488", "event_count": 3, "ts_ms": 2,
    "data_collections": [{"data_collection": "s.a", "event_count": 2}, {"data_collection": "s.b", "event_count": 1}],
}  # fmt: skip
FIELDS = [{"field": name, "type": "string"} for name in BEGIN]


def written(value: Any, schema: bool) -> bytes:
    message = {"schema": {"type": "struct", "fields": FIELDS}, "payload": value} if schema else value
    return json.dumps(message, separators=(",", ":")).encode()


def change(op: str = "u", snapshot: Any = "false", transaction: Any = None) -> dict[str, Any]:
    return {"before": None, "after": {"id": 1}, "source": {"snapshot": snapshot}, "transaction": transaction, "op": op}


def block(order: int) -> dict[str, Any]:
    return {"id": "737:22091896", "total_order": 9, "data_collection_order": order}


def changes(*values: Any, alone: bool = True) -> list[Change]:
    found = [None if value is None else value if isinstance(value, bytes) else written(value, False) for value in values]
    return list(TransactionRecords("t/0", alone).changes(range(len(found)), found))


@pytest.mark.parametrize("schema", [False, True])
def test_begin_and_end_are_read_with_and_without_schemas(schema: bool) -> None:
    records = TransactionRecords("t/0")
    found = records.entries([4, 5], [written(BEGIN, schema), written(END, schema)])
    assert list(found) == [Boundary(4, "737", None), Boundary(5, "737", {"s.a": 2, "s.b": 1})]


@pytest.mark.parametrize("value", [b"", b"x", b"{}", b'{"status":"ELSE","id":"1"}', b'{"status":"END","id":1}', None])
def test_another_record_in_the_transaction_topic_is_an_error_with_its_offset(value: bytes | None) -> None:
    with pytest.raises(SourceError, match="t/0: offset 7: expected BEGIN or END"):
        list(TransactionRecords("t/0").entries([7], [value]))


@pytest.mark.parametrize(
    "collections", [5, True, {"a": 1}, [1], [{"data_collection": "a"}], [{"data_collection": 1, "event_count": 1}]]
)
def test_an_end_without_counts_is_an_error(collections: Any) -> None:
    with pytest.raises(SourceError, match="invalid data_collections"):
        list(TransactionRecords("t/0").entries([0], [written({**END, "data_collections": collections}, False)]))


def test_events_name_their_transaction_and_their_order() -> None:
    found = changes(change("c", transaction=block(1)), change("d", transaction=block(2)), None, change("t", transaction=block(3)))
    assert found == [Change(0, "event", "737", 1), Change(1, "event", "737", 2), Change(2, "other"), Change(3, "event", "737", 3)]


@pytest.mark.parametrize("schema", [False, True])
def test_an_event_as_debezium_writes_it_is_not_parsed(schema: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ("before", "after", "source", "transaction", "op")
    event = {**{name: change(transaction=block(3))[name] for name in order}, "ts_ms": 1, "ts_us": 1, "ts_ns": 1}
    slow = changes({**event, "more": 1})
    monkeypatch.setattr(TransactionRecords, "_change", None)
    assert changes(written(event, schema)) == slow == [Change(0, "event", "737", 3)]


@pytest.mark.parametrize("schema", [False, True])
def test_what_only_resembles_the_end_of_an_event_is_parsed(schema: bool) -> None:
    end = {"transaction": block(3), "op": "u", "ts_ms": 1}
    text = json.dumps(end, separators=(",", ":"))[1:]
    snapshot = change("r", "last")
    for value in ({**snapshot, "more": {"a": 1, **end}}, {**snapshot, "more": text}, {**snapshot, "x," + text: 1}):
        assert changes(written(value, schema)) == [Change(0, "whole")]


def test_records_of_a_snapshot_are_told_apart_from_its_last_ones() -> None:
    kinds = ["first", True, "first_in_data_collection", "true", "last_in_data_collection", "last", "incremental"]
    found = [one.kind for one in changes(*(change("r", kind) for kind in kinds))]
    assert found == ["snapshot"] * 4 + ["table", "whole", "other"]


def test_what_is_no_change_of_a_row_belongs_to_no_transaction() -> None:
    assert [one.kind for one in changes(b"nonsense", b"[1]", b'{"a":1}', change("m"))] == ["other"] * 4


@pytest.mark.parametrize("block", [None, {}, {"id": 1, "data_collection_order": 1}, {"id": "1"}, "text"])
def test_a_change_without_metadata_is_an_error(block: Any) -> None:
    with pytest.raises(SourceError, match=r"t/0: offset 0: a change \(op u\) without transaction metadata.*") as error:
        changes(change("u", transaction=block))
    assert "provide.transaction.metadata=true" in error.value.hint


@pytest.mark.parametrize("marker", [[], {}, [1], 1, 0, 1.5, False, None])
def test_a_marker_of_a_snapshot_that_is_no_text_is_none(marker: Any) -> None:
    assert changes(change(snapshot=marker, transaction=block(3))) == [Change(0, "event", "737", 3)]


def test_a_truncate_outside_of_a_transaction_has_a_place_in_one_table_only() -> None:
    assert changes(change("t")) == [Change(0, "other")]
    with pytest.raises(SourceError, match="no place among those of other tables"):
        changes(change("t"), alone=False)


@pytest.mark.parametrize("schema", [False, True])
def test_records_of_the_transaction_topic_are_filtered(schema: bool) -> None:
    decoder = DebeziumDecoder(Format(type="debezium"), Columns.of({"id": "INTEGER"}), Columns.of({"id": "INTEGER"}))
    found = decoder.decode(Payloads.of([written(BEGIN, schema), written(END, schema)]))
    assert (found.rows, list(found.rejects), found.kept, list(found.deleted)) == (0, [], [], []) or found.rows == 0
    assert not found.rejects and not found.stops
