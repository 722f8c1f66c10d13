"""Tables by the value of a record's field: which table of a batch a value names, and why some values name none (ADR 69).

No character of a value is replaced, so different values never share a table. A value is data of a producer: it gives a name only
if that is a plain identifier, and only as many tables as the definition allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kpipe.definition.table_template import field_of, of_value, problem_of, value_of
from kpipe.terminal import plain

__all__ = ["Routes"]

_LONGEST = 63  # of a table's name
_SHOWN = 64  # characters of a value in a reason


@dataclass(frozen=True)
class Routes:
    """Tables of one batch by the value of a field.

    Attributes:
        template: `into.table`, with `{field.NAME}`.
        most: most tables of the template.
        values: of the tables that the batch may write, in the order of these tables.
        names: further tables of the template that exist according to the ledger; each counts towards `most`.
        closed: whether no table is added any more: other values have none.
        reserved: prefix of names that the destination reserves, in lower case; empty: none.
    """

    template: str
    most: int
    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    closed: bool = False
    reserved: str = ""

    @property
    def field(self) -> str:
        """Name of the field."""
        name = field_of(self.template)
        assert name is not None  # a template without a field has no routes
        return name

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables of the values."""
        return tuple(of_value(self.template, value) for value in self.values)

    @property
    def room(self) -> int:
        """Number of tables that may be added."""
        return 0 if self.closed else max(0, self.most - len(self._taken))

    @cached_property
    def _taken(self) -> dict[str, str]:
        """Every table by its name without regard to case."""
        return {name.lower(): name for name in (*self.names, *self.tables)}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {value: at for at, value in enumerate(self.values)}

    def place(self, value: str | None) -> int | None:
        """Return the position of a value's table; None: the value has none, or not yet."""
        return None if value is None else self._places.get(value)

    def problem(self, value: str | None) -> str:
        """Return why records with a value have no table; empty if they have one, or may get one."""
        if value is None:
            return f"{self.field}: missing or null: expected a value that names the table {self.template}"
        if value in self._places:
            return ""
        name, shown = of_value(self.template, value), plain(repr(value[:_SHOWN])) + ("…" if len(value) > _SHOWN else "")
        if value_of(self.template, name) != value:
            return f"{self.field}: {shown} cannot be a part of a table's name: expected letters, digits and _"
        if len(name) > _LONGEST:
            return f"{self.field}: {shown}: expected a table's name of {_LONGEST} characters at most, found {len(name):,}"
        if why := problem_of(name):
            return f"{self.field}: {why}"
        if self.reserved and name.lower().startswith(self.reserved):
            return f"{self.field}: {name!r}: names that begin with {self.reserved} are reserved by the database"
        if (other := self._taken.get(name.lower(), name)) != name:
            return f"{self.field}: table {name} differs from table {other} by upper and lower case only"
        if not self.room and (self.closed or name.lower() not in self._taken):
            return f"{self.field}: no table for {shown}: expected {self.most} tables at most (into.max_tables)"
        return ""

    def least(self, values: Iterable[str]) -> Sequence[str]:
        """Return those of some values that may get a table: as many as there is room for, the first ones by name.

        Values without a table of their own are left out, and so is all but one of several that differ by case only. The result
        for several sets of values is that for the results of each.
        """
        found: list[str] = []
        folded: set[str] = set()
        left = self.room
        for value in sorted(set(values), key=_order):
            name = of_value(self.template, value)
            if value in self._places or name.lower() in folded or self.problem(value):
                continue
            there = name.lower() in self._taken
            if there or left:
                folded.add(name.lower())
                found.append(value)
                left -= not there
        return found

    def known(self, names: Iterable[str]) -> Routes:
        """Return the routes with the tables that the ledger names; those of another template are left out."""
        return replace(self, names=tuple(sorted(name for name in names if value_of(self.template, name) is not None)))

    def opened(self, tables: Iterable[str]) -> Routes:
        """Return the routes with these tables of `names`, which exist, as tables of the batch."""
        found = [value for name in tables if (value := value_of(self.template, name)) is not None]
        return replace(self, values=(*self.values, *found))

    def widened(self, values: Iterable[str]) -> Routes:
        """Return the routes with the tables of further values (`least`), and closed: all other values have none."""
        return replace(self, values=(*self.values, *self.least(values)), closed=True)


def _order(value: str) -> tuple[str, str]:
    return value.lower(), value.swapcase()  # of two that differ by case, the one in lower case comes first
