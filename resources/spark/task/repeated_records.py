"""Repeat coordinates of records that give several rows, within a limit of memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc

from resources.decode.block import Decoded
from resources.decode.repeated import MOST_BYTES, repeated_too_often
from resources.kafka.record_block import RecordBlock
from resources.spark.task.keyed_rows import set_aside

__all__ = ["copied", "parts", "within"]

_SMALL = ("offset", "timestamp")
_LARGE = {"key": "_kafka_key", "headers": "_kafka_headers"}


def copied(coordinates: Collection[str], whole: bool) -> tuple[str, ...]:
    """Return the columns of a record that each of its rows gets a copy of.

    Args:
        coordinates: names of the coordinate columns that rows or expressions have.
        whole: whether the whole record is staged with each row.
    """
    large = [column for column, name in _LARGE.items() if whole or name in coordinates]
    return (*_SMALL, *large, *(("line",) if whole else ()))


def within(decoded: Decoded, held: RecordBlock, columns: Sequence[str]) -> Decoded:
    """Reject records whose copies of these columns take more than `MOST_BYTES`.

    Args:
        decoded: rows of the block.
        held: its records.
        columns: see `copied`.
    """
    large = list(columns[len(_SMALL) :])
    if decoded.kept is None or decoded.rows < 2 or not large:
        return decoded
    kept = np.asarray(decoded.kept, np.int64)
    counts = np.bincount(kept, minlength=len(held))
    names = ", ".join("value" if name == "line" else name for name in large)
    bad = {
        int(np.searchsorted(kept, at)): f"{counts[at]:,} rows, each with the record's {names}: over {MOST_BYTES >> 20} MiB in all"
        for at in repeated_too_often(held.table.select(large), counts)
    }
    return set_aside(decoded, bad)


def parts(kept: Sequence[int], held: RecordBlock, columns: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the rows `[start, end)` to write together: their copies of these columns take few megabytes, or are one row."""
    sizes: np.ndarray[Any, Any] = np.zeros(len(held), np.int64)
    for name in columns[len(_SMALL) :]:
        sizes += pc.fill_null(pc.binary_length(held.column(name)), 0).to_numpy().astype(np.int64)
    full = np.cumsum(sizes[np.asarray(kept, np.int64)]) // (MOST_BYTES >> 3)
    bounds = [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), len(kept)]
    yield from pairwise(bounds)
