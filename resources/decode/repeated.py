"""Limit the bytes of values that are repeated, where a record gives several rows or several records match a lookup's row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.decode.block import TooManyRows
from resources.duckdb_engine.arrow_types import entries

__all__ = ["MOST_BYTES", "MOST_CELLS", "bytes_copied", "copies", "crowded", "repeated_too_often", "sizes"]

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


def bytes_copied(tables: Sequence[pa.Table], counts: Counts) -> Counts:
    """Return about how many bytes all copies of each row take: 0 for a single copy, and if those of all rows are few.

    Args:
        tables: the columns that are repeated.
        counts: for each row the number of copies.
    """
    most, found = int(np.max(counts, initial=0)), np.zeros(len(counts), np.int64)
    if most > 1 and sum(table.nbytes for table in tables) * most > MOST_BYTES:
        for column in (column for table in tables for column in table.columns):
            found += sizes(column.combine_chunks())
    return np.asarray(found * np.where(counts > 1, counts, 0))


def sizes(array: pa.Array) -> Counts:
    """Return about how many bytes a copy of each value takes."""
    if pa.types.is_map(array.type):
        array = entries(array)
    if pa.types.is_list(array.type):
        ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64))
        inner = np.concatenate(([0], np.cumsum(sizes(pc.list_flatten(array)))))
        return np.diff(inner[np.concatenate(([0], ends))])
    if pa.types.is_struct(array.type):
        members = [sizes(pc.struct_field(array, [at])) for at in range(array.type.num_fields)]
        return np.asarray(sum(members, np.zeros(len(array), np.int64)))
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
    return np.full(len(array), 0 if pa.types.is_null(array.type) else -(-array.type.bit_width // 8), np.int64)


def crowded(
    bytes_of_rows: Counts, payloads: Counts, counts: Counts | None = None, columns: int = 0
) -> dict[int, tuple[int, int]]:
    """Return the payloads of several rows whose copies exceed `MOST_BYTES` or `MOST_CELLS`: the number of rows, and their bytes.

    Args:
        bytes_of_rows: bytes that are copied for each row.
        payloads: of each row.
        counts: number of copies of each row, to which its bytes belong; None: one of each.
        columns: number of columns and members of a copy, which count as cells; 0: cells have no limit.

    Raises:
        TooManyRows: those of the other payloads do together.
    """
    rows = len(payloads) if counts is None else int(counts.sum())
    if bytes_of_rows.sum() <= MOST_BYTES and rows * columns <= MOST_CELLS:
        return {}
    totals = np.bincount(payloads, bytes_of_rows).astype(np.int64)
    copied = np.bincount(payloads, counts).astype(np.int64)
    shares = np.maximum(totals / MOST_BYTES, copied * columns / MOST_CELLS)  # of the limits
    bad = (shares > 1) & (copied > 1)
    rest = shares[~bad]
    if rest.sum() > 1 and np.count_nonzero(rest) > 1:
        raise TooManyRows
    return {int(at): (int(copied[at]), int(totals[at])) for at in np.flatnonzero(bad)}
