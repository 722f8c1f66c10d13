"""Rows as JSON documents: any value that a column can hold gives a document that every parser takes."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kpipe.schema.columns import BIGINT, Columns, ListOf, Struct
from resources.destinations.json_documents import documents, encoded, plain
from resources.duckdb_engine import in_memory

_FOREVER, _YEAR_10000, _LATEST = 2**63 - 1, 253_402_300_800_000_000, (2**63 - 1) // 1000 * 1000  # microseconds


def times(values: list[int | None], zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", zone))


def strict(text: str) -> Any:
    """Parse as a parser that knows no NaN does."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (_FOREVER, "infinity"),
        (-_FOREVER, "-infinity"),
        (_YEAR_10000, "10000-01-01T00:00:00.000000"),
        (_LATEST, "294247-01-10T04:00:54.775000"),
        (0, "1970-01-01T00:00:00.000000"),
    ],
)
def test_times_outside_of_every_calendar(value: int, written: str) -> None:
    columns = Columns.of({"a": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE", "l": "TIMESTAMP[]", "s": "STRUCT(x TIMESTAMPTZ)"})
    inside = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), times([value, None]))
    struct = pa.StructArray.from_arrays([times([value], "UTC")], ["x"])
    block = pa.table({"a": times([value]), "z": times([value], "UTC"), "l": inside, "s": struct})
    instant = written if "infinity" in written else f"{written}Z"
    (found,) = documents(block, columns)
    assert strict(found) == {"a": written, "z": instant, "l": [written, None], "s": {"x": instant}}
    assert [strict(texts[0]) for texts in encoded(block, columns)] == [written, instant, [written, None], {"x": instant}]
    assert [texts[0] for texts in plain(block, columns)][:2] == [written, instant]


def test_dates_and_numbers_without_an_end() -> None:
    days = pa.array([2**31 - 1, -(2**31) + 1], pa.int32()).cast(pa.date32())
    block = pa.table({"d": days, "f": pa.array([float("nan"), float("-inf")], pa.float32()), "g": [float("inf"), 1.5]})
    found = [strict(text) for text in documents(block, Columns.of({"d": "DATE", "f": "FLOAT", "g": "DOUBLE"}))]
    assert found == [{"d": "infinity", "f": "nan", "g": "inf"}, {"d": "-infinity", "f": "-inf", "g": 1.5}]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ('{"a":NaN,"b":[-Infinity,inf , 1]}', {"a": "NaN", "b": ["-Infinity", "inf", 1]}),
        ('{"nan":"NaN, \\"Infinity\\""}', {"nan": 'NaN, "Infinity"'}),
        ("Infinity", "Infinity"),
        ("-nan", "-nan"),
        ('"infinite, NaN"', "infinite, NaN"),
        ('{"inf":1e400}', {"inf": float("inf")}),
        (None, None),
    ],
)
def test_values_of_type_json_that_duckdb_takes_and_json_has_not(value: str | None, meant: Any) -> None:
    """`to_json('inf'::DOUBLE)` in an expression gives them. Texts are as they were."""
    block = pa.table({"j": pa.array([value], pa.string()), "n": pa.array([[value]], pa.list_(pa.string()))})
    columns = Columns.of({"j": "JSON", "n": "JSON[]"})
    assert strict(documents(block, columns)[0]) == {"j": meant, "n": [meant]}
    assert [strict(texts[0]) for texts in encoded(block, columns)] == [meant, [meant]]


def test_texts_are_no_numbers() -> None:
    block = pa.table({"t": ["NaN", '{"a":inf}']})
    assert plain(block, Columns.of({"t": "VARCHAR"})) == [["NaN", '{"a":inf}']]
    assert [strict(text)["t"] for text in documents(block, Columns.of({"t": "VARCHAR"}))] == ["NaN", '{"a":inf}']


@pytest.mark.parametrize("count", [0, 1, 400, 1_000, 2_200])
def test_very_many_columns_and_fields(count: int) -> None:
    row = {f"c{at}": None if at % 7 == 3 else at for at in range(count)}
    wide = pa.table({name: pa.array([value], pa.int64()) for name, value in {"id": 1, **row}.items()})
    columns = Columns(tuple((name, BIGINT) for name in wide.column_names))
    assert [json.loads(text) for text in documents(wide, columns)] == [{"id": 1, **row}]
    assert len(encoded(wide, columns)) == len(plain(wide, columns)) == count + 1
    if 0 < count <= 1_000:
        inside = pa.table({"o": pa.array([[row], None], pa.list_(pa.struct([(name, pa.int64()) for name in row])))})
        kind = ListOf(Struct(tuple((name, BIGINT) for name in row)))
        assert [json.loads(text) for text in documents(inside, Columns((("o", kind),)))] == [{"o": [row]}, {"o": None}]


def test_a_value_that_stops_duckdb_stops_no_later_call() -> None:
    """DuckDB fails every statement of an engine after such an error, and tasks of other pipelines share the thread."""
    bad = pa.Array.from_buffers(pa.decimal128(38, 0), 1, [None, pa.py_buffer((-(2**127)).to_bytes(16, "little", signed=True))])
    with pytest.raises(duckdb.Error):
        documents(pa.table({"a": bad}), Columns.of({"a": "DECIMAL(38,0)"}))
    assert documents(pa.table({"a": [1]}), Columns.of({"a": "BIGINT"})) == ['{"a":1}']
    with pytest.raises(duckdb.Error):
        in_memory.query("SELECT CAST(a AS VARCHAR) FROM block", pa.table({"a": bad}))
    assert in_memory.ask("SELECT $1", [1]) == 1
    assert in_memory.query("SELECT a FROM block", pa.table({"a": [1]})).to_pylist() == [{"a": 1}]
