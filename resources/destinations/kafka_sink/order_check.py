"""Check that the topic contains records of each source partition in the order in which they were committed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kpipe.offsets import Range
from kpipe.verification.verify import Entry
from resources.destinations.ledger_rows import entry
from resources.destinations.offset_order import Origin

__all__ = ["OrderCheck"]


class OrderCheck:
    """Order check of one pipeline's records in each partition of its topic.

    Within a partition of the topic, records of one source partition must follow the order of the commits. Within a committed
    range, they must follow the order of offsets. Records without an offset are not checked: their order is undefined.

    Args:
        table: the topic.
        ranges: rows of `kpipe_batches`, in the order of the commits.
    """

    def __init__(self, table: str, ranges: Iterable[Mapping[str, Any]]) -> None:
        self._table, self._tombstones = table, Counter[Origin]()
        landed: dict[Origin, list[Entry]] = {}
        for row in ranges:
            found = entry(row)
            if row["target_table"] == table and not found.reread:
                landed.setdefault((found.source.topic.name, found.source.partition), []).append(found)
        self._expected = {origin: sum(found.counts.deletes for found in entries) for origin, entries in landed.items()}
        self._commits = {origin: _Commits([found.range for found in entries]) for origin, entries in landed.items()}
        self._last: dict[tuple[int, Origin], tuple[int, int]] = {}  # last commit and offset by partition
        self._wrong: dict[tuple[int, Origin], str] = {}  # first record out of order, by partition

    def add(self, partition: int, at: int, origin: Origin, offset: int | None, tombstone: bool) -> None:
        """Check the next record.

        Args:
            partition: of the topic.
            at: the record's offset there.
            origin: source topic and partition.
            offset: source offset.
            tombstone: whether the record deletes its key.
        """
        self._tombstones[origin] += tombstone
        if offset is None or (partition, origin) in self._wrong:
            return
        last = self._last.get((partition, origin), (0, -1))
        commits = self._commits.get(origin)
        reached = commits.after(last, offset) if commits is not None else None
        if reached is not None:
            self._last[partition, origin] = reached
            return
        behind = f"behind offset {last[1]}" if last[1] >= 0 else "first"
        self._wrong[partition, origin] = (
            f"{origin[0]}/{origin[1]}: offset {offset} comes {behind} at {self._table}/{partition} offset {at}:"
            " expected the order of the commits"
        )

    def order(self) -> list[str]:
        """Return a sentence for the first record out of order in each partition."""
        return [self._wrong[place] for place in sorted(self._wrong)]

    def tombstones(self) -> list[str]:
        """Return a sentence for each partition whose number of tombstones differs from the ledger's."""
        return [
            f"{topic}/{number}: topic {self._table}: expected {said} tombstones, found {self._tombstones[topic, number]}"
            for (topic, number), said in sorted({**dict.fromkeys(self._tombstones, 0), **self._expected}.items())
            if said != self._tombstones[topic, number]
        ]


class _Commits:
    """Committed ranges of one source partition, in the order of their commits."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._sorted = sorted((found.start, found.end, number) for number, found in enumerate(ranges) if len(found))
        self._starts = [start for start, _, _ in self._sorted]
        self._disjoint = all(before[1] <= after[0] for before, after in pairwise(self._sorted))

    def after(self, last: tuple[int, int], offset: int) -> tuple[int, int] | None:
        """Return the earliest commit, from the last one on, that may have written an offset behind the last offset.

        Offsets that were read again are in several ranges. The earliest commit leaves most candidates for later records, so if
        it is impossible, every other choice is.

        Args:
            last: sequence number of the last commit, and the last offset.
            offset: the next record's.
        """
        if not self._disjoint:
            commits = range(last[0], len(self._ranges))
            return next(((n, offset) for n in commits if offset in self._ranges[n] and (n, offset) >= last), None)
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._sorted[at][1]:
            return None
        reached = self._sorted[at][2], offset
        return reached if reached >= last else None
