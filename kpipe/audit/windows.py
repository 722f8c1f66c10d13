"""Cut the audited offsets of a topic into windows, and windows into passes of bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kpipe.errors import InvalidPipeline

__all__ = ["WINDOW", "LogBounds", "Window", "audited_ranges", "passes", "windows"]

WINDOW = 2 << 20
"""Offsets of a window: the unit of a checkpoint. Reading one from a broker takes some seconds."""

_SPARSE = 16
"""An expired range may be longer than its rows by this factor: a single wrong offset must not cause a scan of 10^12."""


@dataclass(frozen=True, order=True)
class Window:
    """Offsets `[start, end)` of one partition."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class LogBounds:
    """Offsets of a partition's log at one moment.

    Attributes:
        log_start: first offset that the log may contain.
        stable: last stable offset: all transactions below it are decided.
        high: high watermark.
    """

    log_start: int
    stable: int
    high: int


def audited_ranges(
    bounds: Mapping[int, LogBounds],
    rows: Mapping[int, tuple[int, int, int]],
    begin: str | Mapping[int, int] = "first-row",
    end: str | Mapping[int, int] = "end",
) -> dict[int, tuple[int, int]]:
    """Return the range to audit of each partition, `[start, end)`; an empty range has two equal numbers.

    Args:
        bounds: of the log, before the table was read.
        rows: number of rows, and lowest and highest offset, of each partition that has rows.
        begin: `first-row`: the table's first offset if it is below the log start, else the log start; `log-start`; or an
            offset for each partition, others begin at `first-row`.
        end: `end`: the last stable offset; `last-row`: after the table's last row; or an offset for each partition, where
            partitions without one are not audited.

    Raises:
        InvalidPipeline: a partition does not exist, or a range is beyond the log, or too sparse.
    """
    for given in (begin, end):
        unknown = [number for number in given if number not in bounds] if not isinstance(given, str) else []
        if unknown:
            raise InvalidPipeline(f"partition {unknown[0]} is not audited or does not exist", f"use {_span(bounds)}")
    found = {}
    for number, log in sorted(bounds.items()):
        count, first, last = rows.get(number, (0, log.log_start, log.log_start - 1))
        start = min(first, log.log_start) if begin != "log-start" else log.log_start
        if not isinstance(begin, str):
            start = begin.get(number, start)
        if isinstance(end, str):
            stop = log.stable if end == "end" else min(last + 1, log.stable)
        else:
            stop = end.get(number, start)
        if stop > log.stable:
            raise InvalidPipeline(
                f"partition {number}: the range ends at {stop}, beyond the last stable offset {log.stable}",
                "the topic was recreated, or a transaction is open; end the range at that offset or below it",
            )
        expired = min(stop, log.log_start) - start
        if expired > _SPARSE * (count + WINDOW):
            raise InvalidPipeline(
                f"partition {number}: the table's first offset is {start}, {expired:,} below the log start",
                "audit what the log contains: --from log-start",
            )
        found[number] = (start, max(start, stop))
    return found


def _span(bounds: Mapping[int, LogBounds]) -> str:
    return f"partitions {min(bounds)} to {max(bounds)}" if bounds else "a topic with partitions"


def windows(ranges: Mapping[int, tuple[int, int]], size: int = WINDOW) -> Iterator[Window]:
    """Cut ranges into windows of this size; the last one of a partition may be shorter."""
    for number, (start, end) in sorted(ranges.items()):
        for first in range(start, end, size):
            yield Window(number, first, min(end, first + size))


def passes(items: Iterable[Window], offsets: int) -> Iterator[Sequence[Window]]:
    """Group windows in order, so that a group has at most this many offsets; a longer window is a group of its own."""
    group: list[Window] = []
    total = 0
    for item in items:
        if group and total + len(item) > offsets:
            yield group
            group, total = [], 0
        group.append(item)
        total += len(item)
    if group:
        yield group
