"""Change events become rows and deletes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.tables.changes import EMPTIES, UNCHANGED, marked_columns
from resources.decode.block import Decoded, Payloads
from resources.decode.debezium import images
from resources.decode.debezium.decoder import ChangeKeys
from resources.decode.factory import decoder, sampled
from resources.decode.growth_guard import Bound
from tests.resources.decode.debezium.messages import CONNECT, PLACEHOLDER, TIME, change, key, kind, raw, unscaled

FIELDS = [kind("id", "int32"), kind("text", "string"), kind("at", "int64", TIME + "MicroTimestamp")]
COLUMNS = Columns.of({"id": "INTEGER", "text": "VARCHAR", "at": "TIMESTAMP"})
KEY = Columns.of({"id": "INTEGER"})
KIND = Format(type="debezium")


def decode(payloads: list[bytes], keys: list[bytes | None] | None = None, kind: Format = KIND, **more: Any) -> Decoded:
    made = decoder(kind, more.pop("columns", COLUMNS), unique=more.pop("unique", KEY), **more)
    return made.decode(Payloads.of(payloads), pa.array(keys or [None] * len(payloads), pa.binary()))


@pytest.mark.parametrize("fields", [None, FIELDS], ids=["plain", "schema"])
def test_operations(fields: Any) -> None:
    """Inserts, updates and snapshots are rows; a delete has the key of the record, messages are left out."""
    row = {"id": 1, "text": "a"}
    payloads = [
        *(change(op, {**row, "text": op}, fields=fields) for op in ("c", "u", "r")),
        change("d", before={**row, "id": 9}, fields=fields),
        change("m", fields=fields),
        change("u", {"id": 2, "text": None}, fields=fields),
    ]
    keys = [key(fields and FIELDS[:1], id=1)] * 6
    found = decode(payloads, keys)
    assert found.table.column("id").to_pylist() == [1, 1, 1, 2] and found.table.column("text").to_pylist() == [
        "c",
        "u",
        "r",
        None,
    ]
    assert found.kept == [0, 1, 2, 5] and found.deleted == [3] and found.keys.to_pylist() == [{"id": 1, EMPTIES: False}]
    assert not found.rejects and not found.stops


def test_a_delete_without_a_key_names_its_row_by_the_row_before() -> None:
    gone = [change("d", before={"id": 5, "text": "x"}), change("d", before={"text": "x"}), change("d")]
    found = decode(gone)
    assert found.deleted == [0] and found.keys.to_pylist() == [{"id": 5, EMPTIES: False}]
    assert [why for _, why in found.rejects] == ["a delete without a key"] * 2
    # The key of the topic is another one than the table's.
    found = decode(gone[:2], [key(other=1)] * 2)
    assert found.keys.to_pylist() == [{"id": 5, EMPTIES: False}] and found.rejects == [
        (1, "key: it has no id, which is in into.key")
    ]


def test_keys_have_the_types_of_their_schema() -> None:
    fields = [kind("id", "bytes", CONNECT + "Decimal", parameters={"scale": "1"}), kind("other", "string")]
    reader = ChangeKeys(KIND, Columns.of({"id": "DECIMAL(9,1)"}))
    table, reasons = reader.read(
        pa.array([key(fields, id=unscaled(15), other="x"), None, b"{", key(fields, id=None), key(fields[1:], other="x")])
    )
    assert table.to_pylist()[0] == {"id": Decimal("1.5"), EMPTIES: False}
    assert reasons == {
        1: "a tombstone without a key", 2: reasons[2], 3: "key column id is NULL or missing",
        4: "key: it has no id, which is in into.key",
    } and "not JSON" in reasons[2]  # fmt: skip


@pytest.mark.parametrize("fields", [None, FIELDS], ids=["plain", "schema"])
def test_a_value_that_did_not_change_is_marked(fields: Any) -> None:
    payloads = [change("u", {"id": 1, "text": PLACEHOLDER}, fields=fields), change("u", {"id": 1, "text": "b"}, fields=fields)]
    found = decode(payloads)
    assert found.table.column("text").to_pylist() == [None, "b"]
    marks = found.table.column(UNCHANGED).to_pylist()
    assert marked_columns([marks[0]]) == {"text"} and marks[1] is None
    assert [stop[0] for stop in decode(payloads, keeps=False).stops] == [0]
    assert decode(payloads, kind=Format(type="debezium", unavailable="b")).table.column("text").to_pylist() == [PLACEHOLDER, None]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (kind("v", "bytes"), raw(PLACEHOLDER.encode())),
        (kind("v", "array", items=kind("", "string")), [PLACEHOLDER]),
        (kind("v", "array", items=kind("", "int64")), [ord(letter) for letter in PLACEHOLDER]),
        (kind("v", "map", keys={"type": "string"}, values=kind("", "string")), {PLACEHOLDER: PLACEHOLDER}),
        (kind("v", "string", "io.debezium.data.Json"), json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
    ],
    ids=["bytes", "texts", "integers", "map", "json"],
)
def test_placeholders_of_other_types(field: dict[str, Any], value: Any) -> None:
    payload = change("u", {"id": 1, "v": value}, fields=[FIELDS[0], field])
    columns = Columns((*KEY.items, *sampled(KIND, [payload]).without(["id"]).items))
    found = decode([payload], columns=columns)
    assert not found.rejects and marked_columns(found.table.column(UNCHANGED).to_pylist()) == {"v"}


def test_a_truncate_deletes_all_rows_stops_or_is_left_out() -> None:
    payloads = [change("c", {"id": 1}), change("t"), change("c", {"id": 2}), change("d", before={"id": 1})]
    found = decode(payloads)
    assert found.kept == [0, 2] and found.deleted == [1, 3]
    assert found.keys.to_pylist() == [{"id": None, EMPTIES: True}, {"id": 1, EMPTIES: False}]
    for more in ({"kind": Format(type="debezium", truncate="fail")}, {"keeps": False}):
        ((at, why, hint),) = decode(payloads, **more).stops
        assert at == 1 and "TRUNCATE" in why and "format.truncate: apply" in hint
    found = decode(payloads, kind=Format(type="debezium", truncate="skip"))
    assert found.kept == [0, 2] and found.deleted == [3] and not found.stops


def test_a_message_may_have_white_space() -> None:
    message = change("c", {"id": 1, "text": "a"}, fields=FIELDS)
    spaced = json.dumps(json.loads(message)).encode(), json.dumps(json.loads(message), indent=1).encode()
    found = decode([spaced[0], message, spaced[1], b'{"schema": ' + message[10:]])
    assert found.table.column("id").to_pylist() == [1] * 4
    assert not found.rejects


def test_what_is_no_change_is_rejected() -> None:
    payloads = [
        b"x", b"[]", b"{}", b'{"id":1}', change("c"), change("x", {"id": 1}), change("c", {"id": "y"}, fields=FIELDS),
        b'{"schema":{"type":"string"},"payload":"x"}', b'{"schema":null,"payload":{"op":"c","after":{"id":7}}}',
        change("c", {"id": 1}, fields=FIELDS)[:-1], change("c", {"id": 8}, fields=FIELDS), b'{"schema":{"type":"struct",',
    ]  # fmt: skip
    found = decode(payloads)
    assert found.table.column("id").to_pylist() == [7, 8] and found.kept == [8, 10]
    assert [at for at, _ in found.rejects] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11]
    assert "no member op" in found.rejects[3][1] and "not an integer" in found.rejects[6][1]


def test_a_new_column_of_the_source_is_a_new_column() -> None:
    wider = [*FIELDS, kind("amount", "bytes", CONNECT + "Decimal", parameters={"scale": "2", "connect.decimal.precision": "9"})]
    payloads = [change("c", {"id": 1}, fields=FIELDS), change("c", {"id": 2, "amount": unscaled(5)}, fields=wider)]
    assert decode(payloads).new_columns.to_dict() == {"amount": "DECIMAL(9,2)"}
    assert decode([change("c", {"id": 1, "more": True})]).new_columns.to_dict() == {"more": "BOOLEAN"}


@pytest.mark.parametrize("grows", [True, False])
def test_a_value_that_was_left_out_of_a_column_that_the_table_does_not_have_yet(grows: bool) -> None:
    """A table that gets the column later must not have NULL there, so the commit has to know of it."""
    row = {"id": 1, "text": "a", "more": PLACEHOLDER, "_kafka_x": PLACEHOLDER}
    found = decode([change("u", row)], bound=Bound(COLUMNS, rejects=grows))
    assert marked_columns(filter(None, found.table.column(UNCHANGED).to_pylist())) == ({"more"} if grows else set())
    assert not found.new_columns and not found.rejects


def test_declared_types_without_schemas() -> None:
    types = {"at": TIME + "Timestamp", "Amount": CONNECT + "Decimal(2)", "data": "bytes"}
    kind, payload = Format(type="debezium", types=types), change("c", {"id": 1, "at": 1, "Amount": unscaled(150), "data": "AP8="})
    columns = sampled(kind, [payload])
    assert columns.to_dict() == {"id": "BIGINT", "at": "TIMESTAMP", "Amount": "DECIMAL(38,2)", "data": "BLOB"}
    (row,) = decode([payload], kind=kind, columns=columns).table.drop_columns([UNCHANGED]).to_pylist()
    assert (str(row["at"]), row["Amount"], row["data"]) == ("1970-01-01 00:00:00.001000", Decimal("1.50"), b"\x00\xff")
    bad = decode([change("c", {"id": 1, "at": "x"}), payload], kind=kind, columns=columns)
    assert bad.rejects == [(0, "at: not an integer: x")] and bad.kept == [1]


def test_names_of_an_image_that_differ_by_case_only_are_refused() -> None:
    kind, columns = Format(type="debezium", types={"at": TIME + "Timestamp"}), Columns.of({"id": "INTEGER", "at": "TIMESTAMP"})
    good, twins = {"id": 1, "at": 1}, {"id": 1, "at": 1, "At": 2}
    found = decode([change("c", good), change("c", twins), change("u", {"AT": 2, **good})], kind=kind, columns=columns)
    assert found.kept == [0] and not found.new_columns
    assert found.rejects == [(at, f"member {name} differs from a column by case only") for at, name in ((1, "At"), (2, "at"))]
    # Members without a column hide nothing.
    assert not decode([change("c", {**good, "x": 1, "X": 2})], kind=kind, columns=columns).rejects
    keys = Columns.of({"at": "TIMESTAMP"})
    bad = decode([change("d"), change("d", before=twins)], [key(at=1, At=2), None], kind=kind, columns=columns, unique=keys)
    assert not bad.deleted and bad.rejects == [(at, "key: member At differs from a column by case only") for at in (0, 1)]


def test_the_names_of_large_images_are_not_remembered() -> None:
    images._twin.cache_clear()
    decode([change("c", {"id": 1, **{f"member{at}": at for at in range(2000)}})])
    assert images._twin.cache_info().currsize == 0
    decode([change("c", {"id": 1})])
    assert images._twin.cache_info().currsize == 1


def test_a_block_is_decoded_as_its_payloads_one_by_one() -> None:
    payloads = [change("c", {"id": at, "text": "x" * at}, fields=FIELDS if at % 3 else None) for at in range(20)]
    payloads[7] = b"{"
    whole = decode(payloads)
    rows = [row for payload in payloads for row in decode([payload]).table.to_pylist()]
    assert whole.table.to_pylist() == rows and [at for at, _ in whole.rejects] == [7]


@pytest.mark.parametrize("after", [(", ", ": "), (" ,\n ", " :\t")], ids=["spaces", "lines"])
def test_a_schema_is_read_whatever_the_spaces_between_members(after: tuple[str, str]) -> None:
    """Connect writes none; other producers do."""
    payloads = [json.dumps(json.loads(change("c", {"id": at}, fields=FIELDS)), separators=after).encode() for at in range(3)]
    keys: list[bytes | None] = [json.dumps(json.loads(key(FIELDS[:1], id=9)), separators=after).encode()] * 2
    found = decode([*payloads[:2], change("d"), payloads[2]], [None, *keys, None])
    assert found.table.column("id").to_pylist() == [0, 1, 2] and found.keys.to_pylist() == [{"id": 9, EMPTIES: False}]
    assert not found.rejects and not found.new_columns


@pytest.mark.parametrize("fields", [None, FIELDS], ids=["plain", "schema"])
def test_an_update_that_changes_the_key_stops(fields: Any) -> None:
    """The row of the old key would stay. A source logs NULL for values that it does not know."""
    payloads = [
        change("u", {"id": 2, "text": "a"}, {"id": 1, "text": "a"}, fields=fields),
        change("u", {"id": 2, "text": "b"}, {"id": 2, "text": "a"}, fields=fields),
        change("u", {"id": 2, "text": "b"}, {"id": None, "text": "a"}, fields=fields),
        change("c", {"id": 2, "text": "b"}, {"id": 1, "text": "a"}, fields=fields),
    ]
    found = decode(payloads)
    assert [at for at, _, _ in found.stops] == [0] and "into.key" in found.stops[0][2]
