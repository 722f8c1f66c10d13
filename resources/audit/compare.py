"""Compare the rows of a window with its log, offset by offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kpipe.audit.outcomes import Outcome, State
from kpipe.audit.windows import Window

__all__ = ["MOST", "Counts", "Rules", "Runs", "compare", "runs_of", "tally"]

MOST = 30_000
"""From here on, the number of rows of one offset is a lower bound. At most twice as many fit into 16 bits."""

Int64 = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Rules:
    """Properties of the loader and the topic.

    Attributes:
        uncommitted: whether the loader reads records of aborted transactions.
        compacted: whether compaction may have removed records of the log.
        skips_tombstones: whether the loader skips records without a value.
    """

    uncommitted: bool = False
    compacted: bool = False
    skips_tombstones: bool = False


@dataclass(frozen=True)
class Runs:
    """Runs of adjacent offsets with the same code, as arrays of equal length.

    Attributes:
        starts, ends: offsets `[start, end)` of each run.
        codes: an `Outcome` or a `State` of each.
        rows: rows of its offsets; at least, if an offset has `MOST` or more.
    """

    starts: Int64
    ends: Int64
    codes: Bytes
    rows: Int64

    def __len__(self) -> int:
        return len(self.starts)


class Counts:
    """Number of rows of each offset of some windows, in 2 bytes for each offset.

    Args:
        windows: of one pass; of each partition, they are adjacent and in order.

    Attributes:
        totals: exact number of rows of each window.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)
        self.totals = [0] * len(windows)
        sizes = [len(window) for window in windows]
        self._bases = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
        self._rows = np.zeros(int(self._bases[-1]), np.uint16)
        largest = max((window.partition for window in windows), default=-1)
        self._start = np.full(largest + 2, 0, np.int64)
        self._end = np.zeros(largest + 2, np.int64)  # empty: no offset is inside
        self._base = np.zeros(largest + 2, np.int64)
        for at, window in enumerate(windows):
            if at == 0 or windows[at - 1].partition != window.partition:
                self._start[window.partition], self._base[window.partition] = window.start, self._bases[at]
            elif windows[at - 1].end != window.start:
                msg = f"windows of partition {window.partition} are not adjacent"
                raise ValueError(msg)
            self._end[window.partition] = window.end

    def add(self, partitions: Int64, offsets: Int64) -> None:
        """Count rows; those outside of the windows are ignored. Partitions and offsets are not negative."""
        known = np.minimum(partitions, len(self._end) - 1)  # the last entry is empty
        inside = (offsets >= self._start[known]) & (offsets < self._end[known])
        known, offsets = known[inside], offsets[inside]
        places = offsets - self._start[known] + self._base[known]
        found = np.bincount(np.searchsorted(self._bases, places, "right") - 1, minlength=len(self.totals))
        self.totals = [total + int(more) for total, more in zip(self.totals, found, strict=True)]
        for first in range(0, len(places), MOST):
            some = places[first : first + MOST]
            full = self._rows[some] > MOST
            if full.any():
                self._rows[some[full]] = MOST
            np.add.at(self._rows, some, np.uint16(1))

    def of(self, at: int) -> NDArray[np.uint16]:
        """Return the rows of each offset of a window, by the window's index."""
        return self._rows[self._bases[at] : self._bases[at + 1]]


def compare(rows: NDArray[np.uint16], states: Bytes, rules: Rules, declared: NDArray[np.bool_] | None = None) -> Bytes:
    """Return the outcome of each offset of a window.

    Args:
        rows: number of rows of each offset.
        states: `State` of each offset.
        rules: how the table was loaded.
        declared: offsets whose records are rightly not in the table; None: none.
    """
    absent, once = rows == 0, rows == 1
    made = np.full(len(rows), Outcome.DUPLICATE, np.uint8)
    table = {
        State.VALUE: (Outcome.MISSING, Outcome.MATCHED),
        State.TOMBSTONE: (Outcome.TOMBSTONE if rules.skips_tombstones else Outcome.MISSING_TOMBSTONE, Outcome.MATCHED),
        State.ABORTED: (Outcome.MISSING_ABORTED if rules.uncommitted else Outcome.ABORTED, Outcome.ABORTED_ROW),
        State.NONE: (Outcome.NO_RECORD, Outcome.COMPACTED_ROW if rules.compacted else Outcome.ROW_WITHOUT_RECORD),
        State.EXPIRED: (Outcome.EXPIRED, Outcome.EXPIRED_ROW),
    }
    for state, (without, with_one) in table.items():
        here = states == state
        made[here & absent] = without
        made[here & once] = with_one
    if declared is not None:
        record = (states == State.VALUE) | (states == State.TOMBSTONE)
        # An expired offset may be declared as well: nothing contradicts it.
        made[declared & absent & (record | (states == State.EXPIRED))] = Outcome.DECLARED
        if rules.uncommitted:
            made[declared & absent & (states == State.ABORTED)] = Outcome.DECLARED
        made[declared & once] = Outcome.DECLARED_ROW
        # Compaction may have removed the declared record.
        made[declared & absent & (states == State.NONE)] = Outcome.DECLARED if rules.compacted else Outcome.DECLARED_ROW
    return made


def runs_of(codes: Bytes, start: int, leave_out: int, rows: NDArray[np.uint16] | None = None) -> Runs:
    """Return the runs of equal codes, except those of one code.

    Args:
        codes: of adjacent offsets, at least one.
        start: offset of the first code.
        leave_out: code of runs that are not returned.
        rows: number of rows of each offset; None: zero.
    """
    firsts = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1)).astype(np.int64)
    ends = np.concatenate((firsts[1:], [len(codes)])).astype(np.int64)
    found = codes[firsts]
    sums = np.zeros(len(firsts), np.int64) if rows is None else np.add.reduceat(rows, firsts, dtype=np.int64)
    kept = found != leave_out
    return Runs(firsts[kept] + start, ends[kept] + start, found[kept], sums[kept])


def tally(codes: Bytes) -> Counter[Outcome]:
    """Return the number of offsets of each outcome."""
    found = np.bincount(codes, minlength=len(Outcome))
    return Counter({outcome: int(found[outcome]) for outcome in Outcome if found[outcome]})
