"""Outcomes of offsets and rows in an audit, and which of them prove that a table is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["EXPLAINED", "MEANINGS", "ROWS", "Notes", "Outcome", "State", "Summary"]


class State(IntEnum):
    """State of an offset in the log."""

    NONE = 0
    """No record: a control record, or removed by compaction."""
    VALUE = 1
    """A committed record with a value."""
    TOMBSTONE = 2
    """A committed record without a value."""
    ABORTED = 3
    """A record of an aborted transaction."""
    EXPIRED = 4
    """Below the log start: the log does not contain it any more."""


class Outcome(IntEnum):
    """Result for an offset of the audited range."""

    MATCHED = 0
    MISSING = 1
    MISSING_TOMBSTONE = 2
    MISSING_ABORTED = 3
    DUPLICATE = 4
    ABORTED = 5
    ABORTED_ROW = 6
    NO_RECORD = 7
    COMPACTED_ROW = 8
    ROW_WITHOUT_RECORD = 9
    EXPIRED_ROW = 10
    EXPIRED = 11
    DECLARED = 12
    DECLARED_ROW = 13
    TOMBSTONE = 14


MEANINGS: dict[Outcome, str] = {
    Outcome.MATCHED: "one record, one row",
    Outcome.MISSING: "a record without a row",
    Outcome.MISSING_TOMBSTONE: "a record without a value and without a row",
    Outcome.MISSING_ABORTED: "a record of an aborted transaction without a row, though the loader reads uncommitted records",
    Outcome.DUPLICATE: "more than one row",
    Outcome.ABORTED: "a record of an aborted transaction, without a row",
    Outcome.ABORTED_ROW: "a row of an aborted transaction",
    Outcome.NO_RECORD: "no record and no row: a control record, or removed by compaction",
    Outcome.COMPACTED_ROW: "a row whose record was removed by compaction",
    Outcome.ROW_WITHOUT_RECORD: "a row without a record",
    Outcome.EXPIRED_ROW: "a row whose record is below the log start",
    Outcome.EXPIRED: "below the log start, and no row: nothing proves that there was no record",
    Outcome.DECLARED: "a record without a row, declared with --except",
    Outcome.DECLARED_ROW: "declared with --except, but there is a row or no record",
    Outcome.TOMBSTONE: "a record without a value; the loader skips them (--skips-tombstones)",
}

_COMMON = frozenset(
    {
        Outcome.MATCHED,
        Outcome.NO_RECORD,
        Outcome.COMPACTED_ROW,
        Outcome.EXPIRED_ROW,
        Outcome.DECLARED,
        Outcome.TOMBSTONE,
        Outcome.ABORTED,
    }
)
EXPLAINED: dict[str, frozenset[Outcome]] = {
    "read_committed": _COMMON,
    "read_uncommitted": _COMMON - {Outcome.ABORTED} | {Outcome.ABORTED_ROW},
}
"""Outcomes that need no correction, by the isolation level with which the table was loaded."""

ROWS = frozenset(
    {
        Outcome.MATCHED,
        Outcome.DUPLICATE,
        Outcome.ABORTED_ROW,
        Outcome.COMPACTED_ROW,
        Outcome.ROW_WITHOUT_RECORD,
        Outcome.EXPIRED_ROW,
    }
)
"""Outcomes of offsets that have at least one row."""


@dataclass
class Notes:
    """Rows that belong to no offset of the audited range.

    Attributes:
        total: rows that were read.
        invalid: partition or offset is NULL, negative or not an integer, or the topic is NULL.
        other_topic: of other topics, by the topic column.
        other_partition: of partitions that the topic does not have.
        not_audited: of partitions that `--partitions` excludes.
        before: below the audited range.
        after: above the audited range, and below the last stable offset.
        undecided: at or above the last stable offset, below the high watermark.
        beyond: at or above the high watermark.
        inside: in the audited range.
        further: of records with several rows, all but one each.
        misnumbered: records in the audited range whose rows are not numbered once each; no class of rows.
    """

    total: int = 0
    invalid: int = 0
    other_topic: int = 0
    other_partition: int = 0
    not_audited: int = 0
    before: int = 0
    after: int = 0
    undecided: int = 0
    beyond: int = 0
    inside: int = 0
    further: int = 0
    misnumbered: int = 0

    @property
    def accounted(self) -> int:
        """Return the sum of all classes, which must equal `total`."""
        return sum(value for name, value in vars(self).items() if name not in ("total", "misnumbered"))


@dataclass
class Summary:
    """Result of an audit.

    Attributes:
        isolation: isolation level with which the table was loaded.
        ranges: audited range of each partition.
        tails: records without a row above the last row of each partition: not loaded yet, or lost.
        counts: offsets by partition and outcome.
        notes: rows outside of the range.
        rows_inside: rows of the audited range, counted while offsets were compared.
        filtered: records that the loader filtered, by its own count; None: not stated.
        finished: whether each window was compared.
        trouble: reasons why the audit itself proves nothing.
        policy_unknown: whether compaction is unknown, because the topic's `cleanup.policy` cannot be read.
    """

    isolation: str
    ranges: Mapping[int, tuple[int, int]]
    tails: Mapping[int, int]
    counts: Mapping[int, Counter[Outcome]]
    notes: Notes
    rows_inside: int
    filtered: int | None = None
    finished: bool = True
    trouble: list[str] = field(default_factory=list)
    policy_unknown: bool = False

    @property
    def span(self) -> int:
        """Return the number of audited offsets."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def totals(self) -> Counter[Outcome]:
        """Return the offsets by outcome."""
        return sum((Counter(item) for item in self.counts.values()), Counter[Outcome]())

    @property
    def missing(self) -> int:
        """Return the number of records without a row."""
        return sum(self.totals[item] for item in (Outcome.MISSING, Outcome.MISSING_TOMBSTONE, Outcome.MISSING_ABORTED))

    @property
    def ok(self) -> bool:
        """Return whether every audited offset and every row is explained."""
        return not self.problems()

    @property
    def verdict(self) -> str:
        """Return `explained`, `unexplained`, `unexplained unless filtered`, or `unfinished`."""
        if not self.finished:
            return "unfinished"
        problems = self.problems()
        if not problems:
            return "explained"
        only = not self.problems(filtered=True)
        return "unexplained unless filtered" if only and self.filtered == self.missing and self.missing else "unexplained"

    def problems(self, filtered: bool = False) -> list[str]:
        """Return everything that prevents a proof, one sentence each.

        Args:
            filtered: leave out records without a row.
        """
        found = list(self.trouble)
        if not self.finished:
            found.append("the audit is not finished: run it again with the same report")
        totals = self.totals
        if self.finished and sum(totals.values()) != self.span:
            found.append(f"{sum(totals.values()):,} offsets were compared: expected {self.span:,}")
        if not self.span:
            found.append("no offset was audited: the ranges are empty")
        missing = (Outcome.MISSING, Outcome.MISSING_TOMBSTONE, Outcome.MISSING_ABORTED)
        wrong = set(Outcome) - EXPLAINED[self.isolation] - (set(missing) if filtered else set())
        found.extend(
            f"{totals[outcome]:,} {'offset' if totals[outcome] == 1 else 'offsets'}: {MEANINGS[outcome]}"
            for outcome in sorted(wrong)
            if totals[outcome]
        )
        if self.policy_unknown and (totals[Outcome.ROW_WITHOUT_RECORD] or totals[Outcome.DECLARED_ROW]):
            found.append(
                "cleanup.policy cannot be read, so compaction explains no offset without a record: grant DescribeConfigs on the"
                " topic, or set --compacted"
            )
        return found + self._rows()

    def _rows(self) -> list[str]:
        notes, found = self.notes, []
        if notes.invalid:
            found.append(f"{notes.invalid:,} rows: partition or offset is NULL, negative or not an integer, or the topic is NULL")
        if notes.misnumbered:
            records = "record" if notes.misnumbered == 1 else "records"
            found.append(f"{notes.misnumbered:,} {records}: rows are not numbered once each, without a gap, from 0 or 1")
        if notes.other_partition:
            found.append(f"{notes.other_partition:,} rows of partitions that the topic does not have")
        if notes.undecided and self.isolation == "read_committed":
            found.append(f"{notes.undecided:,} rows of transactions that are still open")
        if notes.beyond:
            found.append(f"{notes.beyond:,} rows beyond the end of the log: the topic was recreated, or it is another topic")
        if notes.accounted != notes.total:
            found.append(f"{notes.accounted:,} rows were classified: expected {notes.total:,}")
        if self.finished and self.rows_inside != notes.inside:
            found.append(f"{self.rows_inside:,} rows were compared: expected {notes.inside:,}")
        return found
