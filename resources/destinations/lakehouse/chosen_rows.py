"""Open Parquet files of a table, which any program may have written, and read single rows of them by their positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["as_micros", "chosen_rows"]

_ROWS = 1024  # rows in memory at once: values that an update left out are large


def as_micros(stream: Any) -> pq.ParquetFile:
    """Open a file of rows; times that Spark or Hive has written as INT96 are read in µs, as Delta and Iceberg define them.

    In Arrow's default, ns, times outside of 1677 to 2262 silently become others.

    Args:
        stream: binary and seekable: of a `Folder`, or of pyiceberg.
    """
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")


def chosen_rows(source: pq.ParquetFile, names: Sequence[str], places: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Read columns of the rows at sorted positions, in order, few at once, from the row groups that have them.

    Positions behind the end of the file have no row.

    Args:
        source: the file.
        names: columns; a file without them gives rows without columns.
        places: positions in the file, from 0.
    """
    first = 0
    for group in range(source.num_row_groups):
        count = source.metadata.row_group(group).num_rows
        low, high = np.searchsorted(places, (first, first + count))
        if low < high:
            at = first
            for batch in source.iter_batches(_ROWS, row_groups=[group], columns=list(names)):
                low, high = np.searchsorted(places, (at, at + len(batch)))
                if low < high:
                    yield batch.take(pa.array(places[low:high] - at))
                at += len(batch)
        first += count
