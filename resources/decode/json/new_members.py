"""Judge and infer members without a column from what compiled code notes, with work for each distinct name only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kpipe.schema import column_names
from kpipe.schema.columns import BIGINT, BOOLEAN, DOUBLE, NOTHING, VARCHAR, Columns, Type, merge, settled
from kpipe.schema.inference import nameable
from resources.decode.growth_guard import Bound

__all__ = ["Judge", "NewMembers"]

# Types of values, in the order of new_members.h; after them: an object or a list.
_TYPES: tuple[Type, ...] = (NOTHING, BOOLEAN, BIGINT, DOUBLE, VARCHAR)
_WIDTH = 8
# Names that a decoder remembers from block to block.
_MOST_REMEMBERED = 1 << 14

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NewMembers:
    """Members without a column in a block of payloads.

    Attributes:
        count: number of payloads.
        names: their distinct names.
        payloads: for each member, the index of its payload.
        codes: for each member, the index of its name times 8, plus the type of its value; -1: it is inside a column.
    """

    count: int
    names: Sequence[str]
    payloads: Numbers
    codes: Numbers

    @property
    def inside(self) -> Numbers:
        """Mark the payloads with a member inside a column that the column's type lacks."""
        found = np.zeros(self.count, np.bool_)
        found[self.payloads[self.codes < 0]] = True
        return found

    def similar(self, names: Collection[str]) -> Numbers:
        """Mark the payloads with a member that is one of these names in lower case."""
        found = np.zeros(self.count, np.bool_)
        alike = np.array([name.lower() in names for name in self.names], np.bool_)
        if alike.any():
            plain = self.codes >= 0
            found[self.payloads[plain][alike[self.codes[plain] // _WIDTH]]] = True
        return found

    @cached_property
    def nested(self) -> Numbers:
        """Mark the payloads with a new member that Python has to decode: an object, a list, or a member inside a column."""
        found = np.zeros(self.count, np.bool_)
        found[self.payloads[(self.codes < 0) | (self.codes % _WIDTH >= len(_TYPES))]] = True
        return found

    def columns(self, without: Numbers) -> Columns:
        """Infer columns as `infer` does with `apart`, from values without members.

        Args:
            without: for each payload, whether it is left out.
        """
        codes = self.codes[~without[self.payloads] & (self.codes >= 0) & (self.codes % _WIDTH < len(_TYPES))]
        first = np.full(len(self.names) * _WIDTH, len(codes), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        used = np.flatnonzero(first < len(codes))
        found: dict[str, tuple[str, Type]] = {}
        for code in used[np.argsort(first[used])].tolist():
            name, kind = self.names[code // _WIDTH], _TYPES[code % _WIDTH]
            folded = name.lower()
            if not folded.startswith("_kafka_"):
                have = found.get(folded)
                found[folded] = (name, kind) if have is None else (have[0], merge(have[1], kind))
        inferred = [(name, settled(kind, apart=True)) for name, kind in found.values()]
        return Columns(tuple((name, kind) for name, kind in inferred if kind is not None))


class Judge:
    """Decides which payloads with new members cannot be rejects. Each name is judged once, not once for each payload.

    Args:
        columns: the decoder's columns.
        bound: limits on a record's new columns.
    """

    def __init__(self, columns: Columns, bound: Bound) -> None:
        self._columns, self._bound = columns, bound
        self._clear: dict[str, bool] = {}

    def doubtful(self, members: NewMembers) -> Numbers:
        """Return for each payload whether Python has to judge it: it is nested, or may be a reject."""
        found = members.nested.copy()
        if not members.names:
            return found
        plain = members.codes >= 0
        payloads, names = members.payloads[plain], members.codes[plain] // _WIDTH
        found[payloads[~self._judged(members.names)[names]]] = True
        if self._bound.rejects:
            found |= np.bincount(payloads, minlength=members.count) > self._bound.certain
        return found

    def _judged(self, names: Sequence[str]) -> Numbers:
        """Return for each name whether payloads can have it together with the other names.

        The value is one without members. A name that differs from another one by case only, or that claims the same name in the
        destination, is not clear.
        """
        if len(self._clear) + len(names) > _MOST_REMEMBERED:
            self._clear.clear()
        new = [name for name in names if name not in self._clear and nameable(name)]
        self._clear.update((name, name not in self._columns) for name in new)
        if self._bound.rejects:
            for name in self._beyond([name for name in new if self._clear[name] and not name.lower().startswith("_kafka_")]):
                self._clear[name] = False
        clear = np.array([self._clear.get(name, False) for name in names], np.bool_)
        folded = [name.lower() for name in names]
        if len(set(folded)) < len(folded):
            clear &= ~_repeated([(name,) for name in folded])
        if self._bound.rejects:
            claims = [set(column_names.claims(self._bound.destination, (name,), VARCHAR)) for name in folded]
            clear &= ~_repeated(claims)
        return clear

    def _beyond(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the names that a record with no other new member may not have."""
        most = self._bound.certain
        for start in range(0, len(names), max(1, most)):
            some = names[start : start + max(1, most)]
            if not most:
                yield from some
            elif self._bound.beyond(Columns(tuple((name, VARCHAR) for name in some))):
                half = len(some) // 2
                yield from (*self._beyond(some[:half]), *self._beyond(some[half:])) if half else some


def _repeated(items: Sequence[Collection[str]]) -> Numbers:
    """Return for each item whether it has a text that another item has, too."""
    times = Counter(text for item in items for text in item)
    return np.array([any(times[text] > 1 for text in item) for item in items], np.bool_)
