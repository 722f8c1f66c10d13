"""Values of a topic with a schema: what fastavro and a validator of JSON Schema read is what was written."""

from __future__ import annotations

import io
import json
import random
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import fastavro
import jsonschema_rs
import pyarrow as pa
import pytest

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, parse_type
from resources.destinations.json_documents import documents
from resources.destinations.kafka_sink.avro_values import AvroValues
from resources.destinations.kafka_sink.registered_values import json_schema
from resources.destinations.kafka_sink.rejected_rows import Misfits
from resources.duckdb_engine.arrow_types import staged_type

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6)
_ZONED = _MOMENT.replace(tzinfo=timezone.utc)
#: Type, values as staged, values as read (None: the same).
_CASES: list[tuple[str, list[Any], list[Any] | None]] = [
    ("BOOLEAN", [True, False], None),
    ("TINYINT", [-128, 127, 0], None),
    ("UTINYINT", [255], None),
    ("SMALLINT", [-32768], None),
    ("USMALLINT", [65535], None),
    ("INTEGER", [-(2**31), 2**31 - 1, 63, 64, -64, -65], None),
    ("UINTEGER", [2**32 - 1], None),
    ("BIGINT", [-(2**63), 2**63 - 1], None),
    ("UBIGINT", [2**64 - 1, 0], [Decimal(2**64 - 1), Decimal(0)]),
    ("HUGEINT", [str(-(2**127)), "0"], [Decimal(-(2**127)), Decimal(0)]),
    ("FLOAT", [1.5, float("inf")], None),
    ("DOUBLE", [0.1, float("-inf"), 1e308], None),
    ("DECIMAL(38,10)", [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1.5")], None),
    ("DECIMAL(4,0)", [Decimal(-128), Decimal(127), Decimal(128)], None),
    ("VARCHAR", ["", "Köln 🚲\0", "x" * 200], None),
    ("JSON", ['{"a": 1}'], None),
    ("BLOB", [b"", b"\0\xff"], None),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31)], None),
    ("TIME", [time(23, 59, 59, 999_999)], None),
    ("TIMESTAMP", [_MOMENT], None),
    ("TIMESTAMP WITH TIME ZONE", [_ZONED], None),
    ("INTEGER[]", [[], [1, None, 3]], None),
    ("VARCHAR[][]", [[["a"], None, []]], None),
    ("MAP(VARCHAR, BIGINT)", [[("a", 1), ("b", None)], []], [{"a": 1, "b": None}, {}]),
    ("STRUCT(a INTEGER, b STRUCT(a TIMESTAMP))", [{"a": 1, "b": {"a": _MOMENT}}, {"a": None, "b": None}], None),
    ("STRUCT(a INTEGER)[]", [[{"a": 1}, None]], None),
    ("MAP(VARCHAR, STRUCT(t TIMESTAMP))", [[("k", {"t": _MOMENT})]], [{"k": {"t": _MOMENT}}]),
]  # fmt: skip


def _read(values: AvroValues, found: list[bytes], name: str = "c") -> list[Any]:
    schema = fastavro.parse_schema(json.loads(values.schema))
    made: list[Any] = []
    for value in found:
        stream = io.BytesIO(value)
        record = fastavro.schemaless_reader(stream, schema, None)
        assert stream.read() == b"" and isinstance(record, dict)
        made.append(record[name])
    return made


def test_fastavro_reads_what_was_written_of_each_type() -> None:
    for kind, given, read in _CASES:
        parsed = parse_type(kind)
        values = AvroValues(Columns((("c", parsed),)))
        block = pa.table({"c": pa.array([*given, None], staged_type(parsed))})
        assert _read(values, values.rows(block)) == [*(given if read is None else read), None], kind


def test_documents_conform_to_the_json_schema_of_their_columns() -> None:
    for kind, given, _ in _CASES:
        columns = Columns((("c", parse_type(kind)),))
        schema = jsonschema_rs.validator_for(json_schema(columns))
        block = pa.table({"c": pa.array([*given, None], staged_type(parse_type(kind)))})
        for text in documents(block, columns):
            schema.validate(json.loads(text))
        assert not schema.is_valid({"other": 1})


def test_rows_may_lack_columns_and_have_narrower_types() -> None:
    columns = Columns.of({"a": "BIGINT", "b": "DOUBLE", "c": "DECIMAL(20,2)", "d": "STRUCT(x BIGINT, y VARCHAR)"})
    block = pa.table(
        {
            "B": pa.array([7], pa.int32()),
            "c": pa.array([5], pa.int16()),
            "d": pa.array([{"X": 2}], pa.struct([("X", pa.int32())])),
        }
    )
    values = AvroValues(columns)
    (found,) = values.rows(block)
    schema = fastavro.parse_schema(json.loads(values.schema))
    record = fastavro.schemaless_reader(io.BytesIO(found), schema, None)
    assert record == {"a": None, "b": 7.0, "c": Decimal("5.00"), "d": {"x": 2, "y": None}}


def test_instants_beyond_pythons_dates_keep_their_value() -> None:
    values = AvroValues(Columns.of({"c": "TIMESTAMP"}))
    (found,) = values.rows(pa.table({"c": pa.array([2**63 - 2], pa.timestamp("us"))}))
    plain = {"type": "record", "name": "Row", "fields": [{"name": "c", "type": ["null", "long"]}]}
    assert fastavro.schemaless_reader(io.BytesIO(found), fastavro.parse_schema(plain), None) == {"c": 2**63 - 2}


def test_a_schema_with_more_columns_reads_older_values_and_the_reverse() -> None:
    old, new = AvroValues(Columns.of({"c": "INTEGER"})), AvroValues(Columns.of({"c": "INTEGER", "d": "STRUCT(x INTEGER)"}))
    one = pa.table({"c": pa.array([1], pa.int32())})
    schemas = [fastavro.parse_schema(json.loads(item.schema)) for item in (old, new)]
    for writer, reader, values in ((0, 1, old), (1, 0, new)):
        record = fastavro.schemaless_reader(io.BytesIO(values.rows(one)[0]), schemas[writer], schemas[reader])
        assert isinstance(record, dict) and record["c"] == 1


@pytest.mark.parametrize(
    ("name", "kind"), [("a-b", "INTEGER"), ("1a", "INTEGER"), ("é", "INTEGER"), ("s", 'STRUCT("a b" INTEGER)')]
)
def test_names_that_avro_does_not_have_are_refused(name: str, kind: str) -> None:
    with pytest.raises(SchemaConflict, match="expected a name of letters, digits and _"):
        AvroValues(Columns(((name, parse_type(kind)),)))


def test_numbers_at_random_are_read_back() -> None:
    chance = random.Random(7)
    numbers = [chance.randrange(-(1 << bits), 1 << bits) for bits in range(63) for _ in range(20)]
    values = AvroValues(Columns.of({"c": "BIGINT"}))
    assert _read(values, values.rows(pa.table({"c": pa.array(numbers, pa.int64())}))) == numbers


@pytest.mark.parametrize(
    ("kind", "most"),
    [("DATE", 2**31 - 1), ("TIMESTAMP", 2**63 - 1), ("TIMESTAMP WITH TIME ZONE", 2**63 - 1), ("TIME", 86_400_000_000)],
)
def test_a_time_that_avro_does_not_have_rejects_its_row(kind: str, most: int) -> None:
    """An infinite one was written as a number, which a reader takes for a date in a far year."""
    columns, staged = Columns.of({"n": "BIGINT", "c": kind}), staged_type(parse_type(kind))
    least = 0 if kind == "TIME" else -most
    width = pa.int32() if kind == "DATE" else pa.int64()
    times = pa.array([most - 1, most, None, least + (kind != "TIME"), least], width).cast(staged)
    with pytest.raises(Misfits) as error:
        AvroValues(columns).rows(pa.table({"n": range(5), "c": times}))
    assert list(error.value.reasons) == ([1] if kind == "TIME" else [1, 4])
    assert error.value.reasons[1].startswith("c: ")
    fine = pa.table({"n": range(3), "c": times.take(pa.array([0, 2, 3]))})
    assert len(AvroValues(columns).rows(fine)) == 3
    inside = AvroValues(Columns.of({"s": f"STRUCT(t {kind}[])"}))
    lists = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2], times.take(pa.array([0, 1])))], names=["t"])
    with pytest.raises(Misfits) as error:
        inside.rows(pa.table({"s": lists}))
    assert list(error.value.reasons) == [1]
