"""Bound the series of one pipeline: values of many partitions become sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

__all__ = ["ALL", "Grouping"]

#: Label value of a sum.
ALL = "all"
_T = TypeVar("_T")


class Grouping:
    """Group partitions for series: one each, one for each topic, or one in all.

    A pipeline with more partitions than the bound gets one series for each topic. With more topics than the bound, it gets
    a single one.

    Args:
        keys: topics and numbers of all partitions of a pipeline.
        most: the bound.
    """

    def __init__(self, keys: Collection[tuple[str, int]], most: int) -> None:
        topics = {topic for topic, _ in keys}
        self._by_partition, self._by_topic = len(keys) <= most, len(topics) <= most
        self.summed = 0 if self._by_partition else len(keys)

    def labels(self, key: tuple[str, int]) -> tuple[str, str]:
        """Return the labels `topic` and `partition` of a partition's series."""
        if self._by_partition:
            return key[0], str(key[1])
        return (key[0], ALL) if self._by_topic else (ALL, ALL)

    def combined(
        self, values: Mapping[tuple[str, int], _T], combine: Callable[[Iterable[_T]], _T]
    ) -> list[tuple[tuple[str, str], _T]]:
        """Return a value for each series."""
        groups: dict[tuple[str, str], list[_T]] = {}
        for key, value in sorted(values.items(), key=lambda item: item[0]):
            groups.setdefault(self.labels(key), []).append(value)
        return [(labels, combine(found)) for labels, found in groups.items()]
