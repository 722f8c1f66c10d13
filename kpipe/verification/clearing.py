"""Rows that are cleared on purpose: what that means for the ledger, and for the proof. Pure.

The offsets whose rows a table has lost become skipped, so that reading goes back over them without a row that comes twice. The
history keeps what was read, and a range that takes all of it back: its counts are the negative sums.
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

#: What `closed_by` says of a range that takes back what was read.
CLEARED = "cleared"
_UNCOUNTED = ("messages", "bytes")  # they say what was read, which stays true


@dataclass(frozen=True)
class TakenBack:
    """What clearing tables means for one pipeline.

    Attributes:
        changes: of lanes.
        parts: by the first table of the ranges: what takes them back, with its negative counts.
        gone: offsets that become skipped.
    """

    changes: tuple[LaneChange, ...]
    parts: Mapping[str, Sequence[tuple[Step, Counts]]]
    gone: Mapping[PartitionId, Sequence[Range]]

    @property
    def counts(self) -> Counts:
        """Of all parts."""
        return total(counts for items in self.parts.values() for _, counts in items)


@dataclass(frozen=True)
class Cleared:
    """What was done.

    Attributes:
        rows: that were deleted, by table.
        pipelines: whose offsets became skipped, in words, by name.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    pipelines: Mapping[str, Sequence[str]] = field(default_factory=dict)


@runtime_checkable
class Clearing(Protocol):
    """What a destination can besides: delete all rows of tables, and say so in the ledger of every pipeline that wrote them."""

    def writers(self, table: str) -> Sequence[str]:
        """Return the names of the pipelines that have written the table, as the ledgers of this place have it.

        Raises:
            DestinationError: it cannot be read.
        """
        ...

    def clear(self, tables: Sequence[str], who: str, only: Collection[str] | None = None) -> Cleared:
        """Delete all rows and take back what the ledgers say of them, in one transaction, or do nothing.

        Dead letters of the ranges become messages: they are counted no longer, and cannot be replayed.

        Args:
            tables: names; one that is not there holds nothing.
            who: decided it, kept with the commits.
            only: pipelines that may be concerned; None: all.

        Raises:
            NotAvailable: another pipeline would be concerned, or another table holds rows of the same records.
            Fenced: a pipeline has committed meanwhile. Nothing was changed.
            DestinationError, DestinationBusy, LedgerMismatch, OutcomeUnknown: as `Destination.commit`.
        """
        ...


def standing(history: Sequence[Entry]) -> list[Entry]:
    """Return the history without the ranges that were cleared since, and without those that cleared them.

    Demands to read again stay, as they say of other tables, too, what was not read any more; those that speak of cleared rows are
    marked `cleared`.
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
    """Return what clearing these tables means for a pipeline; None where it has left nothing in them.

    Args:
        ledger: of the pipeline.
        history: of the pipeline, in order; each range names the first table that it went to.
        tables: that are cleared.
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
            for part in ranges or (Range(at, at),):  # without one, all is to be read again anyway
                step = Step(Lane(source, part.start, part.start, part.end), part.end, CLEARED)
                parts.setdefault(table, []).append((step, sums))
                sums = Counts()
            found += ranges
        if found:
            gone[source] = union(found).ranges
            changes += transitions.clear(ledger, source, union(found))
    return TakenBack(tuple(changes), parts, gone) if parts else None


def _owned(entries: Sequence[Entry], table: str) -> RangeSet:
    """Offsets whose newest reading went into that table."""
    if not any(entry.reread or entry.loose for entry in entries):  # each was read once
        return union(entry.range for entry in entries if entry.table == table)
    owned = RangeSet()
    for entry in entries:
        mine = not entry.reread and entry.table == table
        owned = union([*owned, entry.range]) if mine else owned.without(entry.range)
    return owned


def _inside(ranges: Iterable[Range], within: RangeSet) -> tuple[Range, ...]:
    found = (Range(max(a.start, b.start), min(a.end, b.end)) for a in ranges for b in within if a.overlaps(b))
    return union(found).ranges


def _negative(counts: Counts) -> Counts:
    return Counts(**{
        item.name: 0 if item.name in _UNCOUNTED else -getattr(counts, item.name) for item in fields(Counts)
    })  # fmt: skip
