"""Transactions of a source, as Debezium writes them: events in the topics of tables, BEGIN and END in a topic of their own.

Debezium's page "Transaction metadata" defines both. Its order within a partition is the source's order of commits, but after a
crash it writes the events since its last stored position again. Then an old transaction follows newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

from kpipe.definition.transaction_topic import topic_of
from kpipe.offsets import Range
from kpipe.topics import PartitionId

__all__ = ["NEVER", "Boundary", "Change", "Run", "Transaction", "TransactionLog", "Transactions", "joined", "key_of"]

#: Rank of a transaction before all that the topic still contains.
NEVER = -(1 << 62)

_UNCOUNTED = 2  # BEGIN records that make counts doubtful, where the END was lost

_POSTGRES = re.compile(r"(\d+):\d+")


def key_of(identifier: str) -> str:
    """Return what the events of one transaction have in common: PostgreSQL's identifiers end in the position of each event."""
    found = _POSTGRES.fullmatch(identifier)
    return found.group(1) if found else identifier


class Boundary(NamedTuple):
    """A record of the transaction topic.

    Attributes:
        offset: its offset.
        key: of the transaction (`key_of`).
        counts: for END, events by table (`data_collection`); None for BEGIN.
    """

    offset: int
    key: str
    counts: Mapping[str, int] | None


class Change(NamedTuple):
    """A record of a table's topic.

    Attributes:
        offset: its offset.
        kind: `event` of a transaction; `snapshot`, `table` (the last of the table's snapshot) or `whole` (the last of the
            whole snapshot); `other`: a tombstone, or no change of a row.
        key: of the transaction (`key_of`); empty without one.
        order: number of the event among those of its table in the transaction, from 1.
    """

    offset: int
    kind: str
    key: str = ""
    order: int = 0


@runtime_checkable
class TransactionLog(Protocol):
    """Optional interface of `Topics` (kpipe/interfaces.py): read to which transaction of the source each record belongs.

    `batch.cut: transaction` needs it. Ranges end at the last stable offset at most.
    """

    def entries(self, source: PartitionId, span: Range) -> Iterable[Boundary]:
        """Read BEGIN and END of transactions in a range of the transaction topic, in offset order.

        Raises:
            SourceError: the range could not be read, or a record is neither.
        """
        ...

    def changes(self, source: PartitionId, span: Range) -> Iterable[Change]:
        """Read to which transaction each record in a range of a table's topic belongs, in offset order.

        Raises:
            SourceError: the range could not be read, or a change has no transaction metadata.
        """
        ...


@dataclass(frozen=True)
class Run:
    """Successive records of a partition that belong together.

    Attributes:
        kind: `event`, `snapshot` or `other`.
        start: offset of the first record.
        end: exclusive; after the last record.
        key: of the transaction.
        first, last: order of its first and last event.
        done: for a snapshot, whether its last record is there: empty, `table` or `whole`.
    """

    kind: str
    start: int
    end: int
    key: str = ""
    first: int = 0
    last: int = 0
    done: str = ""

    def with_record(self, change: Change) -> Run | None:
        """Return the run with a further record; None if the record begins another run."""
        if change.kind == "other":
            return replace(self, end=change.offset + 1)
        if change.kind == "event":
            same = self.kind == "event" and self.key == change.key and change.order > self.last
            return replace(self, end=change.offset + 1, last=change.order) if same else None
        return replace(self, end=change.offset + 1, done=_done(change)) if self.kind == "snapshot" else None


def _done(change: Change) -> str:
    return "" if change.kind == "snapshot" else change.kind


def joined(runs: list[Run], changes: Iterable[Change]) -> None:
    """Append records to the runs of a partition, in offset order."""
    for change in changes:
        longer = runs[-1].with_record(change) if runs else None
        if longer is not None:
            runs[-1] = longer
        else:
            kind = change.kind if change.kind in ("event", "other") else "snapshot"
            done = _done(change) if kind == "snapshot" else ""
            runs.append(Run(kind, change.offset, change.offset + 1, change.key, change.order, change.order, done))


@dataclass(frozen=True)
class Transaction:
    """A transaction that has ended.

    Attributes:
        key: see `key_of`.
        offset: of its first END.
        counts: events by topic, as its last END states them.
        begins: number of its BEGIN records; several: Debezium has written it again.
        topics: those with events according to any END: a transaction that is continued after a crash has fewer in the last one.
    """

    key: str
    offset: int
    counts: Mapping[str, int]
    begins: int
    topics: frozenset[str] = frozenset()


@dataclass
class Transactions:
    """Transactions in the order of their first END. Those before `next` are committed, and have a rank below 0.

    Attributes:
        prefix: Debezium's `topic.prefix`.
        first: offset of the first entry that is remembered.
        next: next offset of the transaction topic.
        read: exclusive end of the entries so far.
        entries: BEGIN and END, in offset order.
    """

    prefix: str
    first: int
    next: int
    read: int
    entries: list[Boundary] = field(default_factory=list)

    def move(self, to: int, first: int) -> None:
        """Move `next`, and forget the entries before `first`."""
        self.next = to
        if first > self.first:
            self.first = first
            self.entries = [entry for entry in self.entries if entry.offset >= first]

    def ended(self) -> tuple[Sequence[Transaction], int, Collection[str]]:
        """Return the transactions, the number of those that are committed, and the keys of those that have begun only.

        Where a later transaction has ended first, the END was lost when Debezium was killed. It has written all events before.
        """
        found: dict[str, Transaction] = {}
        begins: dict[str, int] = {}
        opened: dict[str, None] = {}
        for entry in self.entries:
            if entry.counts is None:
                begins[entry.key] = begins.get(entry.key, 0) + 1
                if entry.key not in found:
                    opened[entry.key] = None
                continue
            opened.pop(entry.key, None)
            known = found.get(entry.key)
            if known is None:
                found |= {key: Transaction(key, entry.offset, {}, 0) for key in opened}
                begins |= {key: begins[key] + _UNCOUNTED for key in opened}
                opened.clear()
            counts = dict[str, int]()
            for collection, count in entry.counts.items():
                name = topic_of(self.prefix, collection)
                counts[name] = counts.get(name, 0) + count
            topics = frozenset(name for name, count in counts.items() if count) | (known.topics if known else frozenset())
            found[entry.key] = Transaction(entry.key, known.offset if known else entry.offset, counts, 0, topics)
        result = [replace(one, begins=begins.get(one.key, 0)) for one in found.values()]
        return result, sum(one.offset < self.next for one in result), opened.keys()

    def end_of(self, ranks: Mapping[str, int], rank: int) -> int:
        """Return the offset after the last END in a row, from `next` on, of transactions up to this rank; `next` without one."""
        end = self.next
        for entry in self._ahead():
            found = ranks.get(entry.key)
            if found is None or found > rank:
                if entry.counts is not None:
                    break
                continue
            if entry.counts is not None:
                end = entry.offset + 1
        return end

    def _ahead(self) -> Iterator[Boundary]:
        return (entry for entry in self.entries if entry.offset >= self.next)
