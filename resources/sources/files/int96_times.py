"""Times of Parquet's old type INT96, which have nanoseconds, from year -4713 on: read with microseconds, and checked.

Arrow rounds them to microseconds without an error; as nanoseconds, those outside of the years 1677 to 2262 overflow. A number
of 64 bits that overflows is still exact modulo 2^64. So both readings together show what was rounded.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.errors import ReadFailed
from resources.destinations.arrow_types import owners
from resources.sources.json_rows import leaves

__all__ = ["checked", "int96_columns"]


def int96_columns(file: pq.ParquetFile) -> list[str]:
    """Return the names of columns that contain such times, at any depth."""
    chunks = [at for at in range(len(file.schema)) if file.schema.column(at).physical_type == "INT96"]
    of_chunks = owners(file.schema_arrow)
    if chunks and len(of_chunks) < len(file.schema):  # an extension type with members: read all columns twice
        return list(file.schema_arrow.names)
    return [file.schema_arrow.field(at).name for at in sorted({of_chunks[chunk] for chunk in chunks})]


def checked(where: str, found: Iterator[pa.RecordBatch], exact: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches whose times are exact.

    Args:
        where: the file, for messages.
        found: batches of the file, with microseconds.
        exact: the columns of the same rows that contain such times, with nanoseconds, in batches of any size.

    Raises:
        ReadFailed: a time is finer than microseconds.
    """
    waiting: pa.Table | None = None
    for batch in found:
        while waiting is None or len(waiting) < len(batch):
            more = pa.Table.from_batches([next(exact)])
            waiting = more if waiting is None else pa.concat_tables([waiting, more])
        times, waiting = waiting.slice(0, len(batch)).combine_chunks(), waiting.slice(len(batch))
        for name in times.column_names:
            pairs = zip(leaves(batch.column(name)), leaves(times.column(name).chunk(0)), strict=True)
            if any(pa.types.is_timestamp(fine.type) and _differ(coarse, fine) for coarse, fine in pairs):
                what = f"{where}: column {name!r}: a time is finer than microseconds"
                raise ReadFailed(what, "write its times with microseconds")
        yield batch


def _differ(coarse: pa.Array, fine: pa.Array) -> bool:
    """Return whether times in microseconds are not those in the unit of `fine`, modulo 2^64."""
    if coarse.type == fine.type:  # not of INT96
        return False
    rounded, exact = (array.cast(pa.int64()).fill_null(0).to_numpy() for array in (coarse, fine))
    return not np.array_equal(rounded * 1000, exact)
