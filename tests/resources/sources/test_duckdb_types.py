"""Values of a DuckDB table as JSON: unchanged at any depth, or refused by the name of their type."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from kpipe.definition.source import SourceTable
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.sources.tables.duckdb_table import open_duckdb


def _read(folder: Path, *values: str, query: str | None = None) -> tuple[list[str], Columns]:
    """Return the rows of a table with one column `v`, and its types."""
    file = folder / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        for at, value in enumerate(values):
            start = "INSERT INTO orders" if at else "CREATE TABLE orders AS"
            connection.execute(f"{start} SELECT {at} AS id, {value} AS v")
    fields = {"type": "duckdb", "database": str(file), "name": "orders", "column": "id", "query": query}
    with open_duckdb(SourceTable.model_validate(fields), {}) as table:
        blocks = list(table.records(Range(0, 100)))
        return [line.decode().strip() for block in blocks for line in block.column("line").to_pylist()], table.columns()


@pytest.mark.parametrize(
    ("value", "written", "known"),
    [
        ("340282366920938463463374607431768211455::UHUGEINT", "340282366920938463463374607431768211455", "JSON"),
        ("(-170141183460469231731687303715884105728)::HUGEINT", "-170141183460469231731687303715884105728", "HUGEINT"),
        ("18446744073709551615::UBIGINT", "18446744073709551615", "UBIGINT"),
        ("'123456789012345678901234567890123456789012345'::BIGNUM", "123456789012345678901234567890123456789012345", "JSON"),
        ("12345678901234567.89::DECIMAL(20,2)", "12345678901234567.89", "DECIMAL(20,2)"),
        ("'10:00:00+05'::TIMETZ", '"10:00:00+05"', "VARCHAR"),
        ("'0101'::BIT", '"0101"', "VARCHAR"),
        ("'a'::ENUM('a', 'b')", '"a"', "VARCHAR"),
        ("""'{"a": 1.10, "b": [NaN]}'::JSON""", '{"a": 1.10, "b": ["NaN"]}', "JSON"),
        ("'c2a1bcde-0000-4000-8000-000000000001'::UUID", '"c2a1bcde-0000-4000-8000-000000000001"', "VARCHAR"),
        ("'2024-01-01 00:00:00.123456'::TIMESTAMP_NS", '"2024-01-01T00:00:00.123456"', "VARCHAR"),
        ("NULL", "null", "VARCHAR"),
    ],
)
def test_values_are_unchanged_at_any_depth(tmp_path: Path, value: str, written: str, known: str) -> None:
    rows, types = _read(tmp_path, value)
    assert rows == [f'{{"id":0,"v":{written}}}']
    assert str(types.get("v")) == known
    inner = f"{{'x \"y': [{value}], 'm': MAP {{'k': {value}}}, 'p': 1.5::DECIMAL(20,2)}}"
    (tmp_path / "deep").mkdir()
    rows, types = _read(tmp_path / "deep", inner)
    assert rows == [f'{{"id":0,"v":{{"x \\"y":[{written}],"m":{{"k":{written}}},"p":1.5' + "0}}"]
    assert str(types.get("v")) == f'STRUCT("x ""y" {known}[], m MAP(VARCHAR, {known}), p DECIMAL(20,2))'


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("INTERVAL 1 MONTH", "INTERVAL"),
        ("union_value(num := 2)", "UNION"),
        ("'1'::JSON::VARIANT", "VARIANT"),
        ("[1, 2]::INTEGER[2]", "INTEGER.2."),
        ("MAP {1: 2}", "MAP.INTEGER, INTEGER."),
        ("row(1, 2)", "TUPLE"),
    ],
)
@pytest.mark.parametrize("outer", ["{}", "[{}]", "{{'a': {}}}", "MAP {{'k': {}}}"])
def test_types_without_a_form_are_refused(tmp_path: Path, value: str, name: str, outer: str) -> None:
    with pytest.raises(ReadFailed, match=f"table orders: column 'v' has type {name}"):
        _read(tmp_path, outer.format(value))


def test_a_query_may_change_the_type_of_the_position(tmp_path: Path) -> None:
    """Text would be in another order."""
    rows, _ = _read(tmp_path, *"123456789", query='SELECT id::HUGEINT * 2 AS id, id AS "Id 2" FROM orders')
    assert rows == [f'{{"id":{at * 2},"Id 2":{at}}}' for at in range(9)]
    with pytest.raises(ReadFailed, match="its result has no column id"):
        _read(tmp_path, query="SELECT v FROM orders")
