"""Outcomes of keys in an audit by key, and which of them prove that a table is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["EXPLAINED", "MEANINGS", "KeyOutcome", "KeySummary", "Read"]


class KeyOutcome(IntEnum):
    """Result for a key; with `--rows all`, for records and rows of equal content."""

    MATCHED = 0
    ABSENT = 1
    NEWER = 2
    MISSING = 3
    DIFFERING = 4
    SURPLUS = 5
    UNDELETED = 6
    DUPLICATE = 7
    UNORDERED = 8
    OLDER = 9
    REPLACED = 10


MEANINGS: dict[KeyOutcome, str] = {
    KeyOutcome.MATCHED: "the row has the content of the record",
    KeyOutcome.ABSENT: "the newest record deletes the key, and there is no row",
    KeyOutcome.NEWER: "the state of a record that was written after the end of the range",
    KeyOutcome.MISSING: "a record without a row",
    KeyOutcome.DIFFERING: "a row that differs from its record",
    KeyOutcome.SURPLUS: "a row without a record",
    KeyOutcome.UNDELETED: "a row whose key the newest record deletes",
    KeyOutcome.DUPLICATE: "more rows than records",
    KeyOutcome.UNORDERED: "records of the key in several partitions: which of them is the newest cannot be determined",
    KeyOutcome.OLDER: "a row without a record, though the log may have contained one: it does not begin with offset 0",
    KeyOutcome.REPLACED: "a record after the range, by which compaction may have removed the newest one of the range",
}

EXPLAINED = frozenset({KeyOutcome.MATCHED, KeyOutcome.ABSENT, KeyOutcome.NEWER})
"""Outcomes that need no correction; with `--older-rows`, `OLDER` as well."""


@dataclass
class Read:
    """Contents that were read from the topic and the table: counts, and names of fields.

    Attributes:
        records: of the range, without declared ones.
        later: records between the end of the range and the end of the log after the table was read.
        ignored: records that are compared with no row, and not declared: tombstones that the loader skips, and later records
            whose key cannot be read.
        written: offsets that were written after the table was read, until the topic was.
        tombstones: records of the range without a value.
        later_tombstones: later records without a value.
        unreadable: records of the range without a key that can be read.
        declared: records that need no row.
        foreign: records whose own key, of Kafka, is another one than their key; 0 if tombstones and compaction do not count.
        rows: of the table.
        keyless: rows without a key.
        lost: offsets that retention removed before they could be read.
        fields: fields that a compared column has found in at least one record, by the number of the column.
        unmapped: fields of records without a column; the first ones.
    """

    records: int = 0
    later: int = 0
    tombstones: int = 0
    unreadable: int = 0
    declared: int = 0
    foreign: int = 0
    rows: int = 0
    keyless: int = 0
    lost: int = 0
    fields: set[int] = field(default_factory=set)
    unmapped: set[str] = field(default_factory=set)
    later_tombstones: int = 0
    ignored: int = 0
    written: int = 0

    def add(self, other: Read) -> None:
        """Add what another part has read."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, mine | value if isinstance(value, set) else mine + value)


@dataclass
class KeySummary:
    """Result of an audit by key.

    Attributes:
        totals: keys by outcome; with `--rows all`, records and rows.
        read: see `Read`.
        compared: names of the compared columns.
        keys_only: whether the user compares no column on purpose.
        compacted: whether compaction may have removed records.
        every: whether each record has a row (`--rows all`).
        older_rows: whether `OLDER` is explained.
        finished: whether every part was compared.
        trouble: reasons why the audit itself proves nothing.
        policy_unknown: whether `compacted` is true only because the topic's `cleanup.policy` cannot be read.
    """

    totals: Counter[KeyOutcome]
    read: Read
    compared: Sequence[str]
    keys_only: bool = False
    compacted: bool = False
    every: bool = False
    older_rows: bool = False
    finished: bool = True
    trouble: list[str] = field(default_factory=list)
    policy_unknown: bool = False

    @property
    def explained(self) -> frozenset[KeyOutcome]:
        """Outcomes that need no correction."""
        return EXPLAINED | {KeyOutcome.OLDER} if self.older_rows else EXPLAINED

    @property
    def ok(self) -> bool:
        """Return whether every key and every row is explained."""
        return not self.problems()

    @property
    def verdict(self) -> str:
        """`explained` or `unexplained`."""
        return "explained" if self.ok else "unexplained"

    def problems(self) -> list[str]:
        """Return everything that prevents a proof, one sentence each."""
        found, read = list(self.trouble), self.read
        if not self.finished:
            found.append("the audit is not finished: run it again with the same report")
        one, many = ("record or row", "records or rows") if self.every else ("key", "keys")
        for outcome in sorted(set(KeyOutcome) - self.explained):
            count = self.totals[outcome]
            if count:
                found.append(f"{count:,} {one if count == 1 else many}: {MEANINGS[outcome]}")
        if read.unreadable:
            found.append(f"{read.unreadable:,} records whose key cannot be read: not JSON, or without a field of the key")
        if read.keyless:
            found.append(f"{read.keyless:,} rows without a key: a column of it is NULL")
        if read.lost:
            found.append(
                f"{read.lost:,} offsets were removed by retention before they were read: whether their keys have rows is unknown"
            )
        if read.foreign and (deletes := read.tombstones + read.later_tombstones):
            found.append(
                f"{read.foreign:,} records have another key in Kafka, so which rows {deletes:,} records without a value"
                " delete is unknown"
            )
        if not read.records:
            found.append("no record was compared: the range is empty")
        if not self.compared and not self.keys_only:
            found.append("no column was compared: no record has a field with the name of a column")
        return found + (self._compaction() if self.compacted else [])

    def _compaction(self) -> list[str]:
        """Return why compaction prevents a proof: the log may lack records that decide which rows are right."""
        read, found = self.read, list[str]()
        if self.every:
            found.append("the topic is compacted, so it does not contain each record of its rows")
        else:
            if read.foreign:
                found.append(
                    f"compaction keeps the newest record of Kafka's key, and {read.foreign:,} records have another key there"
                )
            if out := read.declared + read.ignored:
                found.append(
                    f"{out:,} {'record was' if out == 1 else 'records were'} left out, by which compaction may have removed"
                    " others of the same keys"
                )
            if read.written:
                found.append(
                    f"{read.written:,} {'offset' if read.written == 1 else 'offsets'} of the topic were written after the table"
                    " was read: compaction may have removed records before they were read"
                )
        if self.policy_unknown and (found or self.totals[KeyOutcome.REPLACED]):
            found.append("cleanup.policy cannot be read, so the topic counts as compacted: grant DescribeConfigs on the topic")
        return found
