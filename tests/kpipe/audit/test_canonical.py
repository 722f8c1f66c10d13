"""Equal values have equal texts, whatever their types are, and different ones have different texts."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.audit.canonical import (
    BOOLEAN,
    DATE,
    DOCUMENT,
    DOUBLE,
    EXACT,
    FLOAT,
    KINDS,
    NUMBER,
    TEXT,
    TIME,
    TIMESTAMP,
    UUID,
    joined,
    number,
    of_record,
    of_row,
    parse,
)

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)


@given(DECIMALS, DECIMALS)
def test_numbers_have_one_text_exactly_if_they_are_equal(one: Decimal, other: Decimal) -> None:
    assert (number(one) == number(other)) == (one == other)
    assert Decimal(number(one)) == one


@given(st.integers(-(10**60), 10**60), st.integers(0, 5))
def test_integers_and_decimals_of_the_same_number(value: int, zeros: int) -> None:
    assert number(value) == number(Decimal(value)) == number(Decimal(f"{value}.{'0' * (zeros + 1)}"))


def test_a_huge_exponent_needs_no_memory() -> None:
    assert number(parse(b"1e999999999")) == "1e999999999" and len(number(parse(b"1e-999999999"))) < 20
    assert of_record(DOUBLE)(parse(b"1e999999999")) == "Infinity"
    assert of_record(TIMESTAMP)(parse(b"1e999999999")) == '?"1E+999999999"'


INSTANT = 1_795_680_000_123_456  # 2026-11-26 08:00:00.123456 UTC


@pytest.mark.parametrize(
    ("kind", "record", "row"),
    [
        (NUMBER, "1", 1), (NUMBER, "1.0", Decimal("1.000")), (NUMBER, '"12.50"', Decimal("12.5")), (NUMBER, "true", 1),
        (NUMBER, "1e3", 1000), (NUMBER, "0.1234567890123456789", Decimal("0.1234567890123456789")), (NUMBER, "-0.0", 0),
        (NUMBER, "12345678901234567890.123", "12345678901234567890.1230"), (NUMBER, "7", "7"),
        (DOUBLE, "0.1", 0.1), (DOUBLE, "0.1000000000000000055", 0.1), (DOUBLE, "3", 3.0), (DOUBLE, "1e400", float("inf")),
        (FLOAT, "0.1", 0.10000000149011612), (FLOAT, "16777217", 16777216.0), (FLOAT, "0.1", "0.1"),
        (BOOLEAN, "true", True), (BOOLEAN, "0", False), (BOOLEAN, "false", "f"),
        (TIMESTAMP, '"2026-11-26T08:00:00.123456Z"', INSTANT), (TIMESTAMP, '"2026-11-26 09:00:00.1234569+01:00"', INSTANT),
        (TIMESTAMP, "1795680000123", INSTANT - 456), (TIMESTAMP, '"2026-11-26"', "2026-11-26 00:00:00"),
        (TIMESTAMP, '"2026-11-26T08:00:00.123456"', "2026-11-26 08:00:00.123456+00"),
        (DATE, '"2026-11-26"', "2026-11-26"), (DATE, "20783", date(2026, 11, 26)), (DATE, '"12026-01-01"', "12026-01-01"),
        (TIME, '"08:00"', "08:00:00.000000"), (TEXT, '"a"', "a"), (TEXT, "1.50", "1.50"), (TEXT, "true", "true"),
        (TEXT, '{"b": 1, "a": [1.0, null]}', '{"a":[1,null],"b":1}'), (TEXT, '"{\\"a\\": 1}"', '{"a":1}'),
        (EXACT, '"{\\"a\\": 1}"', '{"a": 1}'), (UUID, '"ABCD"', "abcd"),
        (DOCUMENT, '{"a": 1, "b": null}', '{"a": 1.0}'), (DOCUMENT, '{"a": {"x": 0.5}}', {"a": {"x": 0.5, "y": None}}),
        (DOCUMENT, '"text"', '"text"'), (DOCUMENT, "[1, 2]", [1, 2]),
    ],
)  # fmt: skip
def test_a_record_and_its_row(kind: str, record: str, row: Any) -> None:
    assert of_record(kind)(parse(record.encode())) == of_row(kind)(row)


@pytest.mark.parametrize(
    ("kind", "record", "row"),
    [
        (NUMBER, '"abc"', 0), (NUMBER, "0.1", Decimal("0.10000000000000000001")), (NUMBER, "[1]", 1), (NUMBER, '""', 0),
        (NUMBER, "9007199254740993", 9007199254740992), (DOUBLE, "0.1", 0.1 + 2**-55), (BOOLEAN, '"yes"', True),
        (TIMESTAMP, '"2026-11-26T08:00:00.123457Z"', INSTANT), (TIMESTAMP, '"2026-02-30"', 0), (TIMESTAMP, "true", 1000),
        (DATE, '"2026-11-26T08:00:00Z"', date(2026, 11, 26)), (TEXT, '"a"', "A"), (TEXT, '"a "', "a"), (TEXT, "1.50", "1.5"),
        (EXACT, '"{\\"a\\": 1}"', '{"a":1}'), (DOCUMENT, '{"a": 1}', '{"a": "1"}'), (TEXT, '"é"', "e\u0301"),
    ],
)  # fmt: skip
def test_a_row_that_was_altered(kind: str, record: str, row: Any) -> None:
    assert of_record(kind)(parse(record.encode())) != of_row(kind)(row)


@given(st.sampled_from(KINDS))
def test_no_value_is_not_an_empty_one(kind: str) -> None:
    assert of_record(kind)(None) is None and of_row(kind)(None) is None
    assert of_record(kind)("") is not None


def test_the_null_of_json_is_no_value_in_a_record_and_in_a_row() -> None:
    assert of_record(DOCUMENT)(parse(b"null")) is None
    assert of_row(DOCUMENT)("null") is None and of_row(DOCUMENT)(" null\n") is None
    assert of_row(DOCUMENT)("nul") == "?nul" and of_row(DOCUMENT)('"null"') == '"null"'


MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_timestamps_in_any_zone(moment: datetime, minutes: int) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    east = moment.replace(tzinfo=timezone.utc).astimezone(timezone(timedelta(minutes=minutes)))
    assert of_record(TIMESTAMP)(moment.isoformat()) == of_record(TIMESTAMP)(east.isoformat()) == of_row(TIMESTAMP)(micros)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES.filter(lambda value: value is not None), st.integers(0, 3))
def test_documents_in_any_form(value: Any, indent: int) -> None:
    shuffled = json.dumps(value, indent=indent or None, sort_keys=bool(indent % 2), ensure_ascii=bool(indent))
    assert of_record(DOCUMENT)(parse(json.dumps(value).encode("utf-8", "surrogatepass"))) == of_row(DOCUMENT)(shuffled)


@pytest.mark.parametrize("text", [b"", b"NaN", b"{", b"[" * 100_000, b"9" * 5000, b"\xff", b"{} x"])
def test_what_is_not_json(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_keys_of_several_columns_are_not_confused() -> None:
    assert joined(["a", None]) is None and joined(["a"]) == "a"
    assert len({joined(["a", "b"]), joined(["a,b", ""]), joined(['a","b']), joined(['["a","b"]']) and "x"}) == 4


def test_surrogates_without_a_partner_are_printable() -> None:
    text = of_record(TEXT)(parse(b'"a\\ud800"'))
    assert text is not None and text.encode() == b"a\\ud800"
