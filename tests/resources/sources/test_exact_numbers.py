"""Numbers of typed sources keep all digits without a declaration."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.schema.columns import Columns
from resources.sources.exact_numbers import decimal, joined, refined
from tests.resources.sources.runs import Bench


def columns(**types: str) -> Columns:
    return Columns.of(types)


@pytest.mark.parametrize(
    ("inferred", "known", "expected"),
    [
        ("DOUBLE", "DECIMAL(20,4)", "DECIMAL(20,4)"),
        ("BIGINT", "DECIMAL(20,4)", "DECIMAL(20,4)"),
        ("DOUBLE", "HUGEINT", "HUGEINT"),
        ("BIGINT", "UBIGINT", "UBIGINT"),
        ("DOUBLE", "JSON", "JSON"),
        ("DOUBLE", "DOUBLE", "DOUBLE"),
        ("BIGINT", "DOUBLE", "DOUBLE"),
        ("BIGINT", "FLOAT", "DOUBLE"),
        ("DOUBLE", "FLOAT", "DOUBLE"),
        ("VARCHAR", "DOUBLE", "VARCHAR"),
        ("BIGINT[]", "DOUBLE[]", "DOUBLE[]"),
        ("BIGINT", "TINYINT", "BIGINT"),
        ("VARCHAR", "DATE", "VARCHAR"),
        ("VARCHAR", "DECIMAL(9,2)", "VARCHAR"),
        ("DOUBLE[]", "DECIMAL(9,2)[]", "DECIMAL(9,2)[]"),
        ("STRUCT(a DOUBLE, b VARCHAR)", "STRUCT(b DATE, a HUGEINT)", "STRUCT(a HUGEINT, b VARCHAR)"),
        ("STRUCT(x DOUBLE)", "MAP(VARCHAR, DECIMAL(9,2))", "STRUCT(x DECIMAL(9,2))"),
    ],
)
def test_only_numbers_take_the_type_of_the_source(inferred: str, known: str, expected: str) -> None:
    assert refined(columns(x=inferred), columns(X=known)) == columns(x=expected)


def test_a_column_without_values_has_the_type_of_its_numbers() -> None:
    known = columns(a="DECIMAL(9,2)", b="VARCHAR", c="JSON", _kafka_x="HUGEINT")
    assert refined(Columns(), known) == columns(a="DECIMAL(9,2)", c="JSON")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("DECIMAL(9,2)", "DECIMAL(20,4)", "DECIMAL(20,4)"),
        ("DECIMAL(9,4)", "DECIMAL(9,2)", "DECIMAL(11,4)"),
        ("BIGINT", "DECIMAL(9,2)", "DECIMAL(21,2)"),
        ("DECIMAL(38,2)", "DECIMAL(38,4)", "JSON"),
        ("DOUBLE", "DECIMAL(9,2)", "JSON"),
        ("STRUCT(a DECIMAL(9,2))", "STRUCT(a DECIMAL(9,4))", "STRUCT(a DECIMAL(11,4))"),
        ("BIGINT", "INTEGER", "BIGINT"),
        ("DOUBLE", "BIGINT", "DOUBLE"),
        ("BIGINT", "DOUBLE", "DOUBLE"),
    ],
)
def test_several_files_share_a_type_with_the_digits_of_all(first: str, second: str, expected: str) -> None:
    assert joined([columns(x=first), columns(x=second)]) == columns(x=expected)


def test_a_decimal_without_bounds_is_json() -> None:
    assert [str(decimal(*given)) for given in [(None, None), (65, 30), (5, 7), (38, 10)]] == ["JSON"] * 3 + ["DECIMAL(38,10)"]


def test_a_table_of_duckdb(tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    values = "12345678901234567890.0123456789::DECIMAL(38,10), 170141183460469231731687303715884105727, 18446744073709551615"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, price DECIMAL(38,10), big HUGEINT, u UBIGINT)")
        connection.execute(f"INSERT INTO orders VALUES (1, {values})")
    table = {"type": "duckdb", "database": str(file), "name": "orders", "column": "id"}
    bench = Bench(tmp_path, source={"table": table}, files=None)
    bench.run()
    assert _texts(bench, "price", "big", "u") == [
        ("12345678901234567890.0123456789", "170141183460469231731687303715884105727", "18446744073709551615")
    ]


def test_parquet_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files={"type": "parquet"})
    for name, scale in (("a", 2), ("b", 4)):
        price = pa.array([Decimal("123456789012345678.1234").quantize(Decimal(10) ** -scale)], pa.decimal128(30, scale))
        pq.write_table(pa.table({"price": price, "u": pa.array([2**64 - 1], pa.uint64())}), bench.files / name)
    bench.run()
    most = "18446744073709551615"
    assert _texts(bench, "price", "u") == [("123456789012345678.1200", most), ("123456789012345678.1234", most)]


def _priced(tmp_path: Path, **fields: Any) -> Bench:
    """A table of a row: a price, one inside of a STRUCT, a list of them, and one that is NULL."""
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE orders (id BIGINT, price DECIMAL(20,2), item STRUCT(price DECIMAL(20,2)), never HUGEINT,"
            " lines STRUCT(price DECIMAL(20,2), n INTEGER)[])"
        )
        price = "12345678901234567.89"
        connection.execute(f"INSERT INTO orders VALUES (1, {price}, {{'price': {price}}}, NULL, [{{'price': {price}, 'n': 1}}])")
    table = {"type": "duckdb", "database": str(file), "name": "orders", "column": "id"}
    bench = Bench(tmp_path, source={"table": table}, files=None, **fields)
    bench.run()
    return bench


def test_a_mapping_keeps_the_types_of_its_paths(tmp_path: Path) -> None:
    paths = {"a": "price", "b": "item::price", "c": "lines::0::price", "d": "never", "e": {"path": "price", "default": 0}}
    bench = _priced(tmp_path, format={"type": "json", "mapping": paths})
    exact = "12345678901234567.89"
    assert _texts(bench, "a", "b", "c", "d", "e") == [(exact, exact, exact, None, exact)]
    assert _texts(bench, "typeof(d)") == [("HUGEINT",)]


@pytest.mark.parametrize("mapping", [None, {"price": "lines::price"}])
def test_the_items_of_an_exploded_list_keep_their_types(tmp_path: Path, mapping: dict[str, str] | None) -> None:
    bench = _priced(tmp_path, format={"type": "json", "explode": "lines", "mapping": mapping})
    assert _texts(bench, "price" if mapping else "lines.price") == [("12345678901234567.89",)]


def _texts(bench: Bench, *names: str) -> list[tuple[str | None, ...]]:
    listed = ", ".join(f"{name}::VARCHAR" for name in names)
    with duckdb.connect(str(bench.home.data / "kpipe.duckdb"), read_only=True) as connection:
        return connection.execute(f"SELECT {listed} FROM t ORDER BY ALL").fetchall()
