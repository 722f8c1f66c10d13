"""Check that the topic holds records of each source partition in the order in which they were committed."""

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
    """Records of one pipeline, in the order in which each partition of its topic holds them.

    Within a partition of the topic, records of one source partition must come in the order of the commits, and in the order of
    their offsets within a committed range. Records without an offset are not checked: nothing tells their order.

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
        self._last: dict[tuple[int, Origin], tuple[int, int]] = {}  # commit and offset that a partition has come to
        self._wrong: dict[tuple[int, Origin], str] = {}  # the first record of each that is out of order

    def add(self, partition: int, at: int, origin: Origin, offset: int | None, tombstone: bool) -> None:
        """Take the next record.

        Args:
            partition: of the topic.
            at: the record's offset there.
            origin: topic and partition that it was read from.
            offset: that it was read from.
            tombstone: whether it deletes its key.
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
            " that is not the order in which it was committed"
        )

    def order(self) -> list[str]:
        """Return what is out of order: the first such record of each partition, a sentence each."""
        return [self._wrong[place] for place in sorted(self._wrong)]

    def tombstones(self) -> list[str]:
        """Return where the topic holds other numbers of tombstones than were committed, a sentence each."""
        return [
            f"{topic}/{number}: topic {self._table} holds {self._tombstones[topic, number]} tombstones, the ledger says {said}"
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
        """Return the earliest commit, not before the last one, that may have written an offset behind the last offset.

        Offsets that were read again are in several ranges. The earliest leaves most room for the records that follow, so if it
        cannot be, no other choice can.

        Args:
            last: number of the commit, and offset, that were reached.
            offset: that comes next.
        """
        if not self._disjoint:
            commits = range(last[0], len(self._ranges))
            return next(((n, offset) for n in commits if offset in self._ranges[n] and (n, offset) >= last), None)
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._sorted[at][1]:
            return None
        reached = self._sorted[at][2], offset
        return reached if reached >= last else None
