"""Ledger changes and history entries of rows that are cleared on purpose.

The offsets of cleared rows become skipped, so that they can be read again without duplicates. The history keeps the ranges
that were read, and gets a range that reverses all of them: its counts are the negative sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, runtime_checkable

from kpipe.batch.counts import Counts, total
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, LaneChange, Ledger, Step
from kpipe.offsets import Range, RangeSet, union
from kpipe.topics import PartitionId
from kpipe.verification.recount import Entry

__all__ = ["CLEARED", "Cleared", "Clearing", "TakenBack", "standing", "take_back"]

#: `closed_by` of a range that reverses what was read.
CLEARED = "cleared"
_UNCOUNTED = ("messages", "bytes")  # counts of what was read, which stay valid


@dataclass(frozen=True)
class TakenBack:
    """Changes of one pipeline when tables are cleared.

    Attributes:
        changes: lane changes.
        parts: by the first table of the ranges: the reversing ranges, with their negative counts.
        `gone`: offsets that become skipped.
    """

    changes: tuple[LaneChange, ...]
    parts: Mapping[str, Sequence[tuple[Step, Counts]]]
    gone: Mapping[PartitionId, Sequence[Range]]

    @property
    def counts(self) -> Counts:
        """Counts of all parts."""
        return total(counts for items in self.parts.values() for _, counts in items)


@dataclass(frozen=True)
class Cleared:
    """Result of clearing tables.

    Attributes:
        rows: deleted rows, by table.
        pipelines: by name, the pipelines whose offsets became skipped, with a description.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    pipelines: Mapping[str, Sequence[str]] = field(default_factory=dict)


@runtime_checkable
class Clearing(Protocol):
    """Optional interface of a destination: delete all rows of tables, and record it in the ledger of every pipeline."""

    def writers(self, table: str) -> Sequence[str]:
        """Return the names of the pipelines that have written the table, according to the ledgers of this destination.

        Raises:
            DestinationError: the ledgers cannot be read.
        """
        ...

    def other_rows(self, table: str) -> int:
        """Return how many rows of the table no pipeline has written, by the counts of the ledgers: rows of other programs.

        Raises:
            DestinationError: the table or the ledgers cannot be read.
        """
        ...

    def check_clear(self, tables: Sequence[str], only: Collection[str]) -> None:
        """Check what `clear` would refuse by the present ledgers, without any change.

        Raises:
            NotAvailable: as `clear`.
            DestinationError: the ledgers cannot be read.
        """
        ...

    def clear(self, tables: Sequence[str], who: str, only: Collection[str] | None = None) -> Cleared:
        """Delete all rows and reverse their counts in the ledgers, in one transaction, or do nothing.

        Dead letters of the ranges become error messages: they are not counted any more, and cannot be retried.

        Args:
            tables: names of the tables; a missing one counts as empty.
            who: the operator, stored with the commits.
            only: pipelines that may be affected; None: all.

        Raises:
            NotAvailable: another pipeline would be affected, or another table contains rows of the same records.
            Fenced: a pipeline has committed in the meantime. Nothing was changed.
            DestinationError, DestinationBusy, LedgerMismatch, OutcomeUnknown: as `Destination.commit`.
        """
        ...


def standing(history: Sequence[Entry]) -> list[Entry]:
    """Return the history without cleared ranges, and without the ranges that reversed them.

    Rereads stay: they also apply to other tables. If their own rows were cleared, they are marked `cleared`.
    """
    gone: set[tuple[PartitionId, str]] = set()
    kept: list[Entry] = []
    for entry in reversed(history):
        place = entry.source, entry.table.lower()
        if entry.cleared:
            gone.add(place)
        elif place not in gone:
            kept.append(entry)
        elif entry.reread:
            kept.append(replace(entry, cleared=True))
    return kept[::-1]


def take_back(ledger: Ledger, history: Sequence[Entry], tables: Collection[str]) -> TakenBack | None:
    """Return the changes of a pipeline when these tables are cleared; None if it has no rows in them.

    Args:
        ledger: the pipeline's ledger.
        history: the pipeline's history, in order; each range names the first table that it was written to.
        tables: the cleared tables.
    """
    names = {name.lower() for name in tables}
    entries: dict[PartitionId, list[Entry]] = {}
    for entry in standing(history):
        entries.setdefault(entry.source, []).append(entry)
    changes: list[LaneChange] = []
    parts: dict[str, list[tuple[Step, Counts]]] = {}
    gone: dict[PartitionId, Sequence[Range]] = {}
    for source, items in sorted(entries.items()):
        found: list[Range] = []
        for table in sorted({item.table for item in items if not item.reread and item.table.lower() in names}):
            mine = [item for item in items if not item.reread and item.table == table]
            ranges = _inside(_owned(items, table), ledger.committed(source))
            sums = _negative(total(item.counts for item in mine))
            at = min(item.range.start for item in mine)
            for part in ranges or (Range(at, at),):  # an empty one if all of them are to be read again anyway
                step = Step(Lane(source, part.start, part.start, part.end), part.end, CLEARED)
                parts.setdefault(table, []).append((step, sums))
                sums = Counts()
            found += ranges
        if found:
            gone[source] = union(found).ranges
            changes += transitions.clear(ledger, source, union(found))
    return TakenBack(tuple(changes), parts, gone) if parts else None


def _owned(entries: Sequence[Entry], table: str) -> RangeSet:
    """Return the offsets that were last read into that table."""
    if not any(entry.reread or entry.loose for entry in entries):  # no offset was read more than once
        return union(entry.range for entry in entries if entry.table == table)
    owned = RangeSet()
    for entry in entries:
        mine = not entry.reread and entry.table == table
        owned = union([*owned.ranges, entry.range]) if mine else owned.without(entry.range)
    return owned


def _inside(ranges: Iterable[Range], within: RangeSet) -> tuple[Range, ...]:
    found = (Range(max(a.start, b.start), min(a.end, b.end)) for a in ranges for b in within if a.overlaps(b))
    return union(found).ranges


def _negative(counts: Counts) -> Counts:
    return Counts(**{
        item.name: 0 if item.name in _UNCOUNTED else -getattr(counts, item.name) for item in fields(Counts)
    })  # fmt: skip
