"""Blocks of rows are bounded by bytes, whatever the size of a row and of the file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.source import Files, SourceTable
from kpipe.offsets import Range
from resources.sources.block_size import BYTES, FIRST, ROWS, blocks, following
from resources.sources.files.connector import FileConnector
from resources.sources.tables.connector import TableConnector

_LONG = 12_000
_MOST = 3000


def test_small_batches_are_joined_and_large_ones_divided() -> None:
    small = [pa.record_batch({"id": pa.array(range(at, at + 100))}) for at in range(0, 20_000, 100)]
    made = list(blocks(small))
    assert [len(table) for table in made] == [8100, 8100, 3800]
    assert pa.concat_tables(made).column("id").to_pylist() == list(range(20_000))
    wide = pa.record_batch({"text": pa.array(["x" * 1_000_000] * 50)})
    assert [len(table) for table in blocks([wide])] == [8] * 6 + [2]
    alike = pa.record_batch({"text": pa.array(["x" * 1_000_000] * 50).dictionary_encode()})
    assert max(len(table) for table in blocks([alike])) == 8
    assert list(blocks([])) == []


@pytest.mark.parametrize(
    ("rows", "size", "expected"), [(FIRST, 10, FIRST * 4), (ROWS, 10, ROWS), (256, 256 << 20, 8), (1, 1 << 30, 1), (0, 0, 1)]
)
def test_the_next_block_follows_the_size_of_the_last_one(rows: int, size: int, expected: int) -> None:
    assert following(rows, size) == expected


def test_a_small_parquet_file_with_large_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array(range(_MOST)), "text": pa.array(["x" * _LONG] * _MOST)}), path)
    assert path.stat().st_size < 100_000
    source = FileConnector(Files(path=f"{tmp_path}/*", type="parquet"))
    (split,) = source.splits()
    found = list(source.read(split.name, split.identity, Range(5, _MOST - 5)))
    assert [offset for block in found for offset in block.offsets] == list(range(5, _MOST - 5))
    assert max(block.table.nbytes for block in found) < BYTES * 1.2


def test_a_table_with_large_rows(tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(f"CREATE TABLE orders AS SELECT range AS id, repeat('x', {_LONG}) AS text FROM range({_MOST})")
    source = TableConnector(SourceTable(type="duckdb", database=str(file), name="orders", column="id"), {})
    (split,) = source.splits()
    found = list(source.read(split.name, split.identity, Range(0, _MOST)))
    assert [offset for block in found for offset in block.offsets] == list(range(_MOST))
    assert max(block.table.nbytes for block in found) < BYTES * 1.2
