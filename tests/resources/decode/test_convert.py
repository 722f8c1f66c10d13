"""Typed values of Avro, Protobuf and Connect become values of columns of another type, or the record is a dead letter."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from kpipe.schema.columns import Columns, parse_type
from resources.decode.convert import Fitting, convertible
from resources.duckdb_engine.arrow_types import staged_type
from tests.cases import each_case

UUID, BAD = "6b1f3c2a-0000-4000-8000-00000000000a", "not-a-uuid"
RECORD, LIST, MAP = "STRUCT(u UUID, x INTEGER)", "UUID[]", "MAP(VARCHAR, UUID)"
DIGITS = '{"x":1.10000000000000000001}'


def fit(natural: str, wanted: str, values: list[Any]) -> tuple[list[Any], dict[int, str]]:
    array = pa.array(values, staged_type(parse_type(natural)))
    table, reasons = Fitting(Columns.of({"c": natural}), Columns.of({"c": wanted})).fit([array], len(values))
    assert convertible(parse_type(natural), parse_type(wanted))
    assert table.column("c").type == staged_type(parse_type(wanted))
    return table.column("c").to_pylist(), reasons


@each_case(
    "natural, wanted, good, bad, expected, where",
    [
        ("UUID", "JSON", UUID.upper(), BAD, f'"{UUID}"', "c"),
        (RECORD, "JSON", {"u": UUID, "x": 1}, {"u": BAD, "x": 1}, f'{{"u":"{UUID}","x":1}}', "c.u"),
        (RECORD, "VARCHAR", {"u": UUID, "x": 1}, {"u": BAD, "x": 1}, f'{{"u":"{UUID}","x":1}}', "c.u"),
        (RECORD, RECORD, {"u": UUID, "x": 1}, {"u": BAD, "x": 1}, {"u": UUID, "x": 1}, "c.u"),
        (RECORD, MAP, {"u": UUID, "x": None}, {"u": BAD, "x": 1}, [("u", UUID), ("x", None)], "c.u"),
        (LIST, "JSON", [UUID, None], [UUID, BAD], f'["{UUID}",null]', "c[]"),
        (LIST, "VARCHAR", [UUID, None], [BAD], f'["{UUID}",null]', "c[]"),
        (MAP, "JSON", [("k", UUID)], [("k", UUID), ("l", BAD)], f'{{"k":"{UUID}"}}', "c{}"),
        (MAP, MAP, [("k", UUID.upper())], [("k", BAD)], [("k", UUID)], "c{}"),
        (f"{RECORD}[]", "JSON", [{"u": UUID, "x": 1}, None], [{"u": BAD}], f'[{{"u":"{UUID}","x":1}},null]', "c[].u"),
    ],
)
def test_an_invalid_uuid_at_any_depth(natural: str, wanted: str, good: Any, bad: Any, expected: Any, where: str) -> None:
    found, reasons = fit(natural, wanted, [None, good, bad, good])
    assert [found[0], found[1], found[3]] == [None, expected, expected]
    assert reasons == {2: f'{where}: "{BAD}" is not a UUID'}


@each_case(
    "natural, wanted, value, expected",
    [
        ("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, BIGINT)", [("a", 5), ("b", None)], [("a", 5), ("b", None)]),
        ("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, BIGINT)", [], []),
        ("MAP(VARCHAR, MAP(VARCHAR, INTEGER)[])", "MAP(VARCHAR, MAP(VARCHAR, VARCHAR)[])", [("a", [[("b", 1)]])],
         [("a", [[("b", "1")]])]),
        ("MAP(VARCHAR, STRUCT(a INTEGER))", "MAP(VARCHAR, JSON)", [("k", {"a": 1})], [("k", '{"a":1}')]),
        ("MAP(VARCHAR, JSON)", "JSON", [('k"', DIGITS), ("l", None)], f'{{"k\\"":{DIGITS},"l":null}}'),
        ("MAP(VARCHAR, JSON)", "VARCHAR", [], "{}"),
        ("STRUCT(m MAP(VARCHAR, JSON))", "JSON", {"m": [("k", DIGITS)]}, f'{{"m":{{"k":{DIGITS}}}}}'),
        ('MAP(VARCHAR, STRUCT("aJSON" VARCHAR))', "JSON", [("k", {"aJSON": "x"})], '{"k":{"aJSON":"x"}}'),
        ("STRUCT(b BLOB)", "JSON", {"b": b"\x00\xff"}, '{"b":"AP8="}'),
        ("STRUCT(b BLOB)", "VARCHAR", {"b": b"ab"}, '{"b":"YWI="}'),
        ("STRUCT(h HUGEINT)", "JSON", {"h": "170141183460469231731687303715884105727"},
         '{"h":170141183460469231731687303715884105727}'),
    ],
)  # fmt: skip
def test_maps_and_members(natural: str, wanted: str, value: Any, expected: Any) -> None:
    assert fit(natural, wanted, [None, value, value]) == ([None, expected, expected], {})
    sliced, _ = fit(natural, wanted, [value, None])
    assert sliced == [expected, None]


def test_what_does_not_fit() -> None:
    found, reasons = fit("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, TINYINT)", [[("a", 1)], [("a", 1), ("b", 128)], [("a", 2)]])
    assert (found[0], found[2], reasons) == ([("a", 1)], [("a", 2)], {1: "c{}: 128 is not a TINYINT"})
    found, reasons = fit("MAP(VARCHAR, DOUBLE)", "JSON", [[("a", 1.5)], [("a", float("nan"))]])
    assert (found, reasons) == (['{"a":1.5}', None], {1: "c: an object is not a JSON"})
    assert not convertible(parse_type("MAP(VARCHAR, BOOLEAN)"), parse_type("MAP(VARCHAR, DATE)"))


@each_case(
    "natural, wanted, good, bad",
    [
        ("DECIMAL(38,30)", "BIGINT", ("12345678", 12345678), "0.5"),
        ("DECIMAL(38,38)", "TINYINT", ("0", 0), "0.5"),
        ("DECIMAL(38,30)", "TINYINT", ("-128", -128), "128"),
        ("DECIMAL(38,0)", "UBIGINT", ("18446744073709551615", 2**64 - 1), "-1"),
        ("DECIMAL(38,38)", "HUGEINT", ("0", "0"), "0.5"),
        ("DECIMAL(4,2)", "INTEGER", ("99", 99), "99.01"),
    ],
)
def test_decimals_become_integers_without_a_fraction(natural: str, wanted: str, good: tuple[str, Any], bad: str) -> None:
    found, reasons = fit(natural, wanted, [None, Decimal(good[0]), Decimal(bad)])
    assert (found, list(reasons)) == ([None, good[1], None], [2])
    assert reasons[2].endswith(f"is not a {wanted}") or reasons[2].endswith(f"is not an {wanted}")


def test_a_number_beyond_the_integers_of_a_column() -> None:
    found, reasons = fit("DOUBLE", "TINYINT", [127.0, 128.0, 1e300, float("nan"), 2.5])
    assert (found, list(reasons)) == ([127, None, None, None, None], [1, 2, 3, 4])
    found, reasons = fit("UBIGINT", "BIGINT", [2**63 - 1, 2**63])
    assert (found, list(reasons)) == ([2**63 - 1, None], [1])


def test_text_is_no_boolean_as_in_json() -> None:
    found, reasons = fit("JSON", "BOOLEAN", ["true", "false", '"true"', "1", None])
    assert (found, list(reasons)) == ([True, False, None, None, None], [2, 3])
    for text in ("t", "true", "1"):
        table, reasons = Fitting(Columns.of({"c": "VARCHAR"}), Columns.of({"c": "BOOLEAN"})).fit([pa.array([text])], 1)
        assert (table.column("c").to_pylist(), reasons) == ([None], {0: f'c: "{text}" is not a BOOLEAN'})
    assert not convertible(parse_type("VARCHAR"), parse_type("BOOLEAN"))
