"""Each semantic type of Connect and Debezium, as a column and as a value."""

from __future__ import annotations

import sys
from datetime import date, datetime, time, timezone
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.debezium.semantic_types import _PLAIN, semantic
from resources.decode.factory import decoder, sampled
from resources.decode.json.rows import Reject
from resources.duckdb_engine.arrow_types import staged_type
from tests.cases import each_case
from tests.resources.decode.debezium.messages import CONNECT, DATA, TIME, change, kind, raw, unscaled

UTC = timezone.utc
SCALE = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}
TYPES: list[tuple[dict[str, Any], Any, str, Any]] = [
    (kind("v", "int8"), -128, "INTEGER", -128),
    (kind("v", "int16"), 1, "INTEGER", 1),
    (kind("v", "int32"), 2**31 - 1, "INTEGER", 2**31 - 1),
    (kind("v", "int64"), -(2**63), "BIGINT", -(2**63)),
    (kind("v", "float"), 0.5, "FLOAT", 0.5),
    (kind("v", "double"), 0.1, "DOUBLE", 0.1),
    (kind("v", "double"), "-Infinity", "DOUBLE", float("-inf")),
    (kind("v", "boolean"), True, "BOOLEAN", True),
    (kind("v", "string"), "é", "VARCHAR", "é"),
    (kind("v", "bytes"), raw(b"\x00\xff"), "BLOB", b"\x00\xff"),
    (kind("v", "bytes", CONNECT + "Decimal", **SCALE), unscaled(-12345), "DECIMAL(10,2)", Decimal("-123.45")),
    (kind("v", "bytes", CONNECT + "Decimal", **SCALE), -123.45, "DECIMAL(10,2)", Decimal("-123.45")),
    (kind("v", "bytes", CONNECT + "Decimal", parameters={"scale": "0"}), unscaled(10**37), "DECIMAL(38,0)", Decimal(10**37)),
    (kind("v", "bytes", CONNECT + "Decimal", parameters={"scale": "0"}), unscaled(10**38 - 1), "DECIMAL(38,0)",
     Decimal(10**38 - 1)),
    (kind("v", "bytes", CONNECT + "Decimal", parameters={"scale": "60"}), unscaled(1), "VARCHAR", f"0.{'0' * 59}1"),
    (kind("v", "struct", DATA + "VariableScaleDecimal"), {"scale": 3, "value": unscaled(1500)}, "VARCHAR", "1.500"),
    (kind("v", "struct", DATA + "VariableScaleDecimal"), {"scale": -2, "value": unscaled(15)}, "VARCHAR", "1500"),
    (kind("v", "int32", CONNECT + "Date"), -1, "DATE", date(1969, 12, 31)),
    (kind("v", "int32", TIME + "Date"), 20_000, "DATE", date(2024, 10, 4)),
    (kind("v", "int32", CONNECT + "Time"), 3_600_001, "TIME", time(1, 0, 0, 1000)),
    (kind("v", "int32", TIME + "Time"), 1, "TIME", time(0, 0, 0, 1000)),
    (kind("v", "int64", TIME + "MicroTime"), 86_399_999_999, "TIME", time(23, 59, 59, 999_999)),
    (kind("v", "int64", TIME + "NanoTime"), 1_999, "TIME", time(0, 0, 0, 1)),
    (kind("v", "int64", CONNECT + "Timestamp"), 1, "TIMESTAMP", datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (kind("v", "int64", TIME + "Timestamp"), -1, "TIMESTAMP", datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    (kind("v", "int64", TIME + "MicroTimestamp"), 1_700_000_000_123_456, "TIMESTAMP",
     datetime(2023, 11, 14, 22, 13, 20, 123_456)),
    (kind("v", "int64", TIME + "NanoTimestamp"), -1, "TIMESTAMP", datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (kind("v", "string", TIME + "ZonedTimestamp"), "2024-02-29T01:02:03.123456789+02:00", "TIMESTAMP WITH TIME ZONE",
     datetime(2024, 2, 28, 23, 2, 3, 123_456, UTC)),
    (kind("v", "string", TIME + "ZonedTimestamp"), "2024-02-29T01:02:03Z", "TIMESTAMP WITH TIME ZONE",
     datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    (kind("v", "string", TIME + "ZonedTime"), "10:00:00Z", "VARCHAR", "10:00:00Z"),
    (kind("v", "string", TIME + "IsoDate"), "2024-02-29Z", "DATE", date(2024, 2, 29)),
    (kind("v", "string", TIME + "IsoTime"), "01:02:03.5Z", "TIME", time(1, 2, 3, 500_000)),
    (kind("v", "string", TIME + "IsoTimestamp"), "2024-02-29T01:02:03Z", "TIMESTAMP", datetime(2024, 2, 29, 1, 2, 3)),
    (kind("v", "string", TIME + "Interval"), "P1Y2M3DT4H5M6.7S", "VARCHAR", "P1Y2M3DT4H5M6.7S"),
    (kind("v", "int64", TIME + "MicroDuration"), -5, "BIGINT", -5),
    (kind("v", "int32", TIME + "Year"), 2024, "INTEGER", 2024),
    (kind("v", "string", DATA + "Uuid"), "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    (kind("v", "string", DATA + "Json"), '{"a": 12345678901234567890}', "JSON", '{"a": 12345678901234567890}'),
    (kind("v", "string", DATA + "Xml"), "<a/>", "VARCHAR", "<a/>"),
    (kind("v", "string", DATA + "Enum", parameters={"allowed": "a,b"}), "a", "VARCHAR", "a"),
    (kind("v", "bytes", DATA + "Bits", parameters={"length": "12"}), raw(b"\x05\x08"), "VARCHAR", "100000000101"),
    (kind("v", "struct", DATA + "geometry.Point", fields=[kind("x", "double"), kind("wkb", "bytes")]),
     {"x": 1.0, "wkb": raw(b"\x01\x02"), "srid": 4326}, "BLOB", b"\x01\x02"),
    (kind("v", "array", items=kind("", "int32")), [1, None], "INTEGER[]", [1, None]),
    (kind("v", "array", items=kind("", "int64", TIME + "MicroTimestamp")), [1], "TIMESTAMP[]",
     [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    (kind("v", "map", keys={"type": "string"}, values=kind("", "string")), {"a": "b"}, "MAP(VARCHAR, VARCHAR)", [("a", "b")]),
    (kind("v", "map", keys={"type": "int32"}, values=kind("", "string")), [[1, "b"]], "JSON", '[[1,"b"]]'),
    (kind("v", "struct", fields=[kind("a", "int32", TIME + "Date")]), {"a": 0}, "STRUCT(a DATE)", {"a": date(1970, 1, 1)}),
]  # fmt: skip


@each_case(("field", "value", "column", "expected"), TYPES)
def test_a_semantic_type_gives_column_and_value(field: dict[str, Any], value: Any, column: str, expected: Any) -> None:
    kind = Format(type="debezium")
    payload = change("c", {"v": value}, fields=[field])
    found = sampled(kind, [payload])
    assert found.to_dict() == {"v": column}
    for columns in (found, Columns.of({"v": column})):
        decoded = decoder(kind, columns).decode(Payloads.of([payload]))
        assert not decoded.rejects and decoded.table.column("v").to_pylist() == [expected]


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    (kind("v", "int16"), 2**15, "not an integer of the schema's range"),
    (kind("v", "int32"), True, "not an integer"),
    (kind("v", "bytes"), "?", "not base64"),
    (kind("v", "bytes", CONNECT + "Decimal", **SCALE), unscaled(10**10), "more than 8 digits before the point"),
    (kind("v", "bytes", CONNECT + "Decimal", **SCALE), 1.005, "more than 2 digits after the point"),
    (kind("v", "bytes", CONNECT + "Decimal"), "AA==", "a Decimal without the parameter scale"),
    (kind("v", "int64", TIME + "MicroTime"), -1, "not a time of day"),
    (kind("v", "int64", CONNECT + "Timestamp"), 2**62, "beyond the range of a timestamp"),
    (kind("v", "string", TIME + "ZonedTimestamp"), "soon", "expected a time with a zone"),
    (kind("v", "string", DATA + "Json"), "{", "not JSON"),
    (kind("v", "string", DATA + "Uuid"), "x", "is not a UUID"),
    (kind("v", "array", items=kind("", "int32")), {}, "not a list"),
    (kind("v", "other"), 1, "unknown type: other"),
    ({"field": "v", "type": []}, 1, "unknown type: []"),
    ({"field": "v", "type": {"a": []}}, 1, "unknown type: {'a': []}"),
    ({"field": "v"}, 1, "unknown type: None"),
    (kind("v", "int32", TIME + "Year"), 2**40, "not an integer of 32 bits"),
]


@each_case(("field", "value", "reason"), WRONG)
def test_a_value_that_is_not_of_its_type_is_a_dead_letter(field: dict[str, Any], value: Any, reason: str) -> None:
    good = change("c", {"v": None, "id": 1}, fields=[kind("id", "int32")])
    columns = Columns.of({"id": "BIGINT", "v": "UUID" if "Uuid" in str(field) else "VARCHAR"})
    decoded = decoder(Format(type="debezium"), columns).decode(Payloads.of([good, change("c", {"v": value}, fields=[field])]))
    assert decoded.table.num_rows == 1
    ((at, why),) = decoded.rejects
    assert at == 1 and reason in why


def test_infinite_times_of_postgresql_are_infinite() -> None:
    fields = [kind("a", "int64", TIME + "MicroTimestamp"), kind("b", "string", TIME + "ZonedTimestamp")]
    payloads = [
        change("r", {"a": 9223372036825200000, "b": "infinity"}, fields=fields),
        change("r", {"a": -9223372036832400000, "b": "-infinity"}, fields=fields),
    ]
    columns = Columns.of({"a": "TIMESTAMP", "b": "TIMESTAMP WITH TIME ZONE"})
    table = decoder(Format(type="debezium"), columns).decode(Payloads.of(payloads)).table
    for name in ("a", "b"):
        assert table.column(name).cast("int64").to_pylist() == [2**63 - 1, -(2**63) + 1]


def test_a_declared_column_of_another_type_takes_what_fits() -> None:
    fields = [kind("n", "struct", DATA + "VariableScaleDecimal"), kind("i", "int32")]
    payload = change("c", {"n": {"scale": 1, "value": unscaled(15)}, "i": 300}, fields=fields)
    decode = decoder(Format(type="debezium"), Columns.of({"n": "DECIMAL(9,3)", "i": "VARCHAR"})).decode
    assert decode(Payloads.of([payload])).table.select(["n", "i"]).to_pylist() == [{"n": Decimal("1.500"), "i": "300"}]
    tiny = decoder(Format(type="debezium"), Columns.of({"n": "VARCHAR", "i": "TINYINT"})).decode(Payloads.of([payload]))
    assert tiny.rejects == [(0, "i: 300 is not a TINYINT")]


@pytest.mark.parametrize("text", ["io.debezium.time.Never", CONNECT + "Decimal"])
def test_an_unknown_declared_type_is_refused(text: str) -> None:
    from kpipe.errors import InvalidPipeline

    with pytest.raises(InvalidPipeline, match=r"format\.types\.v"):
        decoder(Format(type="debezium", types={"v": text}), Columns())


HOSTILE: list[Any] = [
    True, -1, 0, 2**31, 2**63 - 1, -(2**63), 10**4000, 0.5, 1e300, nan, inf, "", "x", "=", "AA==",
    raw(b"\x7f" * 50_000), "infinity", "NaN",
    "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-02-30", '"\\ud800"', "1" * 5000, "\u0661" * 4,
    [], [0], {}, {"wkb": 1}, {"scale": 1}, {"scale": True, "value": "AA=="}, {"scale": 2**70, "value": "AA=="},
    {"scale": -20_000, "value": raw(b"\x7f" * 50_000)},
]  # fmt: skip
PARAMETERS: list[dict[str, Any]] = [
    {}, {"scale": "999999999", "length": "999999999"}, {"scale": "-999999999", "length": "-1"},
    {"scale": "100000", "length": "x"}, {"scale": "2", "connect.decimal.precision": "999999999"},
    {"scale": None, "length": None}, {"scale": [], "length": {}}, {"scale": "2"},
]  # fmt: skip


@each_case("name", [*_PLAIN, CONNECT + "Decimal", DATA + "Bits"], ids=str)
def test_a_hostile_value_is_a_reject_or_a_value_of_bounded_size(name: str) -> None:
    for parameters in PARAMETERS:
        try:
            found = semantic(name, parameters)
        except Reject:
            continue
        assert found is not None
        for value in HOSTILE:
            try:
                made = found[1](value)
            except Reject as error:
                assert len(str(error)) < 200, (parameters, value)
            else:
                assert isinstance(made, int) or len(str(made)) < 400_000, (parameters, value)
                pa.array([made], staged_type(found[0]))  # as the decoder does


def test_digits_are_never_rounded() -> None:
    """PostgreSQL's NUMERIC has up to 131,072 digits before the point, and 16,383 after it."""
    digits = "7" * 147_455
    _, convert = semantic(DATA + "VariableScaleDecimal", {}) or (None, str)
    sys.set_int_max_str_digits(0)
    try:
        value = {"scale": 16_383, "value": unscaled(int(digits))}
    finally:
        sys.set_int_max_str_digits(4300)
    assert convert(value) == f"{digits[:131_072]}.{digits[131_072:]}"


@pytest.mark.parametrize(
    "name", ["org.apache.kafka.connect.data.Timestamp", "io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp"]
)
def test_a_time_that_duckdb_does_not_have_is_rejected(name: str) -> None:
    """A query that shows an earlier time stops DuckDB's whole database."""
    found = semantic(name, {})
    assert found is not None
    micros = {"Timestamp": 1000, "MicroTimestamp": 1, "NanoTimestamp": -1000}[name.rpartition(".")[2]]
    first = -9_223_372_022_400_000_000
    for wanted, good in ((first, True), (first - 1000, False), (-(2**63) + 1000, False), (2**63 - 1808, True)):
        value = wanted // micros if micros > 0 else wanted * 1000
        if not -(2**63) <= value < 2**63:
            continue
        if good:
            assert found[1](value) == (wanted // micros * micros if micros > 0 else wanted)
        else:
            with pytest.raises(Reject, match="beyond the range of a timestamp"):
                found[1](value)
