"""Read a Parquet file in blocks whose rows and bytes are limited: a staged row may be a megabyte."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["blocks", "divided"]


def blocks(path: str, rows: int, size: int) -> Iterator[pa.Table]:
    """Return the rows of a file in their order. A block ends with its row group, which tasks limit to some 16 MiB.

    Arrow fills the batches of a file across row groups, so a number of rows alone limits no memory.

    Args:
        path: the file.
        rows: limit of rows in a block.
        size: limit of bytes in a block; a single row may be larger.
    """
    with pq.ParquetFile(path) as parquet:
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(rows, row_groups=[group]):
                yield from divided(pa.Table.from_batches([batch]), size)


def divided(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Return a table in parts of at most so many bytes, or of one row."""
    if table.nbytes <= size or table.num_rows < 2:
        yield table
        return
    half = table.num_rows // 2
    yield from divided(table.slice(0, half), size)
    yield from divided(table.slice(half), size)
