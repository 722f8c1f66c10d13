"""Columns with statistics: footers have no bounds of numbers that may be NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.destinations.lakehouse.durable_parquet import durable_writer
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.maintenance.new_files import write_rows
from resources.parquet_statistics import bounded_columns
from resources.spark.staging.staged_files import StagingWriter

STRUCT = pa.struct([("x", pa.float32()), ("y", pa.date32())])
SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("d", pa.float64()), ("f", pa.float32()), ("t", pa.string()), ("a.b", pa.int64()), ("a.d", pa.int64()),
        ("a", pa.struct([("b", pa.int64()), ("d", pa.float64()), ("l", pa.list_(STRUCT))])),
        ("l", pa.list_(pa.float64())), ("n", pa.list_(pa.list_(pa.int32()))), ("m", pa.map_(pa.string(), pa.float64())),
        ("k", pa.map_(pa.string(), pa.int64())),
    ]
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "i": 1, "d": d, "f": d, "t": "x", "a.b": 1, "a.d": 2, "a": {"b": 1, "d": d, "l": [{"x": d, "y": 1}]},
        "l": [d], "n": [[1]], "m": [("k", d)], "k": [("k", 1)],
    }
    for d in (3.0, float("nan"))
]  # fmt: skip


def test_all_columns_have_statistics_but_those_of_floating_point(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, SCHEMA, write_statistics=bounded_columns(SCHEMA)) as writer:
        writer.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    without = [column.path_in_schema for column in columns if not column.is_stats_set]
    floating = [column.path_in_schema for column in columns if column.physical_type in ("FLOAT", "DOUBLE")]
    assert len(floating) == 6 and without == [*floating[:2], "a.d", *floating[2:]]


def _staged(path: Path, rows: pa.Table) -> Path:
    writer = StagingWriter(path)
    writer.write(rows)
    return Path(writer.finish().path)  # type: ignore[union-attr]


def _durable(path: Path, rows: pa.Table) -> Path:
    with durable_writer(path / "a.parquet", rows.schema) as writer:
        writer.write_table(rows)
    return path / "a.parquet"


def _compacted(path: Path, rows: pa.Table) -> Path:
    (file,) = write_rows(LocalFolder(path), rows.schema, iter([rows]), "a", (), 1 << 20)
    return path / file.name


@pytest.mark.parametrize("written", [_staged, _durable, _compacted])
def test_readers_find_nan_beside_numbers(tmp_path: Path, written: Any) -> None:
    (tmp_path / "b").mkdir()
    path = written(tmp_path / "b", pa.Table.from_pylist(ROWS, schema=SCHEMA))
    with duckdb.connect() as connection:
        for condition in ("d > 100", "f > 100", "d >= 4 OR d < 0", "isnan(d)", "a.d > 100"):
            found = connection.execute(f"SELECT count(*) FROM read_parquet('{path}') WHERE {condition}").fetchone()
            assert found == (1,), condition
