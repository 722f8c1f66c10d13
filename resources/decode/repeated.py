"""Limit the bytes of columns that are repeated, where a record gives several rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["MOST_BYTES", "MOST_CELLS", "copies", "repeated_too_often"]

#: Most bytes of all copies of one record's values. A record of 1 MB may have a million items.
MOST_BYTES = 1 << 26

#: Most cells (rows times columns) of one record: each takes space, also in a column that is NULL.
MOST_CELLS = 1 << 26

Counts = np.ndarray[Any, Any]


def repeated_too_often(values: pa.Table | pa.StructArray, counts: Counts) -> list[int]:
    """Return the rows whose copies take more than `MOST_BYTES`, in order.

    Parts with few bytes and few copies are not looked at one by one.

    Args:
        values: the columns that are repeated.
        counts: for each row the number of copies; one copy is never too many.
    """
    return list(_beyond(values, np.asarray(counts, np.int64), 0, len(counts)))


def _beyond(values: pa.Table | pa.StructArray, counts: Counts, start: int, end: int) -> Iterator[int]:
    most = int(counts[start:end].max(initial=0))
    if most <= 1 or values.slice(start, end - start).nbytes * most <= MOST_BYTES:
        return
    if end - start == 1:
        yield start
        return
    middle = (start + end) // 2
    yield from _beyond(values, counts, start, middle)
    yield from _beyond(values, counts, middle, end)


def copies(values: pa.Table | pa.StructArray, counts: Counts) -> int:
    """Return about how many bytes all copies take: at least as many as they do, at most twice `MOST_BYTES` too many.

    Args:
        values: the columns that are repeated.
        counts: for each row the number of copies.
    """
    most = int(np.max(counts, initial=0))
    whole = values.nbytes * most
    if len(counts) < 2 or whole <= MOST_BYTES:
        return whole
    middle = len(counts) // 2
    return copies(values.slice(0, middle), counts[:middle]) + copies(values.slice(middle), counts[middle:])
