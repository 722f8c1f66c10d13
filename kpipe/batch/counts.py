"""Counts of the records and rows of a range (design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter

__all__ = ["SETTLED", "Counts", "total"]

#: Counts that only the commit determines.
SETTLED = ("inserted", "updated", "deleted", "ignored")
#: Counts of a table's rows; the others are counts of records.
_OF_ROWS = ("rows", "deletes", *SETTLED)


@dataclass(frozen=True)
class Counts:
    """Counts that account for every offset of a range (design.md, rule 7).

    Attributes:
        messages: records read.
        rows: rows staged.
        dead_letters: records, or output rows of a program, that became dead letters.
        filtered: records that gave no row on purpose: tombstones that delete nothing, and records that a program dropped.
        gaps: offsets without a record: control records, aborted transactions, compacted records.
        given: only if a record may give any number of rows, else 0. With a `flatmap` program: records passed to the program.
            Otherwise (CSV, UNNEST, several tables): records that gave rows in some table.
        set_aside_before: dead letters that are not among `given`; only counted with it.
        bytes: bytes of the keys and values read.
        deletes: tombstones that delete the row of their key (kpipe/tables/upsert.py).
        inserted, updated, ignored: outcomes of the rows in the table; they add up to `rows`. Only the commit determines them;
            without a key rule all rows are inserted.
        deleted: deletes that found a row of their key.
    """

    messages: int = 0
    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    gaps: int = 0
    given: int = 0
    set_aside_before: int = 0
    bytes: int = 0
    deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0

    def __add__(self, other: Counts) -> Counts:
        return total((self, other))

    def unaccounted(self, span: int) -> int:
        """Return how many of `span` offsets are not accounted for; 0 if the counts add up.

        If a record gives one row at most, `span = rows + deletes + dead letters + filtered + gaps`. If it may give
        several, the number of rows does not show the number of records. `given` then replaces `rows`, and
        `set_aside_before` the dead letters.
        """
        if self.given:
            return span - (self.given + self.set_aside_before + self.deletes + self.filtered + self.gaps)
        return span - (self.rows + self.deletes + self.dead_letters + self.filtered + self.gaps)

    @property
    def of_rows(self) -> Counts:
        """Counts of a table's rows and deletes only."""
        return Counts(**{name: getattr(self, name) for name in _OF_ROWS})

    @property
    def of_records(self) -> Counts:
        """Counts of the records that were read, without those of a table's rows."""
        return replace(self, **dict.fromkeys(_OF_ROWS, 0))

    @property
    def unsettled(self) -> int:
        """Number of rows without an outcome, plus deleted rows without a delete; 0 if the counts add up.

        Always 0 without a key: all rows are inserted.
        """
        if not (self.deletes or self.inserted or self.updated or self.ignored or self.deleted):
            return 0
        return abs(self.rows - self.inserted - self.updated - self.ignored) + (0 if self.deletes else self.deleted)


def total(counts: Iterable[Counts]) -> Counts:
    """Add up counts."""
    items = tuple(counts)
    if len(items) == 1:  # most ranges have one piece
        return items[0]
    return Counts(*map(sum, zip(*map(_numbers, items), strict=True)))


_numbers = attrgetter(*(item.name for item in fields(Counts)))
