"""Numerals of any length and exponent become the nearest DOUBLE, the rounded DECIMAL and the very integer, or a dead letter."""

from __future__ import annotations

import struct
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.schema.columns import Columns, parse_type
from resources.decode.block import Payloads
from resources.decode.cast_text import Texts
from resources.decode.convert import Fitting
from resources.decode.json.decoder import JsonDecoder
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.column_casts import coercion, equality
from tests.cases import each_case

_WIDE = Context(prec=2_000_000, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Numeral(NamedTuple):
    """A numeral with zeros in the middle: short when a failure shows it."""

    before: str
    zeros: int = 0
    after: str = ""

    @property
    def text(self) -> str:
        return self.before + "0" * self.zeros + self.after


_LENGTHS = st.sampled_from([0, 1, 2, 17, 18, 19, 20, 37, 38, 39, 40, 41, 300, 400, 33_000, 70_000])


@st.composite
def numerals(draw: st.DrawFn) -> Numeral:
    """A numeral as JSON writes them; its exponent often cancels its zeros."""
    digits = draw(st.text("0123456789", min_size=1, max_size=30)).lstrip("0") or "0"
    zeros, near = draw(_LENGTHS), draw(st.integers(-25, 25))
    shape = draw(st.sampled_from(["fraction", "whole", "mixed", "huge"]))
    sign = draw(st.sampled_from(["", "-"]))
    if shape == "fraction":
        return Numeral(f"{sign}0.", zeros, f"{digits}e{zeros + near}")
    if shape == "whole":
        return Numeral(sign + digits, zeros if digits != "0" else 0, f"e{near - zeros}")
    if shape == "mixed":
        return Numeral(
            f"{sign}{digits}.{draw(st.text('0459', min_size=1, max_size=60))}{draw(st.sampled_from(['', f'E{near:+}']))}"
        )
    power = draw(st.sampled_from([10**6, 2**31, 2**32, 2**63, 2**64, 10**40]))
    return Numeral(f"{sign}{digits}e{draw(st.sampled_from(['', '-', '+']))}{power}")


def json_rows(kind: str, text: str, quoted: bool, row_by_row: bool) -> list[Any]:
    """What a JSON record with the numeral becomes: the row's value, or nothing."""
    value = f'"{text}"' if quoted else text
    # A name with an escape is left to the exact reader.
    name = "\\u0076" if row_by_row else "v"
    found = JsonDecoder(Columns.of({"v": kind})).decode(Payloads.of([f'{{"{name}":{value}}}'.encode()]))
    assert found.rows + len(found.rejects) == 1
    return list(found.table.column("v").to_pylist())


def text_rows(kind: str, text: str, neighbour: bytes | None) -> list[Any]:
    table, reasons, _ = Texts(Columns.of({"v": kind})).read([pa.array([text.encode(), neighbour], pa.binary())])
    return [] if 0 in reasons else [table.column("v")[0].as_py()]


def expression_rows(kind: str, column: pa.Array) -> list[Any]:
    """What the only value of an expression becomes in a column of the type."""
    have = {pa.string(): "VARCHAR", pa.float64(): "DOUBLE", pa.float32(): "FLOAT"}[column.type]
    value, refused = coercion(have, parse_type(kind))
    table = pa.table({"v": column})
    sql = f"SELECT {value.format('v')} AS v, {refused.format('v') or 'false'} AS bad FROM block"
    (row,) = in_memory.query(sql, table).to_pylist()
    return [] if row["bad"] else [row["v"]]


def every_way(kind: str, text: str) -> dict[str, list[Any]]:
    return {
        "json": json_rows(kind, text, False, False),
        "json, row by row": json_rows(kind, text, False, True),
        "json text": json_rows(kind, text, True, False),
        "json text, row by row": json_rows(kind, text, True, True),
        "text": text_rows(kind, text, b"1"),
        "text beside a bad one": text_rows(kind, text, b"x"),
        "expression": expression_rows(kind, pa.array([text])),
    }


@settings(max_examples=30, deadline=None)
@given(numerals())
@example(Numeral("0.", 100_001, "1e100002"))
@example(Numeral("0.", 1_000_009, "1e1000010"))
@example(Numeral("1", 1_000_009, "e-1000009"))
@example(Numeral("9007199254740993.0000000000000000000000000000000000000000001"))
@example(Numeral("2.4703282292062328e-324"))
@example(Numeral("-0e99999999999999999999"))
def test_a_double_is_the_nearest_one(numeral: Numeral) -> None:
    text = numeral.text
    expected = struct.pack("d", float(text))
    for way, found in every_way("DOUBLE", text).items():
        assert [struct.pack("d", value) for value in found] == [expected], way


@settings(max_examples=30, deadline=None)
@given(numerals(), st.sampled_from([(4, 0), (9, 3), (18, 3), (38, 0), (38, 10), (38, 38), (18, 18)]))
@example(Numeral("0.0000505545e+5"), (4, 0))
@example(Numeral("276.0550e+2"), (4, 0))
@example(Numeral("59.49550e2"), (4, 0))
@example(Numeral("-0.", 100, "15e101"), (18, 3))
@example(Numeral("0.9995"), (3, 3))
@example(Numeral("99999999999999999999999999999999999999"), (38, 0))
@example(Numeral("0.5"), (4, 0))
def test_a_decimal_is_rounded_half_away_from_zero_or_refused(numeral: Numeral, size: tuple[int, int]) -> None:
    text, (precision, scale) = numeral.text, size
    expected = None
    if "e" not in text.lower() or abs(int(text.lower().partition("e")[2])) < 10**9:
        value = Decimal(text)
        if value.adjusted() < 60:
            rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
            expected = rounded if abs(Fraction(rounded)) < 10 ** (precision - scale) else None
    elif "e-" in text or Decimal(text.lower().partition("e")[0]) == 0:
        expected = Decimal(0)
    for way, found in every_way(f"DECIMAL({precision},{scale})", text).items():
        assert found == ([] if expected is None else [expected]), way


@settings(max_examples=30, deadline=None)
@given(
    st.floats(-1e15, 1e15) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
    st.sampled_from([(10, 2), (38, 15), (38, 25), (38, 0)]),
)
@example(1.005, (10, 2))
@example(123456.789, (38, 15))
@example(1e23, (38, 0))
@example(1e22, (38, 15))
@example(-5e-324, (38, 25))
def test_a_double_becomes_the_decimal_of_its_shortest_text(value: float, size: tuple[int, int]) -> None:
    kind = f"DECIMAL({size[0]},{size[1]})"
    expected = json_rows(kind, repr(value), False, True)
    column = pa.array([value], pa.float64())
    assert expression_rows(kind, column) == expected
    fitted, reasons = Fitting(Columns.of({"v": "DOUBLE"}), Columns.of({"v": kind})).fit([column], 1)
    assert ([] if reasons else fitted.column("v").to_pylist()) == expected
    template = equality("DOUBLE", parse_type(kind)).format("v")
    equal = in_memory.query(f"SELECT {template} AS v FROM block", pa.table({"v": column}))
    assert equal.column("v")[0].as_py() == bool(expected and float(expected[0]) == value)


def test_a_float_becomes_the_decimal_of_its_shortest_text() -> None:
    assert expression_rows("DECIMAL(20,15)", pa.array([0.1], pa.float32())) == [Decimal("0.1")]


@settings(max_examples=30, deadline=None)
@given(numerals())
@example(Numeral("4503599627370497.2"))
@example(Numeral("1.00000000000000000001"))
@example(Numeral("1e-400"))
@example(Numeral("9223372036854775807.0"))
@example(Numeral("9223372036854775808.0"))
@example(Numeral("922337203685477580700e-2"))
def test_an_integer_is_the_very_number_or_refused(numeral: Numeral) -> None:
    text = numeral.text
    mantissa, _, power = text.lower().partition("e")
    expected: list[int] = []
    if Decimal(mantissa) == 0:
        expected = [0]
    elif abs(int(power or 0)) < 2_000_000:
        value = Decimal(text)
        if value.adjusted() < 30 and value.as_tuple().exponent > -1_000_000 and value == value.to_integral_value(context=_WIDE):  # type: ignore[operator]
            expected = [int(value)] if -(2**63) <= value < 2**63 else []
    for row_by_row in (False, True):
        assert json_rows("BIGINT", text, False, row_by_row) == expected


@each_case("text", ["", ".", "e5", "1e", "1 2e1", "--1e1", "0x10e1", "1_0e1", "nane1", "1e+", "+e1"])
def test_text_that_is_no_numeral_is_no_decimal(text: str) -> None:
    assert set(map(tuple, (text_rows("DECIMAL(9,2)", text, b"1"), expression_rows("DECIMAL(9,2)", pa.array([text]))))) == {()}


@each_case("kind", ["TINYINT", "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)"])
@each_case("text", ["1_0", "+1.0_0", "1e0_1", "１２", "0x10"])
def test_text_is_a_number_only_in_the_plain_notation(kind: str, text: str) -> None:
    for way, found in every_way(kind, text).items():
        assert found == [], way
    nested = JsonDecoder(Columns.of({"v": f"STRUCT(x {kind}[])"})).decode(Payloads.of([f'{{"v":{{"x":["{text}"]}}}}'.encode()]))
    assert [why for _, why in nested.rejects] == [f'v.x[0]: "{text}" is not a {kind}']
    table, reasons = Fitting(Columns.of({"v": "VARCHAR"}), Columns.of({"v": kind})).fit([pa.array([text])], 1)
    assert (table.column("v").to_pylist(), list(reasons)) == ([None], [0])


@each_case("kind", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
@each_case("last", ["2026-11-20T10:00:00.5+05:30", "20 Nov 2026", ""], ids=["one form", "another form", "empty"])
def test_timestamps_are_those_of_duckdb_whatever_their_form(kind: str, last: str) -> None:
    texts = ["skipped", "2026-11-20T10:00:00Z", None, "1969-12-31 23:59:59.999999", last]
    column = pa.array(texts, pa.string()).slice(1)
    columns = Columns((("v", parse_type(kind)),))
    table, reasons, _ = Texts(columns).read([column.cast(pa.binary())])
    assert table.equals(in_memory.parsed(pa.table({"v": column}), columns))
    assert list(reasons) == ([] if "T" in last else [3])


LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


@each_case("sign", ["", "-"])
@each_case("text", ["3.4028234663852886e38", "3.4028235e38", "3.4028235677973362e38", "340282350000000000000000000000000000000"])
def test_a_number_that_rounds_to_the_largest_float(sign: str, text: str) -> None:
    for way, found in every_way("FLOAT", sign + text).items():
        assert found == [-LARGEST if sign else LARGEST], way


@each_case("text", ["3.4028235677973366e38", "3.402824e38", "1e39"])
def test_a_number_beyond_every_float(text: str) -> None:
    for way, found in every_way("FLOAT", text).items():
        assert found == [], way
    neighbours = JsonDecoder(Columns.of({"v": "FLOAT"})).decode(
        Payloads.of([b'{"v":3.4028235e38}', f'{{"v":{text}}}'.encode(), *[b'{"v":1}'] * 18])
    )
    assert [at for at, _ in neighbours.rejects] == [1]
