"""Rows of Parquet and lakes as JSON records: a value is written exactly, or the error names why it cannot be."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kpipe.errors import ReadFailed
from resources.sources.json_rows import json_rows


def _rows(*columns: tuple[str, pa.Array]) -> list[Any]:
    table = pa.Table.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    return [json.loads(value or b"") for value in json_rows("file f", table, pa.array(range(len(table)), pa.int64())).values]


ONE = pa.array([1])
PAIR = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["A", "a"])
EARLY = pa.array([-(2**63) + 2], pa.timestamp("us"))


@pytest.mark.parametrize(
    "columns",
    [[("a", ONE), ("A", ONE)], [("s", PAIR)], [("l", pa.ListArray.from_arrays([0, 1], PAIR))],
     [("m", pa.MapArray.from_arrays([0, 1], pa.array(["k"]), PAIR))]],
    ids=["columns", "members", "members in a list", "members in a map"],
)  # fmt: skip
def test_names_that_differ_by_case_only_are_refused(columns: list[tuple[str, pa.Array]]) -> None:
    """The first value was written twice."""
    with pytest.raises(ReadFailed, match=r"file f: .[aA]. is the name of two columns or members"):
        _rows(*columns)


def test_names_of_different_structs_may_be_equal() -> None:
    inner = pa.StructArray.from_arrays([ONE], names=["A"])
    assert _rows(("a", inner), ("b", inner)) == [{"a": {"A": 1}, "b": {"A": 1}}]


@pytest.mark.parametrize(
    "array",
    [EARLY, pa.StructArray.from_arrays([EARLY], names=["t"]), pa.ListArray.from_arrays([0, 1], EARLY),
     pa.MapArray.from_arrays([0, 1], pa.array(["k"]), EARLY)],
    ids=["time", "struct", "list", "map"],
)  # fmt: skip
def test_a_time_that_stops_duckdb_is_refused(array: pa.Array) -> None:
    with pytest.raises(ReadFailed, match="before 290309-12-22 BC"):
        _rows(("c", array))
    fine = pa.array([-9_223_372_022_400_000_000, 2**63 - 1, None], pa.timestamp("us"))
    assert len(_rows(("c", fine))) == 3


def test_a_key_that_a_map_has_twice_is_refused() -> None:
    with pytest.raises(ReadFailed, match="file f: rows cannot be written as JSON"):
        _rows(("m", pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))))
    assert _rows(("c", ONE)) == [{"c": 1}]


BROKEN = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xff\xfe")])


def _decimal(value: int) -> pa.Array:
    return pa.Array.from_buffers(pa.decimal128(38, 0), 1, [None, pa.py_buffer(value.to_bytes(16, "little", signed=True))])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (BROKEN, "row 1: column 'c': a text is not UTF-8"),
        (_decimal(10**38), "row 1: column 'c': a decimal has too many digits for its type"),
        (_decimal(-(2**127)), "row 1: column 'c': a decimal has too many digits for its type"),
        (pa.StructArray.from_arrays([BROKEN], names=["t"]), "column 'c': a text is not UTF-8"),
        (pa.ListArray.from_arrays([0, 1], _decimal(-(2**127))), "column 'c': a decimal has too many digits for its type"),
        (pa.MapArray.from_arrays([0, 1], BROKEN, ONE), "column 'c': a text is not UTF-8"),
    ],
)
def test_values_that_their_type_does_not_have_are_refused(array: pa.Array, words: str) -> None:
    """One decimal stopped DuckDB for all later files of the process, and text was written as it is."""
    with pytest.raises(ReadFailed, match=f"file f: {words}"):
        _rows(("b", pa.array([1, 2])), ("c", pa.concat_arrays([pa.nulls(1, array.type), array])))
    assert _rows(("c", ONE)) == [{"c": 1}]


def test_times_of_other_units_are_exact_at_any_depth() -> None:
    times = [
        pa.array([1_000_001_000], pa.timestamp("ns")),
        pa.array([1001], pa.time32("ms")),
        pa.array([86_400_000], pa.date64()),
    ]
    inner = pa.StructArray.from_arrays([times[0], pa.ListArray.from_arrays([0, 1], times[1]), times[2]], names=["a", "b", "c"])
    assert _rows(("s", inner)) == [{"s": {"a": "1970-01-01T00:00:01.000001", "b": ["00:00:01.001"], "c": "1970-01-02"}}]
    with pytest.raises(ReadFailed, match="would lose data"):
        _rows(("s", pa.StructArray.from_arrays([pa.array([1], pa.timestamp("ns"))], names=["a"])))
