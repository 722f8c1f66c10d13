"""Logs as they will ever be, and whose record an offset has after a log was cut and has grown again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.testing.topics import FakeTopics

__all__ = ["STEP", "Cuts", "Log", "generation"]

#: By partition, where its log was cut, in order; it has grown again at once.
Cuts = tuple[tuple[int, ...], ...]
#: A record that replaced another one has a key that is higher by this for each cut that it came after.
STEP = 100


def generation(cuts: Sequence[int], offset: int, version: int | None = None) -> int:
    """The number of the cut after which the record at the offset was written; 0: before all of them.

    Args:
        cuts: of the partition.
        offset: of the record.
        version: only as many of the cuts had happened; None: all.
    """
    return max((number for number, at in enumerate(cuts[:version], 1) if at <= offset), default=0)


@dataclass(frozen=True)
class Log:
    """A topic as it will ever be: what has been produced at a moment is the world's.

    Attributes:
        keys: by partition, the key of each offset.
        deletes: places (partition, offset) of tombstones.
        gaps: places without a record.
        poison: places of records that no batch gets past.
    """

    keys: tuple[tuple[int, ...], ...]
    deletes: frozenset[tuple[int, int]] = frozenset()
    gaps: frozenset[tuple[int, int]] = frozenset()
    poison: frozenset[tuple[int, int]] = frozenset()

    def topics(self, cuts: Cuts) -> FakeTopics:
        """All of it after these cuts, as the fake that is read."""
        made = FakeTopics(len(self.keys))
        for partition, keys in enumerate(self.keys):
            for offset, key in enumerate(keys):
                if (partition, offset) in self.gaps:
                    made.mark(partition)
                else:
                    key += STEP * generation(cuts[partition], offset)
                    value = None if (partition, offset) in self.deletes else {"id": offset, "k": key}
                    made.produce(partition, value)
        return made
