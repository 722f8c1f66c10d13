"""Compute statistics of few repeats: median with spread, ratios paired by repeat, percentiles."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "paired", "percentile", "slope", "spread"]


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some numbers, and how many there were."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Iterable[float]) -> Spread | None:
    """Compute the spread; None if there are no numbers."""
    found = sorted(values)
    return Spread(statistics.median(found), found[0], found[-1], len(found)) if found else None


def paired(ours: Mapping[int, Sequence[float]], theirs: Mapping[int, Sequence[float]]) -> Spread | None:
    """Spread of `ours / theirs`, both by repeat: what ran in the same minutes is compared, since a machine drifts.

    Several values of one repeat count by their median. Repeats that only one of them has do not count.
    """
    both = [repeat for repeat in ours if repeat in theirs and ours[repeat] and theirs[repeat]]
    return spread(statistics.median(ours[repeat]) / statistics.median(theirs[repeat]) for repeat in both)


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between neighbours, as DuckDB's quantile_cont and numpy's default.

    Raises:
        ValueError: no value, or no percentage.
    """
    if not values or not 0 <= percent <= 100:
        msg = f"no {percent}th percentile of {len(values)} values"
        raise ValueError(msg)
    found = sorted(values)
    at = (len(found) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(found) - 1)
    return found[below] + (found[above] - found[below]) * (at - below)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the points, by least squares.

    Raises:
        ValueError: fewer than two different x.
    """
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
