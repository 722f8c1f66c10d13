"""One function gives the decoder of a format; raw keeps bytes as they are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder
from resources.decode.key_decoder import KeyReader
from tests.cases import each_case

VALUES = [b"a", None, b"", b"two\nlines", b"\xff\n"]


def lines(values: list[bytes | None]) -> pa.Array:
    return pa.array([None if value is None else value + b"\n" for value in values], pa.large_binary())


@each_case("start", [0, 1, 3])
def test_raw_keeps_keys_and_values_and_tombstones_as_they_are(start: int) -> None:
    raw = decoder(Format(type="raw"), Columns())
    assert raw.takes_nulls
    keys = pa.array([b"k", None, b"", b"\n", b"x"], pa.binary())
    decoded = raw.decode(Payloads.of_array(lines(VALUES)[start:]), keys[start:])
    assert decoded.table.to_pydict() == {"key": keys.to_pylist()[start:], "value": VALUES[start:]}
    assert (decoded.rows, decoded.kept, decoded.rejects) == (5 - start, None, ())


def test_raw_takes_a_programs_lines_without_keys() -> None:
    decoded = decoder(Format(type="raw"), Columns()).decode(Payloads.of_lines(b"a\n\nb c\n"))
    assert decoded.table.to_pydict() == {"key": [None] * 3, "value": [b"a", b"", b"b c"]}


def test_payloads_of_a_column_are_those_of_a_list() -> None:
    column = Payloads.of_array(lines([b"a", b"", b"two\nlines"]))
    assert list(column.values) == [b"a", b"", b"two\nlines"]
    assert column.missing is None
    assert list(column.part(1, 3).values) == [b"", b"two\nlines"]


def _keyed(key: dict[str, Any], columns: dict[str, str], value: bytes, keys: list[bytes | None]) -> Any:
    made = decoder(Format(), Columns.of(columns), key=Format.model_validate(key))
    return made.decode(Payloads.of([value] * len(keys)), pa.array(keys, pa.binary()))


@pytest.mark.parametrize("native", [True, False])
def test_an_empty_csv_key_is_an_empty_field(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("resources.decode.csv.decoder.native_csv", lambda *_: None)
    columns = {"id": "BIGINT", "device": "VARCHAR", "n": "VARCHAR"}
    one: dict[str, Any] = {"type": "csv", "fields": ["device"]}
    found = _keyed(one, columns, b'{"id":1}', [b"a", b"", None])
    assert found.table.column("device").to_pylist() == ["a", "", None] and not found.rejects
    null = _keyed({**one, "null": ""}, columns, b'{"id":1}', [b"a", b"", None])
    assert null.table.column("device").to_pylist() == ["a", None, None] and not null.rejects
    two = _keyed({"type": "csv", "fields": ["device", "n"]}, columns, b'{"id":1}', [b"a\tb", b"", None])
    assert [at for at, _ in two.rejects] == [1] and "expected 2 fields, found 1" in two.rejects[0][1]
    table, reasons = KeyReader(Columns.of({"device": "VARCHAR"}), Format.model_validate(one)).read(pa.array([b"a", b"", None]))
    assert table.column("device").to_pylist()[:2] == ["a", ""] and list(reasons) == [2]


def test_a_key_without_a_row_is_a_reject() -> None:
    kind = {"type": "csv", "fields": ["device"], "line_start": ">"}
    found = _keyed(kind, {"id": "BIGINT", "device": "VARCHAR"}, b'{"id":1}', [b">a", b"b", b"", None])
    assert list(found.rejects) == [(1, "key: expected one row, found none"), (2, "key: expected one row, found none")]
    assert found.table.column("device").to_pylist() == ["a", None]
    reader = KeyReader(Columns.of({"device": "VARCHAR"}), Format.model_validate(kind))
    assert reader.read(pa.array([b">a", b"b"]))[1] == {1: "the key of a tombstone: expected one row, found none"}


def test_nested_values_of_key_and_value_are_compared_beyond_the_year_9999() -> None:
    columns = {"v": "STRUCT(at TIMESTAMP, days DATE[], n DOUBLE)"}

    def record(year: int) -> bytes:
        at = f"{year}-01-01 00:00:00"
        return json.dumps({"v": {"at": at, "days": ["infinity", None, at[:-9]], "n": None}}).encode()

    found = _keyed({"type": "json"}, columns, record(12026), [record(12026), record(12027), b'{"v": null}', b'{"v": {}}', None])
    assert list(found.rejects) == [(at, "key: v differs between key and value") for at in (1, 3)] and found.rows == 3
