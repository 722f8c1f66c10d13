"""Find where a batch can end so that the destination then has a state that the source had (docs/adr/0065-transactions.md).

A cut is a number of ended transactions: all events of these are before the ends of the ranges, and none of later ones. Within a
partition, an end is valid where its newest transaction is whole and no older one was written again behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kpipe.errors import SourceError
from kpipe.transaction_log import NEVER, Run, Transaction

__all__ = ["Cut", "History", "Table", "choose"]


@dataclass(frozen=True)
class History:
    """Transactions in the order of their first END, and how many of them are committed.

    Attributes:
        transactions: see kpipe/transaction_log.py.
        committed: their number.
        opened: keys of transactions whose BEGIN is known, and whose END is not.
        whole: whether the transaction topic is known from its first record on: then no END is forgotten, or was deleted.
    """

    transactions: Sequence[Transaction]
    committed: int
    opened: Collection[str] = ()
    whole: bool = True

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Position of each transaction by key; the first transaction that is not committed has 0."""
        return {one.key: at - self.committed for at, one in enumerate(self.transactions)}

    @property
    def newest(self) -> int:
        """Highest rank; below 0 if no transaction waits."""
        return len(self.transactions) - self.committed - 1

    def at(self, rank: int) -> Transaction:
        """Return the transaction of a rank."""
        return self.transactions[rank + self.committed]

    @cached_property
    def touching(self) -> Mapping[str, Sequence[int]]:
        """Ranks of the transactions that have events in a topic, ascending, by topic."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(self.transactions):
            for topic in one.topics:
                found.setdefault(topic, []).append(at - self.committed)
        return found


@dataclass(frozen=True)
class Cut:
    """Result of `choose`.

    Attributes:
        rank: rank of the last transaction of the batch; -1: none that waits.
        ends: exclusive end of each table's range.
        waits: why there is no more; empty if there may be.
        partial: whether the ends are inside of a snapshot.
    """

    rank: int
    ends: Sequence[int]
    waits: str = ""
    partial: bool = False


class Table:
    """Records of the partition of one table, and where a range of it may end.

    Args:
        topic: its topic.
        next: next offset to read.
        runs: its records from there on.
        read: exclusive end of the records so far.
        stable: last stable offset.
        history: the transactions.
        begun: whether the lane has read records.

    Raises:
        SourceError: the topic's name is not that of Debezium's default.
    """

    def __init__(
        self, topic: str, next: int, runs: Sequence[Run], read: int, stable: int, history: History, begun: bool = True
    ) -> None:
        self.topic, self.next, self.runs, self.whole = topic, next, runs, read >= stable
        self.begun, self._read, self._history = begun, read, history
        touched = history.touching.get(topic, ())
        self._ranks = [NEVER if run.kind != "event" else history.ranks.get(run.key) for run in runs]
        self.unplaced = self._place_forgotten()
        base = max((rank for rank in touched if rank < 0), default=NEVER)
        self._ends: list[tuple[int, int]] = [(base, next)]
        self.snapshot_open = False
        self._walk(base)
        # Events of a transaction that Debezium has written in two parts may be missing in the counts of its END.
        found = {rank for rank in self._ranks if rank is not None and rank >= 0}
        self._found = frozenset(found)
        self._touched = sorted({rank for rank in touched if rank >= 0} | found)
        known = [rank for rank in self._ranks if rank is not None]
        self._highest = self._history.newest + 1 if None in self._ranks else max(known, default=NEVER)

    def _place_forgotten(self) -> str:
        """Rank the first events whose END is forgotten, or was deleted, before all known ones: a partition has commits in order.

        Only the first batch of a table can begin with such events. No range ends between them.

        Returns:
            The key of a transaction that may be one of them or a new one, as no known one follows; empty without one.
        """
        if self.begun or self._history.whole:
            return ""
        first = next((at for at, rank in enumerate(self._ranks) if rank != NEVER), len(self.runs))
        known = next((at for at in range(first, len(self.runs)) if self._ranks[at] not in (None, NEVER)), None)
        if known is None:
            key = self.runs[first].key if first < len(self.runs) else ""
            return "" if key in self._history.opened else key
        for at in range(first, known):
            self._ranks[at] = NEVER
        return ""

    def _walk(self, high: int) -> None:
        """Collect the valid ends, each with the highest rank before it."""
        valid, seen = True, set[str]()
        for at, run in enumerate(self.runs):
            rank = self._ranks[at]
            if rank is None:
                return
            if run.kind == "event" and rank == NEVER:
                valid = False
            elif run.kind == "event":
                again = run.key in seen
                seen.add(run.key)
                high = max(high, rank)
                valid = rank == high and self._complete(at, rank, again)
            elif run.kind == "snapshot" and not run.done and at + 1 == len(self.runs):
                self.snapshot_open = not seen
                return
            if valid:
                self._ends.append((high, self._after(at)))

    def _complete(self, at: int, rank: int, again: bool) -> bool:
        """Return whether all events of a run's transaction are there."""
        run = self.runs[at]
        later = next((self._ranks[i] for i in range(at + 1, len(self.runs)) if self.runs[i].kind == "event"), rank)
        if later is None or later > rank:
            return True
        one = self._history.at(rank)
        count = one.counts.get(self.topic, 0)
        if one.begins < 2 and not count:
            raise SourceError(
                f"topic {self.topic}: offset {run.start}: an event of transaction {one.key}, of which the transaction topic"
                " counts no event in this table",
                "the topics need the names of Debezium's default: PREFIX.SCHEMA.TABLE, and PREFIX.transaction",
            )
        if one.begins < 2:
            return run.last == count
        # Debezium may have counted from 1 again, without the events before: then these are not the events that END counts.
        return run.last == count and one.begins == 2 and run.first == 1 and (again or rank < 0)

    def _after(self, at: int) -> int:
        if at + 1 < len(self.runs):
            return self.runs[at + 1].start
        return self._read if self.whole else self.runs[at].end

    def end(self, rank: int, most: int | None) -> tuple[int, int | None]:
        """Return the last valid end before transactions of higher ranks, and the rank that must be left out, if any.

        Args:
            rank: rank of the last transaction.
            most: highest end; None: no limit.
        """
        at = bisect_right(self._ends, rank, key=lambda item: item[0])
        if most is not None:  # both ranks and ends increase
            at = max(1, min(at, bisect_right(self._ends, most, key=lambda item: item[1])))
        have, end = self._ends[at - 1]
        wanted = bisect_right(self._touched, rank)
        need = self._touched[wanted - 1] if wanted else None
        if need is None or have >= need or (need not in self._found and self._highest > need):
            return end, None
        return end, self._touched[bisect_right(self._touched, have)]

    def snapshot_part(self, most: int) -> int:
        """Return an end inside of the snapshot at the beginning, or after it."""
        if not self.runs or self.runs[0].kind != "snapshot":
            return self.next
        return max(self.next, min(most, self._after(0)))


def choose(tables: Sequence[Table], history: History, most: Sequence[int], streaming: bool, bare: bool = True) -> Cut:
    """Return the newest cut within the limits, or the oldest one if each is beyond them.

    Args:
        tables: what is known of each table.
        history: the transactions.
        most: highest end of each table's range.
        streaming: whether the transaction topic has a record.
        bare: whether the batch may have records of the transaction topic only.
    """
    opened = [(table, end) for table, end in zip(tables, most, strict=True) if table.snapshot_open]
    if opened:
        if all(table.whole and table.runs[-1].end <= end for table, end in opened):
            return Cut(-1, [table.next for table in tables], f"the end of the snapshot of topic {opened[0][0].topic}")
        return Cut(-1, [table.snapshot_part(end) for table, end in zip(tables, most, strict=True)], partial=True)
    if waits := _snapshot_waits(tables, streaming) or _unplaced(tables):
        return Cut(-1, [table.next for table in tables], waits)
    cut = _newest(tables, history, most)
    if (bare and cut.rank >= 0) or _reads(tables, cut.ends):
        return cut
    for rank in range(max(0, cut.rank), history.newest + 1):
        found = [table.end(rank, None) for table in tables]
        ends = [end for end, _ in found]
        if all(need is None for _, need in found) and (bare or _reads(tables, ends)):
            return Cut(rank, ends)
    return cut


def _reads(tables: Sequence[Table], ends: Sequence[int]) -> bool:
    """Return whether a record of a table is read."""
    return any(end > table.next for end, table in zip(ends, tables, strict=True))


def _snapshot_waits(tables: Sequence[Table], streaming: bool) -> str:
    """Return what to wait for while another table's snapshot may follow; empty if none does."""
    done = [run.done for table in tables for run in table.runs[:1] if run.kind == "snapshot"]
    later = [table.topic for table in tables if not table.begun and not table.runs]
    if not done or not later or streaming or "whole" in done:
        return ""
    return f"the snapshot of topic {later[0]}, or the first transaction after the snapshot"


def _unplaced(tables: Sequence[Table]) -> str:
    """Return what to wait for while it is unknown whether events of a table come before or after the known transactions."""
    found = next((table for table in tables if table.unplaced), None)
    if found is None:
        return ""
    return f"BEGIN or END of transaction {found.unplaced}, or an event of a known transaction in topic {found.topic}"


def _newest(tables: Sequence[Table], history: History, most: Sequence[int]) -> Cut:
    """Return the newest cut within the limits; rank -1 if there is none."""
    rank, waits = history.newest, ""
    while True:
        found = [table.end(rank, limit) for table, limit in zip(tables, most, strict=True)]
        needed = [(need, at) for at, (_, need) in enumerate(found) if need is not None]
        if not needed:
            return Cut(rank, [end for end, _ in found], waits)
        need, at = min(needed)
        waits = f"events of transaction {history.at(need).key} in topic {tables[at].topic}"
        rank = need - 1
