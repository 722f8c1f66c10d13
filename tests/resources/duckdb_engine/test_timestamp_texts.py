"""Compiled code converts timestamps in the form of RFC 3339 as DuckDB casts them, and leaves other texts to it."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from kpipe.schema.columns import Columns, parse_type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.timestamp_texts import instants
from resources.native import library
from tests.cases import each_case

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled loops were not built")

KINDS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
FORMS = [
    "2026-11-20T10:00:00Z", "2026-11-20 10:00:00", "2026-11-20T10:00:00.123456+05:30", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-14:00", "2024-02-29T23:59:59.5+01", "1969-12-31T23:59:59.000001-00:59",
]  # fmt: skip
OTHERS = [
    "", "2026-11-20", "2026-11-20T10:00", "2026-11-20T10:00:00.", "2026-11-20T10:00:00.1234567Z", "2026-11-20T24:00:00Z",
    "2026-11-20T10:00:60Z", "2026-11-20T10:60:00Z", "2026-02-29T10:00:00Z", "1900-02-29T10:00:00Z", "2026-13-20T10:00:00Z",
    "2026-00-20T10:00:00Z", "2026-11-00T10:00:00Z", "2026-11-31T10:00:00Z", "0000-11-20T10:00:00Z", "2026-11-20T10:00:00z",
    "2026-11-20t10:00:00Z", "2026-11-20T10:00:00+15:00", "2026-11-20T10:00:00+01:60", "2026-11-20T10:00:00+0100",
    "2026-11-20T10:00:00+1", "2026-11-20T10:00:00+01:", "2026-11-20T10:00:00 Z", " 2026-11-20T10:00:00Z",
    "2026-11-20T10:00:00Z ", "2026-11-20T10:00:00ZZ", "2026/11/20 10:00:00", "infinity", "epoch", "-2026-11-20T10:00:00Z",
    "2026-11-20T10:00:00 UTC", "20261-11-20T10:00:00Z", "2026-11-20T1\u0660:00:00Z", "2026-11-20T10:00:00,5Z",
]  # fmt: skip


def column(texts: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


def by_duckdb(texts: list[str | None], kind: str) -> pa.ChunkedArray:
    """Cast without compiled code."""
    return in_memory._cast_all(pa.table({"v": column(texts)}), {0: parse_type(kind)})[0]


def changed(text: str, chance: random.Random) -> str:
    """Return the text with another character, one more or one less."""
    at, letter = chance.randrange(len(text)), chance.choice("0123456789-+:.TZ ")
    return text[:at] + chance.choice(["", letter, letter, letter + text[at]]) + text[at + 1 :]


@each_case("kind", KINDS)
def test_texts_of_this_form_are_converted_as_duckdb_casts_them(kind: str) -> None:
    texts = [*FORMS, None, *FORMS]
    found = instants(column(texts), parse_type(kind))
    assert found is not None
    assert found.type == staged_type(parse_type(kind))
    assert found.equals(by_duckdb(texts, kind).combine_chunks())


@each_case("text", OTHERS)
def test_other_texts_are_left_to_duckdb(text: str) -> None:
    for kind in KINDS:
        assert instants(column([FORMS[0], text]), parse_type(kind)) is None


@each_case("kind", KINDS)
def test_each_day_of_four_centuries_is_converted(kind: str) -> None:
    days = duckdb.sql(
        "SELECT strftime(d, '%Y-%m-%dT12:34:56Z') FROM range(DATE '1799-12-31', DATE '2200-01-02', INTERVAL 1 DAY) r(d)"
    )
    texts = [text for (text,) in days.fetchall()]
    found = instants(column(texts), parse_type(kind))
    assert found is not None and len(texts) > 140_000
    assert found.equals(by_duckdb(texts, kind).combine_chunks())


@each_case("kind", KINDS)
def test_what_is_converted_of_spoilt_texts_is_what_duckdb_casts(kind: str) -> None:
    chance = random.Random(7)
    texts = [changed(chance.choice(FORMS), chance) for _ in range(5000)]
    found = {text: value for text in texts if (value := instants(column([text]), parse_type(kind))) is not None}
    assert len(found) > 500
    assert pa.concat_arrays(list(found.values())).equals(by_duckdb(list(found), kind).combine_chunks())


def test_parts_of_a_column_are_converted() -> None:
    kind = parse_type("TIMESTAMP")
    texts = [None, "2026-11-20T10:00:01Z", "yesterday", "2026-11-20T10:00:02Z", None, "2026-11-20T10:00:03Z"]
    part = pa.chunked_array([pa.array(texts, pa.string()).slice(3), pa.array(texts, pa.string()).slice(1, 1)])
    found = instants(part, kind)
    assert found is not None
    assert [at and at.second for at in found.to_pylist()] == [2, None, 3, 1]
    empty = instants(column([]), kind)
    assert empty is not None and empty.type == staged_type(kind)
    none = instants(column([None, None]), kind)
    assert none is not None and none.null_count == 2


def test_a_column_of_another_form_is_cast_beside_one_of_this_form() -> None:
    columns = Columns.of({"a": "TIMESTAMP", "b": "TIMESTAMP", "c": "DATE", "d": "VARCHAR"})
    table = pa.table({"a": ["2026-11-20T10:00:00Z"], "b": ["2026-11-20"], "c": ["2026-11-20"], "d": ["x"]})
    row = in_memory.cast(table, columns).to_pylist()[0]
    assert {name: str(value) for name, value in row.items()} == {
        "a": "2026-11-20 10:00:00", "b": "2026-11-20 00:00:00", "c": "2026-11-20", "d": "x",
    }  # fmt: skip
