"""Casts of nested columns to the types of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from resources.destinations.arrow_types import cast, textual

TEXT, TIME = pa.string(), pa.time64("us")


def nested(name: str, kind: pa.DataType) -> list[pa.DataType]:
    row = pa.struct([(name, kind)])
    return [row, pa.list_(row), pa.map_(TEXT, row), pa.struct([("a", pa.list_(row))])]


def test_a_field_that_differs_by_case_is_never_lost() -> None:
    """Arrow casts by exact names, and writes NULL for fields that the source lacks."""
    for stored, wanted in zip(nested("name", TEXT), nested("Name", TEXT), strict=True):
        with pytest.raises(pa.ArrowInvalid, match="field name differs from the table's field Name by case only"):
            cast(pa.chunked_array([pa.nulls(1, stored)]), wanted)
    wider = pa.struct([("name", TEXT), ("n", pa.int64())])
    assert cast(pa.chunked_array([pa.array([{"name": "a"}])]), wider).to_pylist() == [{"name": "a", "n": None}]
    assert cast(pa.chunked_array([pa.array([{"name": "a", "n": 1}])]), pa.struct([("n", pa.int64())])).to_pylist() == [{"n": 1}]


def test_times_that_are_stored_as_text_stay_text() -> None:
    assert textual(TEXT, TIME) == TEXT and textual(TIME, TIME) == TIME and textual(TEXT, pa.int64()) == pa.int64()
    for stored, wanted in zip(nested("t", TEXT), nested("t", TIME), strict=True):
        assert textual(stored, wanted) == stored
    wider = pa.struct([("t", TIME), ("n", pa.int64())])
    assert textual(pa.struct([("t", TEXT)]), wider) == pa.struct([("t", TEXT), ("n", pa.int64())])
