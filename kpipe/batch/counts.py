"""What became of the offsets of a range, in numbers (design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter

__all__ = ["SETTLED", "Counts", "total"]

#: Counts that are only known when the commit is made.
SETTLED = ("inserted", "updated", "deleted", "ignored")


@dataclass(frozen=True)
class Counts:
    """What became of the offsets of a range (design.md, rule 7).

    Attributes:
        messages: records read.
        rows: rows staged.
        dead_letters: records, or a program's output rows, set aside.
        filtered: records that deliberately gave no row in any table: tombstones that delete nothing, those a program dropped.
        gaps: offsets without a record: control records, aborted transactions, compacted away.
        given: where a record may give any number of rows: records given to a `flatmap` program, or records that gave rows, in
            one table or another, and of which some may have given several (CSV, UNNEST, several tables); 0 otherwise.
        set_aside_before: of the dead letters, those that are not among `given`; only counted with it.
        bytes: of keys and values read.
        deletes: tombstones that delete the row of their key (kpipe/tables/upsert.py).
        inserted, updated, ignored: what became of the rows in the table: `rows` together. Known when the commit is made; without
            a key rule all rows are inserted.
        deleted: of the deletes, those that found a row of their key.
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
        """Offsets of a range of that span that nothing explains; 0 when it adds up.

        Where a record gives one row at most, `span = rows + deletes + dead letters + filtered + gaps`. Where it may give
        several, the rows say nothing about the records, so those that were given stand in their place.
        """
        if self.given:
            return span - (self.given + self.set_aside_before + self.deletes + self.filtered + self.gaps)
        return span - (self.rows + self.deletes + self.dead_letters + self.filtered + self.gaps)

    @property
    def unsettled(self) -> int:
        """Rows of which the commit does not say what became of them, or more deletes done than asked for; 0 when it adds up.

        Without a key there is nothing to say: all rows are inserted.
        """
        if not (self.deletes or self.inserted or self.updated or self.ignored or self.deleted):
            return 0
        return abs(self.rows - self.inserted - self.updated - self.ignored) + max(0, self.deleted - self.deletes)


def total(counts: Iterable[Counts]) -> Counts:
    """Sum of counts."""
    return Counts(*map(sum, zip(*map(_numbers, counts), strict=True)))


_numbers = attrgetter(*(item.name for item in fields(Counts)))
