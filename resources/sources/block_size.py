"""Bound the blocks of rows that a source is read in, by number and bytes: rows may have any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["BYTES", "FIRST", "ROWS", "blocks", "following"]

ROWS, BYTES = 8192, 8 << 20  # of a block, at most; a single row may be larger
#: Rows of a first block, or of an Arrow batch, whose size is not known before it is read.
FIRST = 256


def blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches and divide large ones. A small file may have large batches: Parquet stores equal values once."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        for part in _parts(_plain(batch)):
            if waiting and (rows + len(part) > ROWS or size + part.nbytes > BYTES):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows, size = rows + len(part), size + part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def following(rows: int, size: int) -> int:
    """Return the rows of the next block, from the rows and bytes of the last one; it grows step by step."""
    return max(1, min(ROWS, rows * 4, BYTES * rows // max(size, 1)))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, min(ROWS, BYTES * len(batch) // max(batch.nbytes, 1)))
    return (batch.slice(at, step) for at in range(0, len(batch), step))


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which each value has its own bytes, so that they count. Fields keep their metadata: Iceberg's ids."""
    arrays = [item.dictionary_decode() if pa.types.is_dictionary(item.type) else item for item in batch.columns]
    fields = [field.with_type(item.type) for field, item in zip(batch.schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
