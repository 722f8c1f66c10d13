"""Read single rows of a Parquet file by their positions: only the row groups that have them, and few rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["chosen_rows"]

_ROWS = 1024  # rows in memory at once: values that an update left out are large


def chosen_rows(source: pq.ParquetFile, names: Sequence[str], places: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Read columns of the rows at sorted positions, in order. Positions behind the end of the file have no row.

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
