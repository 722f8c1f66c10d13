"""Arrow columns to a table's columns: every value unchanged, or a reason; a type that cannot be converted is an error."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kpipe.column_growth import MOST_IN_RECORD
from kpipe.errors import TransformFailed
from kpipe.schema.columns import JSON, Columns, parse_type
from resources.decode.arrow import decoder
from resources.decode.arrow.decoder import ArrowDecoder, BatchReader, TypedRows
from resources.decode.arrow.types import plain_bytes
from resources.decode.block import Decoded
from resources.decode.convert import Fitting, convertible
from resources.decode.growth_guard import Bound
from resources.duckdb_engine.arrow_types import schema

UTC = dt.timezone.utc


def rows(batch: pa.RecordBatch) -> TypedRows:
    (found,) = BatchReader(batch.schema, "t/0 [0, 9)").read(batch)
    return found


def decoded(batch: pa.RecordBatch, columns: dict[str, str]) -> Decoded:
    wanted = Columns.of(columns)
    found = ArrowDecoder(wanted, where="t/0 [0, 9)").decode(rows(batch))
    assert found.table.schema == schema(wanted)
    assert found.table.num_rows == found.rows
    found.table.validate(full=True)
    return found


def values(array: Any, kind: str) -> tuple[list[Any], list[tuple[int, str]]]:
    """Values of a column of that type, and the rejects."""
    found = decoded(pa.record_batch({"c": array}), {"c": kind})
    return found.table.column("c").to_pylist(), list(found.rejects)


MOMENT = dt.datetime(2026, 11, 23, 10, 0, 0, 123456)
SAME: list[tuple[Any, str, list[Any]]] = [
    (pa.array([1, None], pa.int8()), "TINYINT", [1, None]),
    (pa.array([1, None], pa.int32()), "BIGINT", [1, None]),
    (pa.array([2**63], pa.uint64()), "UBIGINT", [2**63]),
    (pa.array([2**53 + 1], pa.int64()), "HUGEINT", [str(2**53 + 1)]),
    (pa.array([1.5], pa.float16()), "FLOAT", [1.5]),
    (pa.array([0.1], pa.float64()), "DOUBLE", [0.1]),
    (pa.array([True, None]), "BOOLEAN", [True, None]),
    (pa.array(["a", None, "ü"], pa.string()), "VARCHAR", ["a", None, "ü"]),
    (pa.array(["a", None, "ü"], pa.large_string()), "VARCHAR", ["a", None, "ü"]),
    (pa.array(["a", None, "a text that is longer than twelve"], pa.string_view()), "VARCHAR",
     ["a", None, "a text that is longer than twelve"]),
    (pa.array([b"\xff", None], pa.large_binary()), "BLOB", [b"\xff", None]),
    (pa.array([b"\xff" * 20, None], pa.binary_view()), "BLOB", [b"\xff" * 20, None]),
    (pa.array([b"ab"], pa.binary(2)), "BLOB", [b"ab"]),
    (pa.array(["x", None, "x"]).dictionary_encode(), "VARCHAR", ["x", None, "x"]),
    (pa.array([7, None, 7]).dictionary_encode(), "BIGINT", [7, None, 7]),
    (pa.array([dt.date(2026, 1, 2)], pa.date64()), "DATE", [dt.date(2026, 1, 2)]),
    (pa.array([dt.time(1, 2, 3)], pa.time32("s")), "TIME", [dt.time(1, 2, 3)]),
    (pa.array([MOMENT], pa.timestamp("ns")), "TIMESTAMP", [MOMENT]),
    (pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")), "TIMESTAMP WITH TIME ZONE", [MOMENT.replace(tzinfo=UTC)]),
    (pa.array([MOMENT.replace(microsecond=0), None], pa.timestamp("s")), "TIMESTAMP", [MOMENT.replace(microsecond=0), None]),
    (pa.array([decimal.Decimal("1.20")], pa.decimal32(5, 2)), "DECIMAL(18,3)", [decimal.Decimal("1.200")]),
    (pa.array([decimal.Decimal("1.20")], pa.decimal256(38, 2)), "DECIMAL(38,2)", [decimal.Decimal("1.20")]),
    (pa.array([[1, None], None, []], pa.large_list(pa.int32())), "BIGINT[]", [[1, None], None, []]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "BIGINT[]", [[1, 2], None]),
    (pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int16()), ("b", pa.null())])), "STRUCT(a BIGINT, b DATE)",
     [{"a": 1, "b": None}, None]),
    (pa.array([[{"t": "x"}], None], pa.list_(pa.struct([("t", pa.string_view())]))), "STRUCT(t VARCHAR)[]", [[{"t": "x"}], None]),
    (pa.array([{"a": 1}]), "JSON", ['{"a":1}']),
    (pa.array([{"a": 1}]), "MAP(VARCHAR, BIGINT)", [[("a", 1)]]),
    (pa.array(["2026-01-02"]), "DATE", [dt.date(2026, 1, 2)]),
    (pa.array([None, None]), "DATE", [None, None]),
    (pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.nulls(1)), "DATE", [None, None]),
    (pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint64()), pa.array(["over twelve bytes", ""], pa.string_view())),
     "VARCHAR", ["over twelve bytes", None, ""]),
    (pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([b"more than twelve \xff", None], pa.binary_view())),
     "BLOB", [b"more than twelve \xff", None]),
    # Libraries write the type of nulls for lists that are always empty, and for members that are always null.
    (pa.array([[], None, [None]], pa.list_(pa.null())), "BIGINT[]", [[], None, [None]]),
    (pa.array([[], None, [None]], pa.list_(pa.null())), "JSON", ["[]", None, "[null]"]),
    (pa.array([{"a": None}, None], pa.struct([("a", pa.null())])), "STRUCT(a DATE)", [{"a": None}, None]),
    (pa.array([{"a": None}, None], pa.struct([("a", pa.null())])), "JSON", ['{"a":null}', None]),
    (pa.array([[[], [None]], []], pa.list_(pa.list_(pa.null()))), "DATE[][]", [[[], [None]], []]),
    (pa.array([dt.date(2026, 1, 2)]), "TIMESTAMP", [dt.datetime(2026, 1, 2)]),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=5).bytes, None], pa.binary(16))), "UUID",
     [str(uuid.UUID(int=5)), None]),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":[1]}', "null", None, "2"])), "JSON",
     ['{"a":[1]}', None, None, "2"]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "kind", "expected"), SAME)
def test_values_are_unchanged(array: pa.Array, kind: str, expected: list[Any]) -> None:
    assert values(array, kind) == (expected, [])
    # A slice is read from its own start.
    padded = pa.concat_arrays([array.slice(0, 1), array]) if not isinstance(array, pa.ExtensionArray) else array
    assert values(padded.slice(len(padded) - len(array)), kind) == (expected, [])


@pytest.mark.parametrize(
    ("array", "kind", "expected", "reason"),
    [
        (pa.array([300, 1]), "TINYINT", [1], "c: 300 is not a TINYINT"),
        (pa.array([1.5, 1.0]), "BIGINT", [1], "c: 1.5 is not a BIGINT"),
        (pa.array(["x", "1"]), "BIGINT", [1], 'c: "x" is not a BIGINT'),
        (pa.array([1, 2000], pa.timestamp("ns")), "TIMESTAMP", [dt.datetime(1970, 1, 1, 0, 0, 0, 2)],
         "c: expected TIMESTAMP in whole microseconds of 64 bits, found 1 ns since 1970"),
        (pa.array([2**62, 0], pa.timestamp("s")), "TIMESTAMP", [dt.datetime(1970, 1, 1)],
         f"c: expected TIMESTAMP in whole microseconds of 64 bits, found {2**62} s since 1970"),
        (pa.array([-(2**63), 0]).view(pa.timestamp("us")), "TIMESTAMP", [dt.datetime(1970, 1, 1)],
         f"c: expected TIMESTAMP in whole microseconds of 64 bits, found {-(2**63)} us since 1970"),
        (pa.array([-(2**63) + 2, 0]).view(pa.timestamp("us")), "VARCHAR", ["1970-01-01 00:00:00"],
         f"c: expected TIMESTAMP in whole microseconds of 64 bits, found {-(2**63) + 2} us since 1970"),
        (pa.array([-(2**63), 0]).view(pa.timestamp("us", "UTC")), "JSON", ['"1970-01-01 00:00:00+00"'],
         f"c: expected TIMESTAMP WITH TIME ZONE in whole microseconds of 64 bits, found {-(2**63)} us since 1970"),
        (pa.array([-(2**31), 0], pa.int32()).view(pa.date32()), "DATE", [dt.date(1970, 1, 1)],
         f"c: expected DATE in days of 32 bits, found {-(2**31)} days since 1970"),
        (pa.array([86_400_000 * 2**31, 0]).view(pa.date64()), "DATE", [dt.date(1970, 1, 1)],
         f"c: expected DATE in days of 32 bits, found {86_400_000 * 2**31} ms since 1970"),
        (pa.array([2**31 - 2, 0], pa.int32()).view(pa.date32()), "TIMESTAMP", [dt.datetime(1970, 1, 1)],
         'c: "5881580-07-10" is not a TIMESTAMP'),
        (pa.array([106_751_992, 0], pa.int32()).view(pa.date32()), "TIMESTAMP WITH TIME ZONE",
         [dt.datetime(1970, 1, 1, tzinfo=UTC)], 'c: "294247-01-11" is not a TIMESTAMP WITH TIME ZONE'),
        (pa.StructArray.from_arrays([pa.array([2**62, 0]).view(pa.timestamp("us")), pa.array([float("nan"), 0.5])], ["at", "n"]),
         "JSON", ['{"at":"1970-01-01 00:00:00","n":0.5}'], "c: an object is not a JSON"),
        (pa.array([[1999], [1000]], pa.list_(pa.time64("ns"))), "TIME[]", [[dt.time(0, 0, 0, 1)]],
         "c[]: expected TIME in whole microseconds of 64 bits, found 1999 ns since 00:00"),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['1,"":2', "1"])), "JSON", ["1"],
         "c: expected JSON: duplicate member "),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['1,"b":2', "1"])), "JSON", ["1"],
         "c: expected JSON: not one JSON value"),
        (pa.array([b"\xff", b"a"], pa.binary()).view(pa.string()), "VARCHAR", ["a"], "c: not UTF-8 at byte 0"),
        (pa.array([b"a\xff", b"a"], pa.large_binary()).view(pa.large_string()), "VARCHAR", ["a"], "c: not UTF-8 at byte 1"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_reject_their_record(array: pa.Array, kind: str, expected: list[Any], reason: str) -> None:
    found, rejects = values(array, kind)
    assert found == expected
    ((row, why),) = rejects
    assert (row, why.split(" at character")[0]) == (0, reason)


def test_what_is_always_null_adds_no_column() -> None:
    """As for JSON: a column, or a member, appears with its first value."""
    batch = pa.record_batch({
        "a": pa.nulls(1), "b": pa.array([[]], pa.list_(pa.null())), "c": pa.array([{"x": 1, "y": None}]),
        "d": pa.array([{"y": None}]),
    })  # fmt: skip
    assert ArrowDecoder(Columns()).decode(rows(batch)).new_columns.to_dict() == {"c": "STRUCT(x BIGINT)"}


def test_types_convert_or_are_refused_as_a_whole() -> None:
    """`convertible` is true exactly where at least one value is converted."""
    samples: dict[str, list[Any]] = {
        "BOOLEAN": [True], "TINYINT": [1], "BIGINT": [1, 20_000], "UBIGINT": [1], "FLOAT": [1.0], "DOUBLE": [1.0, 1.5],
        "DECIMAL(9,2)": [decimal.Decimal(1)], "DATE": [dt.date(2026, 1, 2)], "TIME": [dt.time(1)], "TIMESTAMP": [MOMENT],
        "TIMESTAMP WITH TIME ZONE": [MOMENT], "BLOB": [b"1"], "UUID": [str(uuid.UUID(int=1))],
        "VARCHAR": ["1", "true", "2026-01-02", "01:02:03", str(uuid.UUID(int=1)), "[1]", '{"a":1}', "ab"],
        "BIGINT[]": [[1]], "STRUCT(a BIGINT)": [{"a": 1}],
    }  # fmt: skip
    wanted = [*samples, "JSON", "HUGEINT", "MAP(VARCHAR, BIGINT)", "VARCHAR[]", "STRUCT(a DATE)"]
    for natural, target in itertools.product(samples, wanted):
        columns = Columns.of({"c": natural})
        array = pa.array(samples[natural], schema(columns).field("c").type)
        table, reasons = Fitting(columns, Columns.of({"c": target})).fit([array], len(array))
        can = len(reasons) < len(array) and not (target == "STRUCT(a DATE)" and natural.startswith("STRUCT"))
        assert convertible(parse_type(natural), parse_type(target)) >= can, (natural, target)
        if not convertible(parse_type(natural), parse_type(target)):
            assert len(reasons) == len(array), (natural, target, table)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"c": pa.array([1])}), "column c: expected DATE, found BIGINT"),
        (pa.record_batch({"c": pa.array([[1]])}), "column c: expected DATE, found BIGINT[]"),
        (pa.record_batch({"c": pa.array([1], pa.duration("s"))}), "column c: no column type stores duration[s]"),
        (pa.record_batch({"c": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}),
         "column c: no column type stores map<string, int64>"),
        (pa.record_batch({"c": pa.RunEndEncodedArray.from_arrays([1 << 30], [1])}).slice(0, 1),
         "column c: no column type stores run_end_encoded<run_ends: int64, values: int64>"),
        (pa.record_batch({"c": pa.array([decimal.Decimal(1)], pa.decimal256(60, 2))}),
         "column c: no column type stores decimal256(60, 2)"),
        (pa.record_batch([pa.array([1]), pa.array([1])], ["c", "C"]),
         "it writes two columns 'c' (upper and lower case are the same)"),
        (pa.record_batch({"offset": pa.array([1], pa.int32())}), "column offset: expected int64, found int32"),
        (pa.record_batch({"c": pa.array([[]], pa.list_(pa.null()))}), 'column c: expected DATE, found "NULL"[]'),
        (pa.record_batch({"c": pa.array([{}])}), "column c: no column type stores struct<>, which has no members"),
        (pa.record_batch({"c": pa.array([{"": 1}])}),
         "column c: no column type stores a struct with a member name that is empty, beyond 255 characters, or has NUL"),
        (pa.record_batch({"": pa.array([1])}), "column '': expected a name of 1 to 255 characters without NUL"),
        (pa.record_batch({"a\0b": pa.array([1])}), "column 'a\\x00b': expected a name of 1 to 255 characters without NUL"),
    ],
)  # fmt: skip
def test_columns_of_a_wrong_type_are_an_error_without_a_search(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(TransformFailed) as raised:
        decoded(batch, {"c": "DATE"})
    assert raised.value.what == f"transform (t/0 [0, 9)): {message}"
    assert raised.value.phase == ""


def test_columns_match_by_name_without_case_and_missing_ones_are_null() -> None:
    found = decoded(pa.record_batch({"ID": [1], "_kafka_offset": [7]}), {"id": "BIGINT", "name": "VARCHAR"})
    assert found.table.to_pylist() == [{"id": 1, "name": None}]
    assert not found.new_columns


def test_other_columns_are_new_columns() -> None:
    batch = pa.record_batch({"id": [1], "tags": [["a"]], "offset": [5], "nothing": pa.nulls(1)})
    found = decoded(batch, {"id": "BIGINT"})
    assert found.new_columns.to_dict() == {"tags": "VARCHAR[]"}


def test_too_many_new_columns_are_an_error() -> None:
    batch = pa.record_batch({f"c{at}": [1] for at in range(MOST_IN_RECORD + 1)})
    with pytest.raises(TransformFailed, match="expected at most"):
        ArrowDecoder(Columns(), Bound()).decode(rows(batch))


def test_one_bad_row_rejects_all_rows_of_its_record() -> None:
    batch = pa.record_batch({"id": [1, 2, 3, 4], "n": [1, 300, 1, 1]})
    typed = rows(batch)
    typed = TypedRows(typed.columns, typed.arrays, 4, None, typed.reasons, np.array([0, 0, 0, 2]))
    found = ArrowDecoder(Columns.of({"id": "BIGINT", "n": "TINYINT"})).decode(typed)
    assert found.table.column("id").to_pylist() == [4]
    assert (found.kept, [index for index, _ in found.rejects]) == ([2], [0])


def test_what_a_dictionary_or_a_view_repeats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text, count = "x" * 50_000, 1_000
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), [text])
    one = pa.array([text], pa.string_view()).buffers()
    view = pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(bytes(one[1])[:16] * count), one[2]])
    inner = pa.ListArray.from_arrays([0, count], dictionary)
    monkeypatch.setattr(decoder, "MOST_BYTES", 49_000_000)
    for array in (dictionary, view, inner):
        with pytest.raises(TransformFailed, match=r"a record batch has 5\d,\d+,\d+ bytes without dictionaries"):
            rows(pa.record_batch({"c": array}))
    nulls = pa.ListArray.from_arrays([0, 1 << 30], pa.nulls(1 << 30))
    with pytest.raises(TransformFailed, match="without dictionaries"):
        rows(pa.record_batch({"c": nulls}))


def test_views_in_a_buffer_of_any_length_are_counted() -> None:
    one = pa.array(["a text of more than twelve", None, "b"], pa.string_view()).buffers()
    odd = pa.Array.from_buffers(pa.string_view(), 3, [one[0], pa.py_buffer(bytes(one[1]) + b"abc"), one[2]])
    assert plain_bytes(odd) == 26 + 1 + 12
    assert plain_bytes(odd.slice(2)) == 1 + 4
    assert plain_bytes(odd.slice(3)) == plain_bytes(pa.array([], pa.string_view())) == 0


def test_damaged_arrays_are_an_error() -> None:
    offsets = pa.array([0, 1 << 30, 1], pa.int32())
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets.buffers()[1], pa.py_buffer(b"ab")])
    index = pa.DictionaryArray.from_arrays(pa.array([0, 9], pa.int8()), ["a"], safe=False)
    nested = pa.ListArray.from_arrays([0, 1], pa.array([b"\xff"], pa.binary()).view(pa.string()))
    for array in (text, index, nested):
        with pytest.raises(TransformFailed, match="a record batch is damaged") as raised:
            rows(pa.RecordBatch.from_arrays([array], ["c"]))
        assert raised.value.phase == "work"


def test_names_that_are_not_utf8_are_an_error() -> None:
    schema = pa.schema([("c", pa.struct([("name", pa.int64())]))])
    damaged = pa.ipc.read_schema(pa.py_buffer(schema.serialize().to_pybytes().replace(b"name", b"n\xffme")))
    with pytest.raises(TransformFailed, match=r"column c: the name of a member is not UTF-8: b'n\\xffme'"):
        BatchReader(damaged, "")


def test_large_batches_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_BLOCK_ROWS", 3)
    text = pa.array([b"a", b"b", b"c", b"d", b"\xff"], pa.binary()).view(pa.string())
    batch = pa.record_batch({"offset": range(5), "c": text})
    parts = list(BatchReader(batch.schema, "").read(batch))
    assert [part.count for part in parts] == [3, 2]
    assert [part.reasons for part in parts] == [{}, {1: "c: not UTF-8 at byte 0"}]
    whole = TypedRows.joined(parts)
    assert whole.offsets is not None
    assert (whole.count, whole.offsets.tolist(), list(whole.reasons)) == (5, [0, 1, 2, 3, 4], [4])
    assert whole.part(3, 5).reasons == {1: "c: not UTF-8 at byte 0"}


def test_json_of_a_text_is_a_json_string() -> None:
    """As in other formats with types: only Arrow's JSON type marks text as JSON."""
    found, _ = values(pa.array(['{"a":1}']), str(JSON))
    assert json.loads(found[0]) == '{"a":1}'
