"""Limits on the columns that records add to a table, and the choice of new columns within them.

Names are counted: a column is one name, and so is each field inside its STRUCTs, at any depth. The rules depend only on the
set of a batch's new names. They do not depend on how the batch was split, or in which order its parts were read.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass

from kpipe.definition.pipeline import Pipeline
from kpipe.schema import column_names
from kpipe.schema.column_names import Path
from kpipe.schema.columns import JSON, VARCHAR, WIDEST_STRUCT, Columns, ListOf, MapOf, Struct, Type, settled
from kpipe.schema.growth_limits import Room

__all__ = [
    "ADVICE", "MOST_IN_BATCH", "MOST_IN_COLUMN", "MOST_IN_RECORD", "Closed", "Left", "Taken", "listed", "named",
    "names_in", "refused", "taken", "trimmed", "widened",
]  # fmt: skip

#: Members of one record without a column in the table.
MOST_IN_RECORD = 1_000
#: Names that one batch adds to a table.
MOST_IN_BATCH = 1_000
#: Names inside one column; a new column with more becomes JSON.
MOST_IN_COLUMN = 1_000

#: Hint in the reason of a dead letter.
ADVICE = "declare what is wanted under `columns` (an object with many keys as JSON), or set schema: ignore"


@dataclass(frozen=True)
class Closed:
    """Reasons why records with further new columns become dead letters; empty texts: none do.

    Attributes:
        column: reason for a new column.
        field: reason for a new field inside a column.
    """

    column: str = ""
    field: str = ""


@dataclass(frozen=True)
class Taken:
    """The table's columns after a batch.

    Attributes:
        columns: the table's, widened by the new columns within the limits.
        closed: the limits that the other new columns exceed.
    """

    columns: Columns
    closed: Closed = Closed()


def taken(base: Columns, new: Columns, bounds: Room, free: Collection[str] = (), before: int = 0) -> Taken:
    """Widen a table's columns by the new columns within the limits: the first ones by name.

    Args:
        base: the table's columns.
        new: further columns of the batch's records.
        bounds: limits of the destination.
        free: columns, in lower case, that the definition names: they are added whatever their number. Fields that records add
            inside them are not.
        before: names of this batch that are in `base` already.

    Raises:
        ValueError: a column has incompatible types in `base` and `new`; the message names it.
    """
    new = trimmed(new, base, free)  # so that the result does not depend on how the batch was split among tasks
    fresh = [name.lower() in free and name not in base for name in new.names()]
    wide = base.merged(Columns(tuple(item for item, freely in zip(new, fresh, strict=True) if freely)))
    found = [item for item, freely in zip(new, fresh, strict=True) if not freely]
    left = Left(wide, bounds, before)
    found = [(name, kind) for name, kind in found if name in wide or left.names(name)]
    every = [part for name, kind in found for part in _additions(wide.get(name), kind, (name.lower(),), left)]
    fit = {path for path, kind in sorted(every, key=lambda part: part[0]) if left.take(path, _narrowed(kind))}
    kept = [(name, _within(wide.get(name), kind, (name.lower(),), fit)) for name, kind in found]
    more = Columns(tuple((name, kind) for name, kind in kept if kind is not None))
    return Taken(wide.merged(more), Closed(left.column, left.field))


class Left:
    """Remaining room in a table.

    Args:
        wide: the table's columns.
        bounds: limits of the destination.
        before: names of this batch that are in `wide` already.
    """

    def __init__(self, wide: Columns, bounds: Room, before: int = 0) -> None:
        self._bounds, self._columns, self._batch = bounds, len(wide), before
        self._inside: MutableMapping[str, int] = {name.lower(): names_in(kind) for name, kind in wide}
        self._names = sum(self._inside.values())
        self._bytes = sum(bounds.size(kind) for _, kind in wide)
        self._fields: dict[Path, int] = {}
        self._claimed = {claim for name, kind in wide for claim in column_names.claims(bounds.destination, (name.lower(),), kind)}
        self._claimed_here: set[str] = set()
        self.column = self.field = ""

    def names(self, name: str) -> bool:
        """Return whether a new column can have that name, and keep the reason if not."""
        why = column_names.fault(self._bounds.destination, name)
        self.column = self.column or why
        return not why

    def beyond(self, table: Columns, new: Columns, free: Collection[str], alone: bool) -> Closed:
        """Return the limits that the new columns of a record exceed by themselves.

        Args:
            table: the columns that this object was made for.
            new: further columns of the record.
            free: as in `taken`.
            alone: whether `new` is from one record. For several records, the result is empty only if each of them is within
                the limits.
        """
        left = copy(self)  # a copy of each dictionary would cost as much for each record as the table has columns
        left._inside, left._fields, left._claimed_here = ChainMap({}, self._inside), {}, set()
        found = [(name, kind) for name, kind in new if name in table or name.lower() not in free]
        every = [part for name, kind in found for part in _additions(table.get(name), kind, (name.lower(),), left)]
        for path, kind in sorted(every, key=lambda part: part[0]):
            taken_as = _narrowed(kind)
            if not left.take(path, taken_as, names_in(taken_as) if alone else _most_names(kind)) and len(path) == 1:
                break  # the record is a reject, whatever its other members are
        return Closed(left.column, left.field)

    def scalars(self) -> int:
        """Return the number of columns without fields that surely have room together; negative if there are too many."""
        bounds, size = self._bounds, self._bounds.size(VARCHAR)
        most = min(MOST_IN_BATCH - self._batch, bounds.names - self._names, bounds.columns - self._columns)
        return most if bounds.bytes is None else min(most, (bounds.bytes - self._bytes) // size)

    def note(self, path: Path, fields: int) -> None:
        """Set the number of fields of a STRUCT."""
        self._fields[path] = fields

    def refuse(self) -> None:
        """Keep the reason that a STRUCT would get too many fields."""
        self.field = self.field or f"a STRUCT is given {WIDEST_STRUCT} fields at most"

    def take(self, path: Path, kind: Type, names: int | None = None) -> bool:
        """Add one more column or field, if there is room for it and for the names inside it (None: count them)."""
        names, destination = names_in(kind) if names is None else names, self._bounds.destination
        claims = set(column_names.claims(destination, path, kind))
        if not (claims.isdisjoint(self._claimed) and claims.isdisjoint(self._claimed_here)):
            self.column = self.column or column_names.clashes(destination)
            self.field = self.field or self.column
            return False
        if self._batch + names > MOST_IN_BATCH:  # reject all later names, too: the choice must depend on the set of names only
            self._batch = MOST_IN_BATCH
            self.column = self.column or f"a batch adds {MOST_IN_BATCH:,} columns and fields to a table at most"
            self.field = self.field or self.column
            return False
        if self._names + names > self._bounds.names:
            self.column = self.column or f"records widen a table to {self._bounds.names:,} columns and fields at most"
            self.field = self.field or self.column
            return False
        if len(path) == 1 and not self._column(kind):
            return False
        if len(path) > 1 and not self._field(path, names):
            return False
        self._batch, self._names = self._batch + names, self._names + names
        self._claimed_here |= claims
        return True

    def _column(self, kind: Type) -> bool:
        size, bounds = self._bounds.size(kind), self._bounds
        if self._columns + 1 > bounds.columns:
            self.column = self.column or f"records widen a table to {bounds.columns:,} columns at most"
        elif bounds.bytes is not None and self._bytes + size > bounds.bytes:
            self.column = self.column or f"columns of this destination's tables take {bounds.bytes:,} bytes of a row at most"
        else:
            self._columns, self._bytes = self._columns + 1, self._bytes + size
            return True
        return False

    def _field(self, path: Path, names: int) -> bool:
        inside = self._inside[path[0]] + names
        if self._fields[path[:-1]] >= WIDEST_STRUCT:
            self.refuse()
            return False
        if inside > MOST_IN_COLUMN:
            self.field = self.field or f"a column is given {MOST_IN_COLUMN:,} fields at most, at all depths"
            return False
        self._fields[path[:-1]] += 1
        self._inside[path[0]] = inside
        return True


def refused(base: Columns, new: Columns) -> str:
    """Return why a record with new members inside the table's columns cannot be a row, however much room there is.

    Args:
        base: the table's columns.
        new: further columns of the record; names that differ by case only are kept apart (`settled`).
    """
    found = ((name, base.get(name), kind) for name, kind in new)
    return next((why for name, have, kind in found if have is not None and (why := _refused(have, kind, name))), "")


def _refused(have: Type, kind: Type, path: str) -> str:
    if _overflows(have, kind):
        return f"{path}: more than {WIDEST_STRUCT} members without a field, a STRUCT is given {WIDEST_STRUCT} fields at most"
    if isinstance(have, MapOf) and isinstance(kind, MapOf):
        names = [name for name, _ in kind.item.fields] if isinstance(kind.item, Struct) else []
        return (
            f"{path}: no field for some members of a MAP's values{f' ({listed(names)})' if names else ''}: records add none there"
        )
    if isinstance(have, ListOf) and isinstance(kind, ListOf):
        return _refused(have.item, kind.item, path)
    if not isinstance(have, Struct) or not isinstance(kind, Struct):
        return ""
    kept = dict(_once(kind))
    other = next((name for name, _ in kind.fields if name not in kept), None)
    if other is not None:
        first = next(name for name in kept if name.lower() == other.lower())
        return f"{path}: members {listed([first, other])} differ by upper and lower case only"
    known = Columns(have.fields)
    inner = ((name, known.get(name), item) for name, item in kind.fields)
    return next((why for name, old, item in inner if old is not None and (why := _refused(old, item, f"{path}.{name}"))), "")


def names_in(kind: Type) -> int:
    """Count a column or field and all fields inside it."""
    if isinstance(kind, Struct):
        return 1 + sum(names_in(item) for _, item in kind.fields)
    return names_in(kind.item) if isinstance(kind, (ListOf, MapOf)) else 1


def trimmed(new: Columns, known: Columns, free: Collection[str] = ()) -> Columns:
    """Drop new columns that no batch can add, because too many names precede them: this bounds the size of a report."""
    if len(new) <= MOST_IN_BATCH:
        return new
    counted = sorted(name.lower() for name in new.names() if name not in known and name.lower() not in free)
    return new.without(counted[MOST_IN_BATCH + 1 :])


def named(pipeline: Pipeline) -> frozenset[str]:
    """Return the columns, in lower case, that the definition names: no limit applies to their number."""
    found = {*pipeline.columns, *pipeline.set}
    for part in (pipeline.format, pipeline.key_format):
        found |= {*(part.mapping or part.fields or ())} if part is not None else set()
    from kpipe.expressions.projection import Selection  # the compiler of expressions: `kpipe status` does without

    selection = Selection.of(pipeline)
    if selection is not None:
        found |= {*selection.targets, *(selection.outputs or ())}
    return frozenset(name.lower() for name in found)


def widened(pipeline: Pipeline) -> bool:
    """Return whether records can add columns that the definition does not name; a `select` of named columns prevents it."""
    from kpipe.expressions.projection import Selection  # the compiler of expressions: `kpipe status` does without

    selection = Selection.of(pipeline)
    return pipeline.evolution == "evolve" and (selection is None or selection.outputs is None)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Format names for a message, the first few of them."""
    shown = ", ".join(name if len(name) <= 40 else name[:40] + "..." for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _additions(have: Type | None, kind: Type, path: Path, left: Left) -> Iterator[tuple[Path, Type]]:
    """Yield the columns and fields that one column gains."""
    if have is None:
        yield path, kind
    elif isinstance(have, Struct) and isinstance(kind, Struct):
        known = Columns(have.fields)
        left.note(path, len(known))
        for name, item in _once(kind):
            yield from _additions(known.get(name), item, (*path, name.lower()), left)
    elif isinstance(have, ListOf) and isinstance(kind, ListOf):
        yield from _additions(have.item, kind.item, (*path, "element"), left)
    elif _overflows(have, kind):
        left.refuse()


def _within(have: Type | None, kind: Type, path: Path, fit: Collection[Path]) -> Type | None:
    """Return what a column gains, without the parts that exceed the limits; None if nothing is left."""
    if have is None:
        return _narrowed(kind) if path in fit else None
    if isinstance(have, Struct) and isinstance(kind, Struct):
        known = Columns(have.fields)
        inner = [(name, _within(known.get(name), item, (*path, name.lower()), fit)) for name, item in _once(kind)]
        fields = tuple((name, item) for name, item in inner if item is not None)
        return Struct(fields) if fields else None
    if isinstance(have, ListOf) and isinstance(kind, ListOf):
        item = _within(have.item, kind.item, (*path, "element"), fit)
        return None if item is None else ListOf(item)
    return None if _overflows(have, kind) else kind


def _overflows(have: Type, kind: Type) -> bool:
    """Return whether a STRUCT got so many new fields that tasks report it as JSON."""
    return kind == JSON and isinstance(have, (Struct, ListOf))


def _narrowed(kind: Type) -> Type:
    """Return the type of a new column: JSON if it has too many names inside, at any depth."""
    plain = settled(kind) or JSON
    return JSON if names_in(plain) > MOST_IN_COLUMN else plain


def _most_names(kind: Type) -> int:
    """Return an upper bound for the names of one record in a column merged from several; JSON may contain the maximum."""
    if isinstance(kind, Struct):
        return 1 + sum(_most_names(item) for _, item in kind.fields)
    if isinstance(kind, (ListOf, MapOf)):
        return _most_names(kind.item)
    return MOST_IN_COLUMN if kind == JSON else 1


def _once(kind: Struct) -> Iterator[tuple[str, Type]]:
    """Yield the fields of a STRUCT; of names that differ by case only, which are not allowed, the first by name."""
    first: dict[str, str] = {}
    for name, _ in kind.fields:
        first[name.lower()] = min(name, first.get(name.lower(), name))
    return ((name, item) for name, item in kind.fields if first[name.lower()] == name)
